/* SPDX-License-Identifier: MIT
 *
 * Sampling: the set of tokens that the filters leave and the probabilities within it, against a slow definition; ties,
 * logits that are no numbers, the penalty, ranges, seeds, and log-probabilities. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/generate/sampler.h"
#include "tests/support/random_schedule.h"
#include "tests/support/support.h"

enum { MAX_VOCAB = 64 };

static sd_sampling defaults(void)
{
    sd_sampling s;
    sd_sampling_default(&s);
    return s;
}

static sd_sampler new_sampler(const sd_sampling *options, int vocab, int valid)
{
    sd_sampler sampler;
    sd_error err = {0};
    sd_assert_ok(sd_sampler_init(&sampler, options, vocab, valid, &err), &err);
    return sampler;
}

static int32_t next(sd_sampler *sampler, const float *logits)
{
    sd_candidate scratch[MAX_VOCAB];
    int32_t id = -1;
    sd_error err = {0};
    sd_assert_ok(sd_sampler_next(sampler, logits, scratch, &id, &err), &err);
    assert_in_range(id, 0, sampler->valid - 1);
    return id;
}

/* ---- the definition ---- */

/* p[i]: the probability of token i under the filters, in the order that sampler.h gives. */
static void define(double *p, const float *logits, int n, const sd_sampling *o)
{
    int order[MAX_VOCAB] = {0}, left = 0;
    for (int i = 0; i < n; i++) { /* insertion: the likeliest first, the lower id first among equals */
        p[i] = 0;
        if (!isfinite(logits[i])) {
            continue;
        }
        int at = left++;
        for (; at > 0 && logits[order[at - 1]] < logits[i]; at--) {
            order[at] = order[at - 1];
        }
        order[at] = i;
    }
    left = o->top_k > 0 && o->top_k < left ? o->top_k : left;
    double top = (double)logits[order[0]], total = 0, sum = 0;
    for (int i = 0; i < left; i++) {
        p[order[i]] = exp(((double)logits[order[i]] - top) / (double)o->temperature);
        total += p[order[i]];
    }
    int kept = 0;
    while (kept < left && (kept == 0 || o->top_p >= 1 || sum < (double)o->top_p * total)) {
        sum += p[order[kept++]];
    }
    while (kept > 1 && p[order[kept - 1]] < (double)o->min_p) {
        kept--;
    }
    total = 0;
    for (int i = 0; i < kept; i++) {
        total += p[order[i]];
    }
    for (int i = 0; i < left; i++) {
        p[order[i]] = i < kept ? p[order[i]] / total : 0;
    }
}

/* Draws, and fails if a token outside the set comes, or if the counts are further from the probabilities than chance
 * makes them once in about a million times. */
static void check_statistics(const float *logits, int n, const sd_sampling *o, int draws)
{
    double p[MAX_VOCAB], chi_square = 0;
    int count[MAX_VOCAB] = {0}, cells = 0, rare = 0;
    double rare_p = 0;
    define(p, logits, n, o);
    sd_sampler sampler = new_sampler(o, n, n);
    for (int i = 0; i < draws; i++) {
        int32_t id = next(&sampler, logits);
        if (p[id] == 0) {
            fail_msg("token %d was drawn, which top_k %d, top_p %g, min_p %g leave out", id, o->top_k, (double)o->top_p,
                     (double)o->min_p);
        }
        count[id]++;
    }
    for (int i = 0; i < n; i++) {
        double expected = p[i] * draws;
        if (expected >= 8) {
            chi_square += (count[i] - expected) * (count[i] - expected) / expected;
            cells++;
        } else { /* the rare ones together are one cell */
            rare += count[i];
            rare_p += p[i];
        }
    }
    if (rare_p * draws >= 8) {
        chi_square += (rare - rare_p * draws) * (rare - rare_p * draws) / (rare_p * draws);
        cells++;
    }
    /* Wilson and Hilferty: chi-square / df to the third root is about normal; 4.9 of its deviations are a millionth */
    double df = cells > 1 ? cells - 1 : 1, z = 4.9;
    double limit = df * pow(1 - 2 / (9 * df) + z * sqrt(2 / (9 * df)), 3);
    if (!(chi_square <= limit)) {
        fail_msg("temperature %g, top_k %d, top_p %g, min_p %g: chi-square %.1f with %d cells, at most %.1f expected",
                 (double)o->temperature, o->top_k, (double)o->top_p, (double)o->min_p, chi_square, cells, limit);
    }
    sd_sampler_clear(&sampler);
}

