/* SPDX-License-Identifier: MIT
 *
 * Scores computed by hand, the edges of each definition, memory that runs out, and the bootstrap. */
#include "src/base/alloc.h"
#include "tests/unit/eval/corpus.h"

static void test_bleu(void **state)
{
    (void)state;
    assert_near(test_one(SD_METRIC_BLEU, "a b c d e", "a b c d e"), 100);
    /* precisions 5/6, 3/5, 1/4 and none of 3: 1/2 of one; lengths equal */
    const double p = 5.0 / 6 * (3.0 / 5) * (1.0 / 4) * (1.0 / 6);
    assert_near(test_one(SD_METRIC_BLEU, "a b c x d e", "a b c d e f"), 100 * pow(p, 0.25));
    assert_near(test_one(SD_METRIC_BLEU, "x y z w", "a b c d"), 0);  /* no match: no smoothing either */
    assert_near(test_one(SD_METRIC_BLEU, "a b", "a b"), 0);          /* shorter than the order, as a corpus */
    assert_near(test_one(SD_METRIC_BLEU, "", "a b"), 0);
    assert_near(test_one(SD_METRIC_BLEU, "", ""), 0);
    /* brevity: 4 words against 6 */
    assert_near(test_one(SD_METRIC_BLEU, "a b c d", "a b c d e f"), 100 * exp(1 - 6.0 / 4));
    /* clipping: "a" once, however often it is said; order 2 and on have nothing: 1/2, 1/4, 1/8 of one */
    const double q = 1.0 / 4 * (1.0 / (2 * 3)) * (1.0 / (4 * 2)) * (1.0 / 8);
    assert_near(test_one(SD_METRIC_BLEU, "a a a a", "a b c d"), 100 * pow(q, 0.25));
}

static void test_bleu_references(void **state)
{
    (void)state;
    test_corpus c;
    sd_stats stats;
    sd_error err = {0};
    double sums[SD_STATS_MAX];
    const sd_metric_options usual = {0};
    /* the closest length, the shorter of equals; the second segment has one reference, the third an empty text */
    const test_segment segments[] = {
        {"a b c d", {"a b", "a b c d e f", "a b x"}, NULL}, {"a b", {"a b"}, NULL}, {"", {"a", "a b c"}, NULL}};
    test_fill(&c, segments, 3);
    sd_assert_ok(sd_stats_make(&stats, SD_METRIC_BLEU, &usual, &c.corpus, &err), &err);
    sd_stats_sums(&stats, sums);
    assert_near(sums[0], 6);
    assert_near(sums[1], 3 + 2 + 1);
    assert_near(sums[2], 4 + 2);
    assert_near(sums[6], 6);
    assert_near(sums[9], 1);
    assert_int_equal(stats.n_refs, -1);
    assert_near(sd_stats_segment(&stats, 1), 100); /* a single text counts the orders that it has */
    sd_buf signature = {0};
    sd_stats_signature(&stats, &signature);
    assert_non_null(strstr(signature.data, "nrefs:var|case:mixed|eff:no|tok:13a|smooth:exp|version:skipdecode-"));
    sd_buf_free(&signature);
    sd_stats_free(&stats);
}

static void test_chrf(void **state)
{
    (void)state;
    assert_near(test_one(SD_METRIC_CHRF, "abc", "abc"), 100);
    assert_near(test_one(SD_METRIC_CHRF, "a b c", "abc"), 100); /* white space does not count */
    assert_near(test_one(SD_METRIC_CHRFPP, "abc", "abc"), 100);
    assert_near(test_one(SD_METRIC_CHRF, "", "abc"), 0);
    assert_near(test_one(SD_METRIC_CHRF, "abc", ""), 0);
    /* "ab" against "abc": orders 1 and 2 are in both; precision 1 and 1, recall 2/3 and 1/2 */
    const double r = (2.0 / 3 + 1.0 / 2) / 2;
    assert_near(test_one(SD_METRIC_CHRF, "ab", "abc"), 100 * 5 * r / (4 + r));
}

