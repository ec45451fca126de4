/* SPDX-License-Identifier: MIT
 *
 * BLEU: Papineni et al., "BLEU: a method for automatic evaluation of machine translation", 2002, as sacrebleu computes
 * it. A segment's numbers: hyp_len, ref_len, matches of order 1..4, n-grams of order 1..4.
 * And repetition, which counts in the same words. */
#include <math.h>
#include <string.h>

#include "src/eval/metrics.h"

enum { ORDER = 4 };

int sd_prepare_words(sd_scoring *s, sd_error *err)
{
    return sd_scoring_cut(s, s->options->tokenize, s->options->lowercase, &s->hyps, &s->refs, err);
}

int sd_bleu_segment(sd_scoring *s, size_t i, double *v, sd_error *err)
{
    const size_t n = sd_sequence_len(&s->hyps, i);
    size_t closest = 0, distance = SIZE_MAX;
    sd_grams_clear(&s->grams);
    sd_bag_fill(&s->hyp, &s->grams, sd_sequence_at(&s->hyps, i), n, 1, ORDER);
    /* the most often that any reference has it: kept in the n-grams' item of s->frequency */
    s->frequency = sd_scoring_room(s->frequency, &s->n_weights, s->grams.n + 1, sizeof *s->frequency);
    if (!s->frequency) {
        return sd_fail_memory(err, s->grams.n * sizeof *s->frequency, "counting words");
    }
    memset(s->frequency, 0, (s->grams.n + 1) * sizeof *s->frequency);
    const size_t known = s->grams.n;
    for (size_t r = s->corpus->first[i]; r < s->corpus->first[i + 1]; r++) {
        const size_t m = sd_sequence_len(&s->refs, r), apart = m > n ? m - n : n - m;
        if (apart < distance || (apart == distance && m < closest)) {
            distance = apart;
            closest = m;
        }
        sd_bag_fill(&s->ref, &s->grams, sd_sequence_at(&s->refs, r), m, 1, ORDER);
        for (size_t k = 0; k < s->ref.n; k++) {
            const sd_counted *c = &s->ref.items[k];
            if (c->gram <= known && c->count > s->frequency[c->gram]) {
                s->frequency[c->gram] = c->count;
            }
        }
    }
    v[0] = (double)n;
    v[1] = (double)closest;
    for (size_t k = 0; k < s->hyp.n; k++) {
        const sd_counted *c = &s->hyp.items[k];
        const uint32_t most = s->frequency[c->gram];
        v[1 + c->order] += c->count < most ? c->count : most;
        v[1 + ORDER + c->order] += c->count;
    }
    return sd_scoring_memory(s, err);
}

void sd_bleu_split(const double *v, sd_bleu_parts *p)
{
    double smooth = 1;
    *p = (sd_bleu_parts){.hyp_len = v[0], .ref_len = v[1], .brevity = 1};
    if (v[0] < v[1]) {
        p->brevity = v[0] > 0 ? exp(1 - v[1] / v[0]) : 0;
    }
    const bool any = v[2] > 0 || v[3] > 0 || v[4] > 0 || v[5] > 0;
    for (int k = 0; k < ORDER && any && v[2 + ORDER + k] > 0; k++) {
        if (v[2 + k] > 0) {
            p->precisions[k] = 100 * v[2 + k] / v[2 + ORDER + k];
        } else {
            smooth *= 2;
            p->precisions[k] = 100 / (smooth * v[2 + ORDER + k]);
        }
    }
}

double sd_bleu_score(const double *v, bool single)
{
    sd_bleu_parts p;
    sd_bleu_split(v, &p);
    double sum = 0;
    int order = 0;
    while (order < ORDER && p.precisions[order] > 0) {
        sum += log(p.precisions[order++]);
    }
    if (order == 0 || (order < ORDER && !single)) { /* single: the orders that there are, as the text is that short */
        return 0;
    }
    const double score = p.brevity * exp(sum / order);
    return score < 100 ? score : 100; /* rounding must not make more of it */
}

int sd_repetition_segment(sd_scoring *s, size_t i, double *v, sd_error *err)
{
    sd_grams_clear(&s->grams);
    sd_bag_fill(&s->hyp, &s->grams, sd_sequence_at(&s->hyps, i), sd_sequence_len(&s->hyps, i), ORDER, ORDER);
    for (size_t k = 0; k < s->hyp.n; k++) {
        v[0] += s->hyp.items[k].count - 1;
        v[1] += s->hyp.items[k].count;
    }
    return sd_scoring_memory(s, err);
}
