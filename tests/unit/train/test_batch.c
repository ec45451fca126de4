/* SPDX-License-Identifier: MIT
 *
 * Every epoch has every example once, batches keep to their budget and to lengths of a kind, every speed gets its share
 * of every batch, and the seed is all that decides. */
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/rng.h"
#include "src/train/batch.h"
#include "src/train/plan.h"
#include "tests/support/support.h"

enum { MOST = 3000 };

static sd_example examples[MOST];

static sd_dataset random_data(size_t n, uint64_t seed)
{
    sd_rng rng;
    sd_rng_seed(&rng, seed);
    sd_dataset d = {.examples = examples, .n = n};
    for (size_t i = 0; i < n; i++) {
        examples[i] =
            (sd_example){.n_prompt = 1 + (int)sd_rng_below(&rng, 20), .n_response = 1 + (int)sd_rng_below(&rng, 60)};
        d.prompt_tokens += examples[i].n_prompt;
        d.response_tokens += examples[i].n_response;
    }
    return d;
}

static int64_t batch_tokens(const uint32_t *rows, int n)
{
    int64_t tokens = 0;
    for (int i = 0; i < n; i++) {
        tokens += examples[rows[i]].n_prompt + examples[rows[i]].n_response;
    }
    return tokens;
}

static void check_epoch(const sd_batcher *b)
{
    static unsigned char seen[MOST];
    memset(seen, 0, sizeof seen);
    int64_t spread = 0;
    for (size_t i = 0; i < b->n_batches; i++) {
        int n;
        const uint32_t *rows = sd_batcher_rows(b, i, &n);
        assert_true(n >= b->options.min_rows || b->n_batches == 1);
        if (b->options.rows > 0) {
            assert_true(n < b->options.rows + b->options.min_rows);
        } else if (n >= 2 * b->options.min_rows) { /* else a rest may have joined it */
            assert_true(batch_tokens(rows, n) <= b->options.tokens + 81 * (b->options.min_rows - 1));
        }
        for (int k = 0; k < n; k++) {
            assert_int_equal(seen[rows[k]]++, 0);
            assert_true(k == 0 || batch_tokens(rows + k - 1, 1) >= batch_tokens(rows + k, 1));
        }
        spread += batch_tokens(rows, 1) - batch_tokens(rows + n - 1, 1);
    }
    for (size_t i = 0; i < b->data->n; i++) {
        assert_int_equal(seen[i], 1);
    }
    assert_true(b->n_batches < 30 || spread / (int64_t)b->n_batches < 20); /* of lengths 2 .. 80: buckets */
}

static void test_epochs(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 12; seed++) {
        const size_t sizes[] = {5, 6, 37, 640, 2999, 3000};
        const sd_dataset d = random_data(sizes[seed % 6], seed);
        const sd_batch_options options = {.rows = seed % 2 ? 20 : 0, .tokens = seed % 2 ? 0 : 900, .accumulate = 3,
                                          .min_rows = 5, .seed = seed};
        sd_batcher a, b;
        sd_error err;
        sd_assert_ok(sd_batcher_create(&a, &d, &options, &err), &err);
        sd_assert_ok(sd_batcher_create(&b, &d, &options, &err), &err);
        static uint32_t first[MOST];
        int64_t steps = 0, counted;
        bool differs = false;
        for (int epoch = 0; epoch < 4; epoch++) {
            sd_assert_ok(sd_batcher_epoch(&a, epoch, &err), &err);
            check_epoch(&a);
            assert_int_equal(sd_batcher_steps(&a), (a.n_batches + 2) / 3);
            steps += (int64_t)sd_batcher_steps(&a);
            differs = differs || (epoch > 0 && memcmp(a.order, first, d.n * sizeof *first) != 0);
            memcpy(first, a.order, d.n * sizeof *first);
        }
        assert_true(differs || d.n < 40);
        sd_assert_ok(sd_batcher_count(&b, 4, &counted, &err), &err);
        assert_int_equal(counted, steps);
        sd_assert_ok(sd_batcher_epoch(&b, 3, &err), &err); /* whatever was laid out before */
        assert_int_equal(a.n_batches, b.n_batches);
        assert_memory_equal(a.order, b.order, d.n * sizeof *a.order);
        assert_memory_equal(a.batches, b.batches, a.n_batches * sizeof *a.batches);
        b.options.seed++;
        sd_assert_ok(sd_batcher_epoch(&b, 3, &err), &err);
        assert_true(d.n < 40 || memcmp(a.order, b.order, d.n * sizeof *a.order) != 0);
        sd_batcher_clear(&a);
        sd_batcher_clear(&b);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    const sd_dataset d = random_data(4, 1);
    sd_batcher b;
    sd_error err;
    sd_assert_fails(sd_batcher_create(&b, &d, &(sd_batch_options){.rows = 8, .accumulate = 1, .min_rows = 5}, &err),
                    SD_ERR_ARG, &err, "4 examples");
    sd_assert_fails(sd_batcher_create(&b, &d, &(sd_batch_options){.rows = 2, .accumulate = 1, .min_rows = 3}, &err),
                    SD_ERR_ARG, &err, "a batch of 2 rows for 3 speeds");
    for (long n = 1; n <= 4; n++) {
        sd_alloc_fail_at(n);
        int rc = sd_batcher_create(&b, &d, &(sd_batch_options){.rows = 2, .accumulate = 1, .min_rows = 1}, &err);
        sd_alloc_fail_at(0);
        assert_int_equal(rc, SD_ERR_MEMORY);
    }
}