/* ---- tests ---- */

static void draws_follow_the_probabilities(void **state)
{
    (void)state;
    const float logits[] = {0.5f, 2.0f, -1.0f, 1.25f, 2.0f, -3.0f, 0.0f, 1.0f};
    const struct {
        float temperature;
        int top_k;
        float top_p, min_p;
    } settings[] = {
        {1, 0, 1, 0},     {0.5f, 0, 1, 0},   {3, 0, 1, 0},          {100, 0, 1, 0},       {1, 1, 1, 0},
        {1, 3, 1, 0},     {1, 8, 1, 0},      {1, 100, 1, 0},        {1, 0, 0.9f, 0},      {1, 0, 0.5f, 0},
        {1, 0, 1e-6f, 0}, {2, 0, 0.7f, 0},   {1, 0, 1, 0.1f},       {1, 0, 1, 0.99f},     {0.5f, 0, 1, 0.3f},
        {1, 4, 0.8f, 0},  {1, 4, 1, 0.4f},   {1, 0, 0.95f, 0.2f},   {1.5f, 6, 0.9f, 0.1f}, {0.7f, 5, 0.99f, 0.05f},
    };
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        sd_sampling o = defaults();
        o.temperature = settings[i].temperature;
        o.top_k = settings[i].top_k;
        o.top_p = settings[i].top_p;
        o.min_p = settings[i].min_p;
        o.seed = i;
        check_statistics(logits, 8, &o, 20000);
    }
}

static void random_filters_keep_exactly_their_set(void **state)
{
    (void)state;
    sd_rng rng;
    sd_rng_seed(&rng, 1);
    for (int i = 0; i < 600; i++) {
        float logits[MAX_VOCAB];
        int n = sd_random_int(&rng, 1, MAX_VOCAB);
        for (int l = 0; l < n; l++) { /* halves, so that many are equal; a few that are no numbers */
            int kind = sd_random_int(&rng, 0, 20);
            logits[l] = kind == 0 ? NAN : kind == 1 ? -INFINITY : (float)sd_random_int(&rng, -8, 8) * 0.5f;
        }
        logits[sd_random_int(&rng, 0, n - 1)] = 1;
        sd_sampling o = defaults();
        o.temperature = 0.3f + 2 * (float)sd_rng_double(&rng);
        o.top_k = sd_random_int(&rng, 0, 1) ? sd_random_int(&rng, 0, n + 2) : 0;
        o.top_p = sd_random_int(&rng, 0, 1) ? 0.01f + 0.98f * (float)sd_rng_double(&rng) : 1;
        o.min_p = sd_random_int(&rng, 0, 1) ? 0.9f * (float)sd_rng_double(&rng) : 0;
        o.seed = sd_rng_u64(&rng);
        check_statistics(logits, n, &o, 500);
    }
}

/* The whole set that comes in 400 draws, as bits. */
static unsigned drawn(const float *logits, int n, sd_sampling o)
{
    unsigned set = 0;
    sd_sampler sampler = new_sampler(&o, n, n);
    for (int i = 0; i < 400; i++) {
        set |= 1u << next(&sampler, logits);
    }
    sd_sampler_clear(&sampler);
    return set;
}

