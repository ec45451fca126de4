/* SPDX-License-Identifier: MIT
 *
 * Scores of texts against references. A metric gives every segment a row of sums ("sufficient statistics"); the score
 * of any set of segments is a function of the sums over it. So the corpus, one segment and a bootstrap's resamples all
 * cost additions, once the texts have been looked at. */
#ifndef SD_EVAL_SCORE_H
#define SD_EVAL_SCORE_H

#include <stdbool.h>

#include "src/base/buf.h"
#include "src/base/error.h"
#include "src/eval/corpus.h"
#include "src/eval/tokens.h"

/* In brackets: whose definition it is, to 1e-6, and its range. */
typedef enum sd_metric {
    SD_METRIC_BLEU = 0,   /* order 4, exponential smoothing, closest reference length [sacrebleu; 0..100] */
    SD_METRIC_CHRF,       /* chrF2: characters, order 6, beta 2 [sacrebleu; 0..100] */
    SD_METRIC_CHRFPP,     /* chrF2++: and words, order 2 [sacrebleu; 0..100] */
    SD_METRIC_ROUGE1,     /* F1 of words; of several references the best, mean over segments [rouge-score; 0..1] */
    SD_METRIC_ROUGE2,     /* of pairs of words */
    SD_METRIC_ROUGEL,     /* of the longest common subsequence */
    SD_METRIC_ROUGELSUM,  /* of the union of such, sentence by sentence; a sentence is a line */
    SD_METRIC_NIST,       /* order 5, best reference for each order [NLTK's corpus_nist; 0..about 15] */
    SD_METRIC_NIST_MTEVAL, /* the same with all references together, as mteval-v13a and so the E2E challenge have it */
    SD_METRIC_COCO_ROUGEL, /* recall-weighted, beta 1.2 [pycocoevalcap given its tokens; 0..1] */
    SD_METRIC_CIDER,      /* CIDEr-D [pycocoevalcap given its tokens; 0..10] */
    SD_METRIC_SLOTS,      /* share of the source's slots key[value] that the text says: slots.c; 0..1 */
    SD_METRIC_SLOTS_COPY, /* the same of name, near, food, eatType and area only */
    SD_METRIC_REPETITION, /* share of a text's word 4-grams that it has said before; 0..1 */
    SD_N_METRICS
} sd_metric;

enum { SD_STATS_MAX = 24 }; /* most numbers a segment */

typedef struct sd_metric_options {
    sd_tokenization tokenize; /* 13A, INTL or NONE, of BLEU, NIST and REPETITION. NONE: COCO's texts are tokens too */
    bool lowercase;           /* BLEU, chrF, NIST, REPETITION; ROUGE and COCO always are (but for COCO with NONE) */
    bool stem;                /* ROUGE */
} sd_metric_options;

const char *sd_metric_name(sd_metric metric); /* "bleu", "chrf++" ...; static */
const char *sd_metric_about(sd_metric metric); /* for lists; static */
bool sd_metric_find(const char *name, size_t len, sd_metric *metric);
bool sd_metric_is_cost(sd_metric metric);     /* true if less is better */
bool sd_metric_needs_sources(sd_metric metric);

typedef struct sd_stats { /* release with sd_stats_free */
    sd_metric metric;
    sd_metric_options options;
    size_t n;
    int width;
    int n_refs;     /* references of each segment; -1: their number varies */
    double *values; /* [n][width] */
} sd_stats;

/* Looks at all texts. SD_ERR_ARG if the metric needs sources with slots and there are none. */
int sd_stats_make(sd_stats *stats, sd_metric metric, const sd_metric_options *options, const sd_corpus *corpus,
                  sd_error *err);
void sd_stats_free(sd_stats *stats); /* tolerates {0} */

/* The score of sums [width]. */
double sd_stats_score(const sd_stats *stats, const double *sums);
double sd_stats_corpus(const sd_stats *stats);

/* The score of one segment. BLEU: with effective order, as is usual for single sentences. NIST and CIDEr weigh n-grams
 * by the whole corpus, here and in resamples. */
double sd_stats_segment(const sd_stats *stats, size_t i);

/* Sums over all segments: [width] */
void sd_stats_sums(const sd_stats *stats, double *sums);

/* BLEU's parts, of sums. */
typedef struct sd_bleu_parts {
    double precisions[4]; /* percent */
    double brevity;       /* penalty, 0..1 */
    double hyp_len, ref_len;
} sd_bleu_parts;
void sd_bleu_split(const double *sums, sd_bleu_parts *parts);

/* What has to be said beside a score for it to mean anything: "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp" */
void sd_stats_signature(const sd_stats *stats, sd_buf *out);

/* ---- resampling ---- */

/* Segment numbers 0 .. n-1 of one resample: [n]. For tests that want a known sample. */
typedef struct sd_draw {
    void (*fn)(void *context, uint32_t *index, size_t n);
    void *context;
} sd_draw;

/* Scores of `resamples` samples of the segments with replacement, of several metrics and systems on the same samples:
 * scores[i * resamples + r] is of stats[i], all of which have the same number of segments. draw NULL: xoshiro256** from
 * `seed` (numpy's PCG64, which sacrebleu uses, draws other samples). Fails for memory only. */
int sd_bootstrap(double *scores, const sd_stats *const *stats, int n_stats, int resamples, uint64_t seed,
                 const sd_draw *draw, sd_error *err);

/* The middle 95 % of resampled scores, as sacrebleu has it: 1/40 of the sorted scores is cut off at each end. */
typedef struct sd_interval {
    double mean, half; /* half: half of the width */
    double low, high;
} sd_interval;
int sd_bootstrap_interval(sd_interval *out, const double *scores, int n, sd_error *err);

/* sacrebleu's paired bootstrap: how often the difference of two systems' scores on a sample exceeds its mean by more
 * than the difference seen. a, b: [n] scores on the same samples; difference: of the scores on all segments. No
 * difference has p = 1, where sacrebleu says 1 / (n + 1). */
double sd_bootstrap_p(const double *a, const double *b, int n, double difference);

#endif
