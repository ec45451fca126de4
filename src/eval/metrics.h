/* SPDX-License-Identifier: MIT
 *
 * Inside of the room: what the metrics share. */
#ifndef SD_EVAL_METRICS_H
#define SD_EVAL_METRICS_H

#include "src/eval/score.h"

/* Everything that one metric needs while it looks at a corpus. */
typedef struct sd_scoring {
    const sd_corpus *corpus;
    const sd_metric_options *options;
    sd_metric metric;
    sd_classes *classes;
    sd_cutter cutter;
    sd_sequences hyps, refs;           /* as `how` cuts them */
    sd_sequences hyp_words, ref_words; /* chrF++ */
    sd_grams grams;
    sd_bag hyp, ref;
    double *weight;     /* [grams.n + 1] NIST: information; CIDEr: inverse document frequency */
    uint32_t *frequency; /* BLEU: most of any reference; NIST: in all references; CIDEr: segments */
    uint32_t *most;      /* mteval's NIST: most of any reference of the segment, else 0 */
    size_t n_weights;
    uint32_t *rows;     /* ROUGE-Lsum: two rows of a table */
    unsigned char *steps; /* ROUGE-Lsum: where each cell of the table came from */
    unsigned char *taken; /* [longest reference] */
    size_t row_cap, step_cap, taken_cap;
    uint64_t *bits;     /* ROUGE-L: [2][words of the first text / 64] */
    uint32_t *heads, *links;
    size_t bits_cap, heads_cap, links_cap;
    sd_buf text, source; /* slots */
    uint32_t *left_hyp, *left_ref; /* ROUGE-Lsum: [lexicon + 1] counts not used up */
} sd_scoring;

/* One row of the table of metrics. */
typedef struct sd_metric_kind {
    const char *name, *about;
    int width;
    bool cost, sources;
    int (*prepare)(sd_scoring *s, sd_error *err); /* NULL: nothing */
    int (*segment)(sd_scoring *s, size_t i, double *values, sd_error *err);
    double (*score)(const double *sums, bool single);
} sd_metric_kind;

/* An array of at least n elements of `size` in place of `block`, which it may be; its contents are lost. NULL, and
 * `block` released, if memory is out. */
void *sd_scoring_room(void *block, size_t *cap, size_t n, size_t size);

int sd_prepare_words(sd_scoring *s, sd_error *err);
int sd_bleu_segment(sd_scoring *s, size_t i, double *values, sd_error *err);
double sd_bleu_score(const double *sums, bool single);
int sd_prepare_chrf(sd_scoring *s, sd_error *err);
int sd_prepare_chrfpp(sd_scoring *s, sd_error *err);
int sd_chrf_segment(sd_scoring *s, size_t i, double *values, sd_error *err);
double sd_chrf_score(const double *sums, bool single);
double sd_chrfpp_score(const double *sums, bool single);
int sd_prepare_rouge(sd_scoring *s, sd_error *err);
int sd_rouge_segment(sd_scoring *s, size_t i, double *values, sd_error *err);
int sd_prepare_nist(sd_scoring *s, sd_error *err);
int sd_nist_segment(sd_scoring *s, size_t i, double *values, sd_error *err);
int sd_nist_mteval_segment(sd_scoring *s, size_t i, double *values, sd_error *err);
double sd_nist_score(const double *sums, bool single);
int sd_prepare_coco(sd_scoring *s, sd_error *err);
int sd_coco_rouge_segment(sd_scoring *s, size_t i, double *values, sd_error *err);
int sd_prepare_cider(sd_scoring *s, sd_error *err);
int sd_cider_segment(sd_scoring *s, size_t i, double *values, sd_error *err);
int sd_slots_segment(sd_scoring *s, size_t i, double *values, sd_error *err);
int sd_repetition_segment(sd_scoring *s, size_t i, double *values, sd_error *err);
double sd_share_score(const double *sums, bool single); /* sums[0] / sums[1]; 0 of nothing */

/* Length of the longest common subsequence of two texts. */
int sd_common_length(sd_scoring *s, const uint32_t *a, size_t n, const uint32_t *b, size_t m, size_t *length,
                     sd_error *err);

/* Cuts all texts. Fails for memory only. */
int sd_scoring_cut(sd_scoring *s, sd_tokenization how, bool lowercase, sd_sequences *hyps, sd_sequences *refs,
                   sd_error *err);
int sd_scoring_memory(const sd_scoring *s, sd_error *err); /* after counting: SD_OK unless memory was out */

#endif
