/* SPDX-License-Identifier: MIT
 *
 * The scores of 1,000 texts and their corpus as sacrebleu, rouge-score, NLTK and pycocoevalcap give them, kept in
 * tests/fixtures/metrics by tests/parity/metrics_oracle.py; and what sacrebleu makes of given samples. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/file.h"
#include "src/eval/score.h"
#include "tests/support/support.h"

#define FOLDER "tests/fixtures/metrics/"

enum { SEGMENTS = 1000 };

static json_t *expected, *texts, *others, *references; /* lists of lines but for the first */
static sd_str hyps[SEGMENTS], other_hyps[SEGMENTS], refs[8 * SEGMENTS];
static size_t first[SEGMENTS + 1];
static const sd_corpus corpus = {SEGMENTS, hyps, first, refs, NULL};
static size_t compared;

static json_t *load_lines(const char *path)
{
    sd_file file;
    sd_error err = {0};
    sd_assert_ok(sd_file_open(&file, path, false, &err), &err);
    json_t *list = json_array();
    const char *text = (const char *)file.data;
    for (size_t at = 0; at < file.size;) {
        const char *newline = memchr(text + at, '\n', file.size - at);
        assert_non_null(newline);
        json_t *line = json_loadb(text + at, (size_t)(newline - text) - at, 0, NULL);
        assert_non_null(line);
        json_array_append_new(list, line);
        at = (size_t)(newline - text) + 1;
    }
    sd_file_close(&file);
    return list;
}

static sd_str string_of(const json_t *value)
{
    assert_true(json_is_string(value));
    return (sd_str){json_string_value(value), json_string_length(value)};
}

static int load(void **state)
{
    (void)state;
    expected = json_load_file(FOLDER "expected.json", 0, NULL);
    texts = load_lines(FOLDER "texts.jsonl");
    others = load_lines(FOLDER "other.jsonl");
    references = load_lines(FOLDER "references.jsonl");
    assert_non_null(expected);
    assert_int_equal(json_array_size(texts), SEGMENTS);
    assert_int_equal(json_array_size(references), SEGMENTS);
    for (size_t i = 0; i < SEGMENTS; i++) {
        const json_t *list = json_object_get(json_array_get(references, i), "references");
        hyps[i] = string_of(json_object_get(json_array_get(texts, i), "text"));
        first[i + 1] = first[i] + json_array_size(list);
        assert_true(first[i + 1] <= sizeof refs / sizeof *refs);
        for (size_t r = 0; r < json_array_size(list); r++) {
            refs[first[i] + r] = string_of(json_array_get(list, r));
        }
    }
    for (size_t i = 0; i < json_array_size(others); i++) {
        other_hyps[i] = string_of(json_object_get(json_array_get(others, i), "text"));
    }
    return 0;
}

static int unload(void **state)
{
    (void)state;
    json_decref(expected);
    json_decref(texts);
    json_decref(others);
    json_decref(references);
    return 0;
}

static void compare(double got, const json_t *want, const char *metric, long segment)
{
    assert_true(json_is_number(want));
    if (!(fabs(got - json_number_value(want)) <= 1e-6)) {
        fail_msg("%s of segment %ld (-1: of all): %.9g; the reference tool has %.9g", metric, segment, got,
                 json_number_value(want));
    }
    compared++;
}

static sd_metric_options options_of(const json_t *list)
{
    sd_metric_options o = {0};
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *word = json_string_value(json_array_get(list, i));
        o.stem = o.stem || strcmp(word, "--stem") == 0;
        o.lowercase = o.lowercase || strcmp(word, "--lowercase") == 0;
        o.tokenize = strcmp(word, "intl") == 0   ? SD_TOKENS_INTL
                   : strcmp(word, "none") == 0 ? SD_TOKENS_NONE
                                               : o.tokenize;
    }
    return o;
}