static void equal_tokens_are_kept_from_the_lowest_id(void **state)
{
    (void)state;
    const float same[] = {0, 0, 0, 0}, low_first[] = {-1, 2, 2, 2, -1};
    sd_sampling o = defaults();
    o.temperature = 1;
    assert_int_equal(drawn(same, 4, o), 0xF);
    o.top_k = 2;
    assert_int_equal(drawn(same, 4, o), 0x3);
    assert_int_equal(drawn(low_first, 5, o), 0x6);
    o.top_k = 1;
    assert_int_equal(drawn(low_first, 5, o), 0x2);
    o.top_k = 0;
    o.top_p = 0.5f; /* two quarters are a half: no third is needed */
    assert_int_equal(drawn(same, 4, o), 0x3);
    o.top_p = 0.51f;
    assert_int_equal(drawn(same, 4, o), 0x7);
    const float five[] = {0, 0, 0, 0, 0};
    o.top_k = 4; /* the shares are those of what top-k left */
    o.top_p = 0.5f;
    assert_int_equal(drawn(five, 5, o), 0x3);
    o.top_k = 0;
    o.top_p = 1;
    o.min_p = 0.999f; /* as likely as the likeliest is enough */
    assert_int_equal(drawn(same, 4, o), 0xF);
    assert_int_equal(drawn(low_first, 5, o), 0xE);
}

static void greedy_takes_the_lowest_id_of_the_best(void **state)
{
    (void)state;
    const float logits[][5] = {{1, 3, 3, 2, 3}, {-5, -2, -2, -9, -3}, {0, -0.0f, 0, 0, 0}, {NAN, 1, NAN, 1, INFINITY},
                               {NAN, -INFINITY, -FLT_MAX, NAN, NAN}, {FLT_MAX, FLT_MAX, 0, 0, 0}};
    const int32_t best[] = {1, 1, 0, 1, 2, 0};
    sd_sampling o = defaults();
    assert_true(o.temperature == 0); /* greedy is the default */
    sd_sampler sampler = new_sampler(&o, 5, 5);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(next(&sampler, logits[i]), best[i]);
    }
    sd_sampler_clear(&sampler);
}

static void ids_that_the_tokenizer_lacks_are_never_drawn(void **state)
{
    (void)state;
    const float logits[] = {1, 2, 50, 60};
    for (int i = 0; i < 2; i++) {
        sd_sampling o = defaults();
        o.temperature = (float)i;
        sd_sampler sampler = new_sampler(&o, 4, 2);
        for (int j = 0; j < 50; j++) {
            assert_in_range(next(&sampler, logits), 0, 1);
        }
        sd_sampler_clear(&sampler);
        sampler = new_sampler(&o, 4, 99); /* a tokenizer with more ids than the model */
        assert_int_equal(next(&sampler, logits), 3);
        sd_sampler_clear(&sampler);
    }
}

static void logits_that_are_no_numbers_are_an_error(void **state)
{
    (void)state;
    const float logits[] = {NAN, INFINITY, -INFINITY, NAN};
    const float temperatures[] = {0, 1};
    for (int i = 0; i < 2; i++) {
        sd_sampling o = defaults();
        o.temperature = temperatures[i];
        o.top_k = 2;
        sd_sampler sampler = new_sampler(&o, 4, 4);
        sd_candidate scratch[4];
        int32_t id;
        sd_error err = {0};
        sd_assert_fails(sd_sampler_next(&sampler, logits, scratch, &id, &err), SD_ERR_STATE, &err, "no finite logit");
        sd_sampler_clear(&sampler);
    }
}

/* The limits of temperature are greedy and uniform; neither may overflow on the way. */
static void extreme_temperatures_and_logits_are_harmless(void **state)
{
    (void)state;
    const float usual[] = {3, 9, 9, -4}, huge[] = {-FLT_MAX, FLT_MAX, FLT_MAX, 0};
    const float temperatures[] = {FLT_TRUE_MIN, 1e-39f, 1e-20f, 1e-6f};
    sd_sampling o = defaults();
    for (int filters = 0; filters < 2; filters++) {
        o.top_k = filters ? 3 : 0;
        o.top_p = filters ? 0.999f : 1;
        for (size_t i = 0; i < sizeof temperatures / sizeof *temperatures; i++) {
            o.temperature = temperatures[i];
            assert_int_equal(drawn(usual, 4, o), 0x6);
            assert_int_equal(drawn(huge, 4, o), 0x6);
        }
        o.temperature = 100;
        assert_int_equal(drawn(huge, 4, o), 0x6);
    }
    o.top_k = 0;
    o.top_p = 1;
    assert_int_equal(drawn(usual, 4, o), 0xF);
}