/* Shares differ by one row at most, and over five batches not at all. */
static void test_speeds(void **state)
{
    (void)state;
    for (int rows = 5; rows < 23; rows++) {
        int total[5] = {0};
        for (int64_t batch = 0; batch < 5; batch++) {
            int share[5] = {0};
            for (int row = 0; row < rows; row++) {
                share[sd_batch_speed(batch, row, 5)]++;
            }
            for (int s = 0; s < 5; s++) {
                assert_true(share[s] == rows / 5 || share[s] == rows / 5 + 1);
                total[s] += share[s];
            }
        }
        for (int s = 0; s < 5; s++) {
            assert_int_equal(total[s], rows);
        }
    }
}

static void test_stages(void **state)
{
    (void)state;
    sd_stages s;
    sd_error err;
    sd_assert_ok(sd_stages_parse(&s, "1,2@40%/1,2,2.5@70/5,5,1", &err), &err);
    sd_assert_ok(sd_stages_place(&s, 100, &err), &err);
    assert_int_equal(s.n, 3);
    const struct { int64_t step; int stage; } where[] = {{0, 0}, {39, 0}, {40, 1}, {69, 1}, {70, 2}, {99, 2}, {500, 2}};
    for (size_t i = 0; i < sizeof where / sizeof *where; i++) {
        assert_int_equal(sd_stages_at(&s, where[i].step), where[i].stage);
    }
    double speeds[SD_MAX_STAGES * SD_MAX_SPEEDS];
    assert_int_equal(sd_stages_speeds(&s, speeds), 4);
    assert_true(speeds[0] == 1 && speeds[1] == 2 && speeds[2] == 2.5 && speeds[3] == 5);
    assert_int_equal(sd_stages_most_speeds(&s), 3);
    sd_assert_fails(sd_stages_place(&s, 60, &err), SD_ERR_ARG, &err, "stage 2 of the speeds");
    static const char *const bad[] = {"",
                                      "1,",
                                      "1,,2",
                                      "0.5",
                                      "x",
                                      "1,2@40%",
                                      "1@40%/",
                                      "1@0/2",
                                      "1@x/2",
                                      "1@100%/2",
                                      "1@-5/2",
                                      "1@4.5/2",
                                      "1/2",
                                      "nan",
                                      "inf",
                                      "1@40%%/2",
                                      "1 ,2",
                                      "1/2@3",
                                      "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        sd_assert_fails(sd_stages_parse(&s, bad[i], &err), SD_ERR_ARG, &err, "expected");
    }
}

static void test_learning_rate(void **state)
{
    (void)state;
    double before = 0;
    for (int64_t step = 0; step < 10; step++) {
        const double rate = sd_learning_rate(step, 100, 10, 1e-3, 1e-5);
        assert_true(rate > before && rate < 1e-3);
        before = rate;
    }
    assert_true(sd_learning_rate(10, 100, 10, 1e-3, 1e-5) == 1e-3);
    assert_true(sd_learning_rate(0, 100, 0, 1e-3, 0) == 1e-3);
    const double middle = sd_learning_rate(55, 100, 10, 1e-3, 1e-5) - 0.5 * (1e-3 + 1e-5);
    assert_true(middle < 1e-12 && middle > -1e-12);
    before = 1e-3;
    for (int64_t step = 11; step < 100; step++) {
        const double rate = sd_learning_rate(step, 100, 10, 1e-3, 1e-5);
        assert_true(rate < before && rate > 1e-5);
        before = rate;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_epochs), cmocka_unit_test(test_refusals), cmocka_unit_test(test_speeds),
        cmocka_unit_test(test_stages), cmocka_unit_test(test_learning_rate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