static void test_scores(void **state)
{
    (void)state;
    size_t i;
    json_t *test, *want;
    const char *name;
    compared = 0;
    json_array_foreach(json_object_get(expected, "scores"), i, test) {
        const sd_metric_options options = options_of(json_object_get(test, "options"));
        json_object_foreach(json_object_get(test, "corpus"), name, want) {
            const json_t *segments = json_object_get(json_object_get(test, "segments"), name);
            sd_metric metric;
            sd_stats stats;
            sd_error err = {0};
            assert_true(sd_metric_find(name, strlen(name), &metric));
            sd_assert_ok(sd_stats_make(&stats, metric, &options, &corpus, &err), &err);
            compare(sd_stats_corpus(&stats), want, name, -1);
            for (size_t k = 0; k < json_array_size(segments); k++) {
                compare(sd_stats_segment(&stats, k), json_array_get(segments, k), name, (long)k);
            }
            sd_stats_free(&stats);
        }
    }
    printf("%zu scores\n", compared);
    assert_true(compared >= 18000);
}

static void test_stems(void **state)
{
    (void)state;
    const char *word;
    json_t *want;
    size_t n = 0;
    json_object_foreach(json_object_get(expected, "stems"), word, want) {
        char stem[64];
        (void)snprintf(stem, sizeof stem, "%s", word);
        stem[sd_porter_stem(stem, strlen(stem))] = '\0';
        assert_string_equal(stem, json_string_value(want));
        n++;
    }
    assert_true(n >= 900);
}

/* ---- bootstrap ---- */

static void draw_listed(void *context, uint32_t *index, size_t n)
{
    size_t *next = context;
    const json_t *list = json_object_get(json_object_get(expected, "bootstrap"), "index");
    const json_t *sample = json_array_get(list, (*next)++);
    for (size_t i = 0; i < n; i++) {
        index[i] = (uint32_t)json_integer_value(json_array_get(sample, i));
    }
}

static void test_bootstrap(void **state)
{
    (void)state;
    const json_t *b = json_object_get(expected, "bootstrap");
    const int n = (int)json_array_size(json_object_get(b, "index"));
    sd_corpus few = corpus;
    few.n = (size_t)json_integer_value(json_object_get(b, "segments"));
    assert_int_equal(few.n, json_array_size(others));
    const char *name;
    json_t *want;
    compared = 0;
    json_object_foreach(json_object_get(b, "metrics"), name, want) {
        const sd_metric_options usual = {0};
        sd_metric metric;
        sd_stats stats[2];
        sd_error err = {0};
        assert_true(sd_metric_find(name, strlen(name), &metric));
        few.hyps = hyps;
        sd_assert_ok(sd_stats_make(&stats[0], metric, &usual, &few, &err), &err);
        few.hyps = other_hyps;
        sd_assert_ok(sd_stats_make(&stats[1], metric, &usual, &few, &err), &err);
        const sd_stats *list[] = {&stats[0], &stats[1]};
        size_t next = 0;
        const sd_draw draw = {draw_listed, &next};
        double *scores = sd_calloc(2 * (size_t)n, sizeof *scores);
        assert_non_null(scores);
        sd_assert_ok(sd_bootstrap(scores, list, 2, n, 0, &draw, &err), &err);
        for (int i = 0; i < n; i++) {
            compare(scores[i], json_array_get(json_object_get(want, "scores"), (size_t)i), name, i);
        }
        sd_interval interval;
        sd_assert_ok(sd_bootstrap_interval(&interval, scores, n, &err), &err);
        compare(interval.mean, json_object_get(want, "mean"), "mean", -1);
        compare(interval.half, json_object_get(want, "half"), "half", -1);
        const double difference = sd_stats_corpus(&stats[0]) - sd_stats_corpus(&stats[1]);
        compare(sd_bootstrap_p(scores, scores + n, n, difference), json_object_get(want, "p"), "p", -1);
        sd_free(scores);
        sd_stats_free(&stats[0]);
        sd_stats_free(&stats[1]);
    }
    assert_int_equal(compared, 2 * (n + 3));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scores),
        cmocka_unit_test(test_stems),
        cmocka_unit_test(test_bootstrap),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