static void the_penalty_makes_seen_tokens_less_likely(void **state)
{
    (void)state;
    const float positive[] = {2.0f, 1.9f, 1.0f}, negative[] = {-1.0f, -1.1f, -3.0f};
    sd_sampling o = defaults();
    sd_sampler plain = new_sampler(&o, 3, 3);
    sd_sampler_note(&plain, 0); /* 1 is off */
    assert_null(plain.seen);
    assert_int_equal(next(&plain, positive), 0);
    o.repetition_penalty = 1.2f;
    sd_sampler sampler = new_sampler(&o, 3, 3);
    assert_int_equal(next(&sampler, positive), 0);
    sd_sampler_note(&sampler, 0);
    sd_sampler_note(&sampler, 0); /* counts once */
    assert_int_equal(next(&sampler, positive), 1);
    assert_int_equal(next(&sampler, negative), 1);
    sd_sampler_note(&sampler, 1);
    assert_int_equal(next(&sampler, positive), 0);
    assert_int_equal(next(&sampler, negative), 0);
    sd_sampler_note(&sampler, -1); /* no token: nothing happens */
    sd_sampler_note(&sampler, 3);
    sd_sampler_clear(&sampler);
    o.repetition_penalty = 0.5f; /* a reward */
    sampler = new_sampler(&o, 3, 3);
    sd_sampler_note(&sampler, 1);
    assert_int_equal(next(&sampler, positive), 1);
    assert_int_equal(next(&sampler, negative), 1);
    sd_sampler_clear(&sampler);
    sd_sampler_clear(&plain);

    /* in probabilities: 2 / 2 = 1 and -1 * 2 = -2 against 0 */
    const float logits[] = {2, -1, 0}, after[] = {1, -2, 0};
    double p[3];
    int count[3] = {0};
    o.repetition_penalty = 2;
    o.temperature = 1;
    o.seed = 5;
    define(p, after, 3, &o);
    sampler = new_sampler(&o, 3, 3);
    sd_sampler_note(&sampler, 0);
    sd_sampler_note(&sampler, 1);
    for (int i = 0; i < 20000; i++) {
        count[next(&sampler, logits)]++;
    }
    for (int i = 0; i < 3; i++) {
        assert_true(fabs(count[i] / 20000.0 - p[i]) < 5 * sqrt(p[i] * (1 - p[i]) / 20000));
    }
    sd_sampler_clear(&sampler);
}

static void a_seed_gives_one_sequence(void **state)
{
    (void)state;
    float logits[32];
    for (int i = 0; i < 32; i++) {
        logits[i] = (float)(i % 5);
    }
    sd_sampling o = defaults();
    o.temperature = 1;
    int32_t first[100];
    int same_as_other_seed = 0;
    for (int turn = 0; turn < 3; turn++) {
        o.seed = turn < 2 ? 123 : 124;
        sd_sampler sampler = new_sampler(&o, 32, 32);
        for (int i = 0; i < 100; i++) {
            int32_t id = next(&sampler, logits);
            if (turn == 0) {
                first[i] = id;
            } else if (turn == 1) {
                assert_int_equal(id, first[i]);
            } else {
                same_as_other_seed += id == first[i];
            }
        }
        sd_sampler_clear(&sampler);
    }
    assert_true(same_as_other_seed < 50);
}