static void test_rouge(void **state)
{
    (void)state;
    assert_near(test_one(SD_METRIC_ROUGE1, "the cat sat", "the cat was"), 2.0 / 3);
    assert_near(test_one(SD_METRIC_ROUGE2, "the cat sat", "the cat was"), 1.0 / 2);
    assert_near(test_one(SD_METRIC_ROUGEL, "police kill the gunman", "police killed the gunman"), 3.0 / 4);
    assert_near(test_one(SD_METRIC_ROUGEL, "the gunman kill police", "police killed the gunman"), 1.0 / 2);
    assert_near(test_one(SD_METRIC_ROUGE1, "", "a"), 0);
    assert_near(test_one(SD_METRIC_ROUGE1, "", ""), 0);
    assert_near(test_one(SD_METRIC_ROUGEL, "\xE5\x8C\x97", "\xE5\x8C\x97"), 0); /* no letters a-z: no words at all */
    /* Lin's example: w1 w2 w3 w4 w5 against w1 w2 w6 w7 w8 and w1 w3 w8 w9 w5: the union holds w1 w2 w3 w5 */
    const double recall = 4.0 / 5, precision = 4.0 / 10;
    assert_near(test_one(SD_METRIC_ROUGELSUM, "w1 w2 w6 w7 w8\nw1 w3 w8 w9 w5", "w1 w2 w3 w4 w5"),
                2 * recall * precision / (recall + precision));
    /* without lines it is ROUGE-L */
    assert_near(test_one(SD_METRIC_ROUGELSUM, "a b c d", "a c b d"), test_one(SD_METRIC_ROUGEL, "a b c d", "a c b d"));
    test_corpus c;
    const test_segment segment = {"a b", {"x", "a b c", "a"}, NULL};
    test_fill(&c, &segment, 1);
    assert_near(test_score(&c.corpus, SD_METRIC_ROUGE1, NULL), 4.0 / 5); /* the best of three */
    const test_segment words = {"running dogs", {"runs dog"}, NULL};
    test_fill(&c, &words, 1);
    assert_near(test_score(&c.corpus, SD_METRIC_ROUGE1, NULL), 0);
    assert_near(test_score(&c.corpus, SD_METRIC_ROUGE1, &(sd_metric_options){.stem = true}), 1.0);
}

static void test_coco(void **state)
{
    (void)state;
    test_corpus c;
    /* precision 2/3 (first), recall 1 (second), of different references */
    const test_segment segment = {"a b x", {"a b c d", "x"}, NULL};
    test_fill(&c, &segment, 1);
    const double b = 1.2 * 1.2, p = 2.0 / 3;
    assert_near(test_score(&c.corpus, SD_METRIC_COCO_ROUGEL, NULL), (1 + b) * p / (1 + b * p));
    assert_near(test_one(SD_METRIC_COCO_ROUGEL, "", ""), 1); /* its tools see one empty word on both sides */
    /* one segment: every n-gram is in every segment, so nothing has weight */
    assert_near(test_one(SD_METRIC_CIDER, "a b c d", "a b c d"), 0);
    const test_segment pair[] = {{"a b c d", {"a b c d"}, NULL}, {"x", {"w y z v"}, NULL}};
    test_fill(&c, pair, 2);
    assert_near(test_score(&c.corpus, SD_METRIC_CIDER, NULL), 5); /* 10 and 0 */
}

static void test_nist(void **state)
{
    (void)state;
    /* references "a b a c": 4 words; a: log2(4/2) = 1, b and c: 2, "a b" and "a c": 1, "b a": 0, ... */
    /* text "a b": order 1 (1 + 2) / 2, order 2 1 / 1; length 2 of 4 */
    const double penalty = exp(log(0.5) / pow(log(1.5), 2) * pow(log(2.0 * 5 / (4 * 5)), 2));
    assert_near(test_one(SD_METRIC_NIST, "a b", "a b a c"), (1.5 + 1) * penalty);
    assert_near(test_one(SD_METRIC_NIST, "", "a"), 0);
    assert_near(test_one(SD_METRIC_NIST, "a", ""), 0);
    assert_near(test_one(SD_METRIC_NIST_MTEVAL, "a b", "a b a c"), (1.5 + 1) * penalty);
    /* "a a b" and "b": 4 words; a: 1, b: 1; "a a" and "a b": log2(2/1) = 1, "a a b": log2(1) = 0. Text "a b b": the
     * best single reference gives 2/3 for order 1; together too, b being said once; lengths 3 and (3 + 1) / 2 */
    test_corpus c;
    const test_segment segment = {"a b b", {"a a b", "b"}, NULL};
    test_fill(&c, &segment, 1);
    assert_near(test_score(&c.corpus, SD_METRIC_NIST_MTEVAL, NULL), 2.0 / 3 + 1.0 / 2);
    const test_segment shorter = {"a b", {"a x y z", "w b"}, NULL}; /* words of both count; length 2 of 3 halves */
    test_fill(&c, &shorter, 1);
    assert_near(test_score(&c.corpus, SD_METRIC_NIST_MTEVAL, NULL), log2(6) / 2);
}

