/* SPDX-License-Identifier: MIT
 *
 * Small corpora for the tests of scores. */
#ifndef SD_TESTS_UNIT_EVAL_CORPUS_H
#define SD_TESTS_UNIT_EVAL_CORPUS_H

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/eval/score.h"
#include "tests/support/support.h"

enum { TEST_MOST = 16 };

typedef struct test_segment {
    const char *hyp, *refs[4]; /* up to a NULL */
    const char *source;
} test_segment;

typedef struct test_corpus {
    sd_str hyps[TEST_MOST], refs[4 * TEST_MOST], sources[TEST_MOST];
    size_t first[TEST_MOST + 1];
    sd_corpus corpus;
} test_corpus;

static inline sd_str test_str(const char *text) { return (sd_str){text, strlen(text)}; }

/* The corpus points into *c, which must stay where it is. */
static inline void test_fill(test_corpus *c, const test_segment *segments, size_t n)
{
    memset(c, 0, sizeof *c);
    for (size_t i = 0; i < n; i++) {
        c->hyps[i] = test_str(segments[i].hyp);
        c->sources[i] = test_str(segments[i].source ? segments[i].source : "");
        c->first[i + 1] = c->first[i];
        for (size_t r = 0; r < 4 && segments[i].refs[r]; r++) {
            c->refs[c->first[i + 1]++] = test_str(segments[i].refs[r]);
        }
    }
    c->corpus = (sd_corpus){n, c->hyps, c->first, c->refs, segments[0].source ? c->sources : NULL};
}

static inline double test_score(const sd_corpus *corpus, sd_metric metric, const sd_metric_options *options)
{
    const sd_metric_options usual = {0};
    sd_stats stats;
    sd_error err = {0};
    sd_assert_ok(sd_stats_make(&stats, metric, options ? options : &usual, corpus, &err), &err);
    const double score = sd_stats_corpus(&stats);
    sd_stats_free(&stats);
    return score;
}

/* The score of one text. */
static inline double test_one(sd_metric metric, const char *hyp, const char *ref)
{
    test_corpus c;
    const test_segment segment = {.hyp = hyp, .refs = {ref}};
    test_fill(&c, &segment, 1);
    return test_score(&c.corpus, metric, NULL);
}

#define assert_near(got, want)                                                                                         \
    do {                                                                                                               \
        const double got_ = (got), want_ = (want);                                                                     \
        if (!(fabs(got_ - want_) <= 1e-9)) {                                                                           \
            fail_msg("%s is %.12g; expected %.12g", #got, got_, want_);                                                \
        }                                                                                                              \
    } while (0)

#endif