static void values_out_of_range_are_named(void **state)
{
    (void)state;
    static const char *const names[] = {"temperature", "top_k", "top_p", "min_p", "repetition_penalty"};
    const struct {
        int field;
        float value;
    } bad[] = {
        {0, -0.1f}, {0, 100.1f}, {0, 999999}, {0, NAN},  {0, INFINITY}, {0, -INFINITY}, {1, -1},       {1, -40},
        {2, 0},     {2, -1},     {2, 1.001f}, {2, NAN},  {2, INFINITY}, {3, -0.1f},     {3, 1},        {3, 2},
        {3, NAN},   {4, 0},      {4, -1},     {4, 101},  {4, NAN},      {4, INFINITY},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        sd_sampling o = defaults();
        sd_error err = {0};
        sd_assert_ok(sd_sampling_check(&o, &err), &err);
        float *const fields[] = {&o.temperature, NULL, &o.top_p, &o.min_p, &o.repetition_penalty};
        if (fields[bad[i].field]) {
            *fields[bad[i].field] = bad[i].value;
        } else {
            o.top_k = (int)bad[i].value;
        }
        sd_assert_fails(sd_sampling_check(&o, &err), SD_ERR_ARG, &err, names[bad[i].field]);
        sd_assert_fails(sd_sampling_check(&o, &err), SD_ERR_ARG, &err, "expected");
        sd_sampler sampler;
        sd_assert_fails(sd_sampler_init(&sampler, &o, 4, 4, &err), SD_ERR_ARG, &err, names[bad[i].field]);
        sd_sampler_clear(&sampler);
    }
    const sd_sampling edges[] = {{.temperature = 100, .top_p = 1, .repetition_penalty = 100},
                                 {.temperature = FLT_TRUE_MIN, .top_p = FLT_TRUE_MIN, .repetition_penalty = 0.001f,
                                  .top_k = INT32_MAX, .min_p = 0.9999f, .seed = UINT64_MAX}};
    for (int i = 0; i < 2; i++) {
        sd_error err = {0};
        sd_assert_ok(sd_sampling_check(&edges[i], &err), &err);
    }
}

static void an_allocation_that_fails_is_an_error(void **state)
{
    (void)state;
    sd_sampling o = defaults();
    o.repetition_penalty = 1.5f;
    sd_sampler sampler;
    sd_error err = {0};
    sd_alloc_fail_at(1);
    int rc = sd_sampler_init(&sampler, &o, 100, 100, &err);
    sd_alloc_fail_at(0);
    sd_assert_fails(rc, SD_ERR_MEMORY, &err, "repetition penalty");
    sd_sampler_clear(&sampler);
    sd_sampler_clear(&sampler); /* twice is once */
}

static void log_probabilities_are_log_softmax(void **state)
{
    (void)state;
    sd_rng rng;
    sd_rng_seed(&rng, 9);
    for (int i = 0; i < 200; i++) {
        float logits[MAX_VOCAB];
        int n = sd_random_int(&rng, 1, MAX_VOCAB);
        double total = 0, sum = 0;
        for (int l = 0; l < n; l++) {
            logits[l] = (float)(40 * sd_rng_double(&rng) - 20);
            total += exp((double)logits[l]);
        }
        for (int l = 0; l < n; l++) {
            double p = (double)sd_logprob(logits, n, l);
            assert_true(fabs(p - ((double)logits[l] - log(total))) < 1e-5);
            sum += exp(p);
        }
        assert_true(fabs(sum - 1) < 1e-5);
    }
    const float huge[] = {3e38f, 3e38f, -3e38f, -INFINITY}; /* no overflow on the way */
    assert_true(fabs((double)sd_logprob(huge, 4, 0) + log(2)) < 1e-6);
    assert_true((double)sd_logprob(huge, 4, 2) < -1e38);
    assert_true(isinf(sd_logprob(huge, 4, 3)));
}

int main(void)
{
    sd_skip_unless_level();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_follow_the_probabilities),
        cmocka_unit_test(random_filters_keep_exactly_their_set),
        cmocka_unit_test(equal_tokens_are_kept_from_the_lowest_id),
        cmocka_unit_test(greedy_takes_the_lowest_id_of_the_best),
        cmocka_unit_test(ids_that_the_tokenizer_lacks_are_never_drawn),
        cmocka_unit_test(logits_that_are_no_numbers_are_an_error),
        cmocka_unit_test(extreme_temperatures_and_logits_are_harmless),
        cmocka_unit_test(the_penalty_makes_seen_tokens_less_likely),
        cmocka_unit_test(a_seed_gives_one_sequence),
        cmocka_unit_test(values_out_of_range_are_named),
        cmocka_unit_test(an_allocation_that_fails_is_an_error),
        cmocka_unit_test(log_probabilities_are_log_softmax),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