static void test_slots(void **state)
{
    (void)state;
    test_corpus c;
    const char *source = "name[Blue Spice], eatType[pub], priceRange[high], familyFriendly[no], "
                         "near[Caf\xC3\xA9 Sicilia]\n";
    const test_segment segment = {"BLUE SPICE is a pub near caf\xC3\xA9 sicilia, not for children.", {"x"}, source};
    test_fill(&c, &segment, 1);
    assert_near(test_score(&c.corpus, SD_METRIC_SLOTS, NULL), 4.0 / 5); /* all but the price */
    assert_near(test_score(&c.corpus, SD_METRIC_SLOTS_COPY, NULL), 3.0 / 3);
    const test_segment none = {"text", {"x"}, "no slots [] here"};
    sd_stats stats;
    sd_error err = {0};
    const sd_metric_options usual = {0};
    test_fill(&c, &none, 1);
    sd_assert_fails(sd_stats_make(&stats, SD_METRIC_SLOTS, &usual, &c.corpus, &err), SD_ERR_ARG, &err, "no source");
    c.corpus.sources = NULL;
    sd_assert_fails(sd_stats_make(&stats, SD_METRIC_SLOTS, &usual, &c.corpus, &err), SD_ERR_ARG, &err, "references");
}

static void test_repetition(void **state)
{
    (void)state;
    assert_near(test_one(SD_METRIC_REPETITION, "a b c d a b c d", "x"), 1.0 / 5);
    assert_near(test_one(SD_METRIC_REPETITION, "a a a a a a", "x"), 2.0 / 3);
    assert_near(test_one(SD_METRIC_REPETITION, "a b c", "x"), 0);
}

/* A long text takes no quadratic time, and a table that would be too large is an error. */
static void test_long(void **state)
{
    (void)state;
    enum { WORDS = 100000 };
    sd_buf a = {0}, b = {0};
    for (int i = 0; i < WORDS; i++) {
        sd_buf_printf(&a, "w%d ", i % 977);
        sd_buf_printf(&b, "w%d ", (i + 3) % 977);
    }
    assert_near(test_one(SD_METRIC_ROUGEL, a.data, b.data), (WORDS - 3.0) / WORDS);
    assert_true(test_one(SD_METRIC_BLEU, a.data, b.data) > 99);
    assert_true(test_one(SD_METRIC_CHRFPP, a.data, b.data) > 99);
    test_corpus c;
    sd_stats stats;
    sd_error err = {0};
    const sd_metric_options usual = {0};
    const test_segment segment = {a.data, {b.data}, NULL};
    test_fill(&c, &segment, 1);
    sd_assert_fails(sd_stats_make(&stats, SD_METRIC_ROUGELSUM, &usual, &c.corpus, &err), SD_ERR_LIMIT, &err,
                    "segment 0: rougeLsum of sentences with 100000 and 100000 words");
    sd_buf_free(&a);
    sd_buf_free(&b);
}

/* Whichever allocation fails, the error says so and nothing leaks (the sanitizers look). */
static void test_memory(void **state)
{
    (void)state;
    test_corpus c;
    const test_segment segments[] = {{"The cat's 3 mats.\nRunning", {"the dog ran", "a cat"}, "name[cat]"},
                                     {"", {"\xE5\x8C\x97 x"}, "near[x]"}};
    test_fill(&c, segments, 2);
    for (int metric = 0; metric < SD_N_METRICS; metric++) {
        int rc = SD_ERR_MEMORY;
        for (long n = 1; rc != SD_OK; n++) {
            const sd_metric_options options = {.tokenize = SD_TOKENS_INTL, .lowercase = true, .stem = true};
            sd_stats stats;
            sd_error err = {0};
            sd_alloc_fail_at(n);
            rc = sd_stats_make(&stats, (sd_metric)metric, &options, &c.corpus, &err);
            const long tried = sd_alloc_count();
            sd_alloc_fail_at(0);
            if (rc == SD_OK) {
                assert_true(tried < n && n > 2);
                sd_stats_free(&stats);
            } else {
                sd_assert_fails(rc, SD_ERR_MEMORY, &err, "out of memory");
            }
        }
    }
}

