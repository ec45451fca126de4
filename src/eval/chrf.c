/* SPDX-License-Identifier: MIT
 *
 * chrF: Popovic, "chrF: character n-gram F-score for automatic MT evaluation", 2015, and chrF++, 2017, as sacrebleu
 * computes them: of several references the one with the best F-score of the segment counts. A segment's numbers: for
 * each order n-grams of the text, of the reference, and matches. */
#include <string.h>

#include "src/eval/metrics.h"

enum { CHARS = 6, WORDS = 2, BETA = 2 };

static double f_score(const double *v, int orders)
{
    const double factor = BETA * BETA;
    double precision = 0, recall = 0;
    int effective = 0;
    for (int k = 0; k < orders; k++) {
        const double hyp = v[3 * k], ref = v[3 * k + 1], match = v[3 * k + 2];
        if (hyp > 0 && ref > 0) {
            precision += match / hyp;
            recall += match / ref;
            effective++;
        }
    }
    if (effective == 0 || precision + recall <= 0) {
        return 0;
    }
    precision /= effective;
    recall /= effective;
    return 100 * (1 + factor) * precision * recall / (factor * precision + recall);
}

double sd_chrf_score(const double *v, bool single)
{
    (void)single;
    return f_score(v, CHARS);
}

double sd_chrfpp_score(const double *v, bool single)
{
    (void)single;
    return f_score(v, CHARS + WORDS);
}

int sd_prepare_chrf(sd_scoring *s, sd_error *err)
{
    return sd_scoring_cut(s, SD_TOKENS_CHARS, s->options->lowercase, &s->hyps, &s->refs, err);
}

int sd_prepare_chrfpp(sd_scoring *s, sd_error *err)
{
    int rc = sd_prepare_chrf(s, err);
    return rc == SD_OK ? sd_scoring_cut(s, SD_TOKENS_CHRF_WORDS, s->options->lowercase, &s->hyp_words, &s->ref_words,
                                        err)
                       : rc;
}

/* Counts of one text against one reference, orders 1 .. highest, three numbers each. */
static void match(sd_scoring *s, const sd_sequences *hyps, size_t i, const sd_sequences *refs, size_t r, int highest,
                  double *v)
{
    sd_grams_clear(&s->grams);
    sd_bag_fill(&s->ref, &s->grams, sd_sequence_at(refs, r), sd_sequence_len(refs, r), 1, highest);
    sd_bag_fill(&s->hyp, &s->grams, sd_sequence_at(hyps, i), sd_sequence_len(hyps, i), 1, highest);
    for (size_t k = 0; k < s->ref.n; k++) {
        v[3 * (s->ref.items[k].order - 1) + 1] += s->ref.items[k].count;
    }
    sd_bag_mark(&s->ref, &s->grams);
    for (size_t k = 0; k < s->hyp.n; k++) {
        const sd_counted *c = &s->hyp.items[k];
        const uint32_t there = s->grams.gram[c->gram].count;
        double *order = v + 3 * (c->order - 1);
        order[0] += order[1] > 0 ? c->count : 0; /* nothing is counted against a reference that has no such n-gram */
        order[2] += c->count < there ? c->count : there;
    }
    sd_bag_unmark(&s->ref, &s->grams);
}

int sd_chrf_segment(sd_scoring *s, size_t i, double *v, sd_error *err)
{
    const bool words = s->metric == SD_METRIC_CHRFPP;
    const int orders = words ? CHARS + WORDS : CHARS;
    double best = -1;
    for (size_t r = s->corpus->first[i]; r < s->corpus->first[i + 1]; r++) {
        double counts[3 * (CHARS + WORDS)] = {0};
        match(s, &s->hyps, i, &s->refs, r, CHARS, counts);
        if (words) {
            match(s, &s->hyp_words, i, &s->ref_words, r, WORDS, counts + 3 * CHARS);
        }
        const double score = f_score(counts, orders);
        if (score > best) {
            best = score;
            memcpy(v, counts, 3 * (size_t)orders * sizeof *v);
        }
    }
    return sd_scoring_memory(s, err);
}
