/* SPDX-License-Identifier: MIT
 *
 * The scores of a system, with what a bootstrap says of them: `score` and `eval` compute and print them alike. */
#ifndef SD_CLI_SCORES_H
#define SD_CLI_SCORES_H

#include "cli/cli.h"
#include "src/eval/score.h"

/* Options in common. */
typedef struct sd_score_flags {
    const char *metrics, *tokenize;
    bool lowercase, stem;
    int bootstrap; /* resamples; 0: none */
    uint64_t seed;
} sd_score_flags;

enum { SD_SCORE_SEED = 12345, SD_SCORE_RESAMPLES = 1000, SD_SCORE_RESAMPLES_MAX = 1000000 };

#define SD_SCORE_OPTIONS(flags)                                                                                        \
    {"metrics", "LIST", SD_OPTION_STRING, &(flags).metrics,                                                            \
     "of bleu, chrf, chrf++, rouge1, rouge2, rougeL, rougeLsum, nist, nist_mteval, coco_rougeL, cider, slots, "        \
     "slots_copy, repetition; or e2e, all"},                                                                           \
    {"tokenize", "NAME", SD_OPTION_STRING, &(flags).tokenize, "words of BLEU and NIST: 13a (default), intl or none"},  \
    {"lowercase", NULL, SD_OPTION_FLAG, &(flags).lowercase, "BLEU, chrF and NIST without regard to case"},             \
    {"stem", NULL, SD_OPTION_FLAG, &(flags).stem, "ROUGE on Porter's stems"},                                          \
    {"bootstrap-seed", "N", SD_OPTION_UINT64, &(flags).seed, "of the resamples; default 12345"}

typedef struct sd_metrics {
    sd_metric list[SD_N_METRICS];
    int n;
    bool chosen; /* by --metrics; otherwise those that cannot be computed are left out */
    sd_metric_options options;
} sd_metrics;

/* usual: what no --metrics means. */
int sd_metrics_parse(sd_metrics *metrics, const sd_score_flags *flags, const char *usual, sd_error *err);

typedef struct sd_scores { /* start from {0}; release with sd_scores_clear */
    int n;
    sd_stats stats[SD_N_METRICS];
    double score[SD_N_METRICS];
    double *samples;                       /* [n][resamples] */
    int resamples;
    sd_interval interval[SD_N_METRICS];    /* with resamples */
    bool compared;
    double p[SD_N_METRICS];                /* of the difference from the system compared with */
} sd_scores;

/* The metrics that cannot be computed of this corpus go from *metrics, unless they were chosen: an error then. */
int sd_scores_make(sd_scores *scores, sd_metrics *metrics, const sd_corpus *corpus, const sd_score_flags *flags,
                   sd_error *err);
void sd_scores_compare(sd_scores *scores, const sd_scores *base); /* of the same corpus and resamples */
void sd_scores_clear(sd_scores *scores);

/* Adds "bleu", "bleu_ci", "bleu_mean", "bleu_p", "bleu_signature" and so on. False if memory is out. */
bool sd_scores_add_json(const sd_scores *scores, json_t *object);

/* Digits after the point that a score is shown with. */
int sd_metric_digits(sd_metric metric);

#endif