/* ---- bootstrap ---- */

static void draw_given(void *context, uint32_t *index, size_t n)
{
    static const uint32_t samples[3][3] = {{0, 0, 0}, {1, 1, 2}, {2, 1, 0}};
    int *which = context;
    memcpy(index, samples[(*which)++], n * sizeof *index);
}

static void test_bootstrap(void **state)
{
    (void)state;
    test_corpus c;
    sd_stats stats;
    sd_error err = {0};
    const sd_metric_options usual = {0};
    const test_segment segments[] = {{"a b", {"a b"}, NULL}, {"a", {"b"}, NULL}, {"a b", {"a c"}, NULL}};
    test_fill(&c, segments, 3);
    sd_assert_ok(sd_stats_make(&stats, SD_METRIC_ROUGE1, &usual, &c.corpus, &err), &err);
    const sd_stats *list[] = {&stats, &stats};
    int which = 0;
    const sd_draw draw = {draw_given, &which};
    double scores[2 * 3];
    sd_assert_ok(sd_bootstrap(scores, list, 2, 3, 0, &draw, &err), &err);
    assert_near(scores[0], 1);
    assert_near(scores[1], 0.5 / 3);
    assert_near(scores[2], 0.5);
    assert_memory_equal(scores, scores + 3, 3 * sizeof *scores);
    /* seeded: the same seed, the same samples; another one, others */
    double a[200], b[200];
    sd_assert_ok(sd_bootstrap(a, list, 1, 200, 7, NULL, &err), &err);
    sd_assert_ok(sd_bootstrap(b, list, 1, 200, 7, NULL, &err), &err);
    assert_memory_equal(a, b, sizeof a);
    sd_assert_ok(sd_bootstrap(b, list, 1, 200, 8, NULL, &err), &err);
    assert_memory_not_equal(a, b, sizeof a);
    double mean = 0;
    for (int i = 0; i < 200; i++) {
        mean += a[i] / 200;
    }
    assert_true(fabs(mean - 0.5) < 0.06); /* sd of one sample 0.24, of the mean 0.017 */
    sd_stats_free(&stats);
}

static void test_interval(void **state)
{
    (void)state;
    double scores[80];
    sd_interval interval;
    sd_error err = {0};
    for (int i = 0; i < 80; i++) {
        scores[i] = (i * 37) % 80; /* 0 .. 79 in some order */
    }
    sd_assert_ok(sd_bootstrap_interval(&interval, scores, 80, &err), &err);
    assert_near(interval.mean, 39.5);
    assert_near(interval.low, 2); /* 80 / 40 are cut off */
    assert_near(interval.high, 77);
    assert_near(interval.half, 37.5);
    assert_near(scores[1], 37); /* left as they were */
    /* |a - b| is 1, 2, 3, 6, mean 3: 3 is more than 2 above it, once in four */
    const double x[] = {1, 2, 3, 6}, y[] = {0, 4, 6, 0};
    assert_near(sd_bootstrap_p(x, y, 4, -2), (1 + 1.0) / 5);
    assert_near(sd_bootstrap_p(x, y, 4, 3.5), 1.0 / 5);
    assert_near(sd_bootstrap_p(x, x, 4, 0), 1);
}

static void test_names(void **state)
{
    (void)state;
    for (int i = 0; i < SD_N_METRICS; i++) {
        sd_metric metric;
        const char *name = sd_metric_name((sd_metric)i);
        assert_true(sd_metric_find(name, strlen(name), &metric));
        assert_int_equal(metric, i);
        assert_false(sd_metric_find(name, strlen(name) - 1, &metric) && (int)metric == i);
        assert_true(strlen(sd_metric_about((sd_metric)i)) > 5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bleu),      cmocka_unit_test(test_bleu_references), cmocka_unit_test(test_chrf),
        cmocka_unit_test(test_rouge),     cmocka_unit_test(test_coco),            cmocka_unit_test(test_nist),
        cmocka_unit_test(test_slots),     cmocka_unit_test(test_repetition),      cmocka_unit_test(test_long),
        cmocka_unit_test(test_memory),    cmocka_unit_test(test_bootstrap),       cmocka_unit_test(test_interval),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
