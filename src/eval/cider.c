/* SPDX-License-Identifier: MIT
 *
 * CIDEr: Vedantam et al., "CIDEr: consensus-based image description evaluation", 2015, as the COCO caption tools
 * compute it, which is the paper's CIDEr-D: n-grams weighed by how few segments have them in a reference, cosine
 * similarity with clipped counts, and a penalty for a difference in length, which they count in pairs of words. */
#include <math.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/eval/metrics.h"

enum { ORDER = 4 };
static const double sigma = 6;

int sd_prepare_coco(sd_scoring *s, sd_error *err)
{
    const bool given = s->options->tokenize == SD_TOKENS_NONE;
    return sd_scoring_cut(s, given ? SD_TOKENS_NONE : SD_TOKENS_PTB, !given, &s->hyps, &s->refs, err);
}

static void fill(sd_scoring *s, sd_bag *bag, const sd_sequences *from, size_t i)
{
    sd_bag_fill(bag, &s->grams, sd_sequence_at(from, i), sd_sequence_len(from, i), 1, ORDER);
}

/* In how many segments a reference has each n-gram. */
static void count_segments(sd_scoring *s, uint32_t *last_seen)
{
    for (size_t i = 0; i < s->corpus->n; i++) {
        for (size_t r = s->corpus->first[i]; r < s->corpus->first[i + 1]; r++) {
            fill(s, &s->ref, &s->refs, r);
            for (size_t k = 0; k < s->ref.n; k++) {
                const uint32_t gram = s->ref.items[k].gram;
                s->frequency[gram] += last_seen[gram] != (uint32_t)i + 1;
                last_seen[gram] = (uint32_t)i + 1;
            }
        }
    }
}

int sd_prepare_cider(sd_scoring *s, sd_error *err)
{
    int rc = sd_prepare_coco(s, err);
    for (size_t i = 0; rc == SD_OK && i < s->hyps.n; i++) {
        fill(s, &s->hyp, &s->hyps, i);
    }
    for (size_t r = 0; rc == SD_OK && r < s->refs.n; r++) {
        fill(s, &s->ref, &s->refs, r);
    }
    rc = rc == SD_OK ? sd_scoring_memory(s, err) : rc;
    if (rc != SD_OK) {
        return rc;
    }
    s->n_weights = s->grams.n + 1;
    s->frequency = sd_calloc(s->n_weights, sizeof *s->frequency);
    s->weight = sd_calloc(s->n_weights, sizeof *s->weight);
    uint32_t *last_seen = sd_calloc(s->n_weights, sizeof *last_seen);
    rc = s->frequency && s->weight && last_seen ? SD_OK
                                                : sd_fail_memory(err, s->n_weights * sizeof *s->weight, "n-grams");
    if (rc == SD_OK) {
        count_segments(s, last_seen);
    }
    for (size_t g = 1; rc == SD_OK && g < s->n_weights; g++) {
        const double frequency = s->frequency[g] > 1 ? (double)s->frequency[g] : 1;
        s->weight[g] = log((double)s->corpus->n) - log(frequency);
    }
    sd_free(last_seen);
    return rc;
}

/* Lengths of the vectors of a bag, by order; *pairs: its pairs of words. */
static void norms(const sd_scoring *s, const sd_bag *bag, double *norm, double *pairs)
{
    *pairs = 0;
    memset(norm, 0, ORDER * sizeof *norm);
    for (size_t k = 0; k < bag->n; k++) {
        const sd_counted *c = &bag->items[k];
        const double x = c->count * s->weight[c->gram];
        norm[c->order - 1] += x * x;
        *pairs += c->order == 2 ? c->count : 0;
    }
    for (int k = 0; k < ORDER; k++) {
        norm[k] = sqrt(norm[k]);
    }
}

int sd_cider_segment(sd_scoring *s, size_t i, double *v, sd_error *err)
{
    double hyp_norm[ORDER], ref_norm[ORDER], hyp_pairs, ref_pairs, sum = 0;
    const size_t first = s->corpus->first[i], end = s->corpus->first[i + 1];
    fill(s, &s->hyp, &s->hyps, i);
    norms(s, &s->hyp, hyp_norm, &hyp_pairs);
    for (size_t r = first; r < end; r++) {
        double product[ORDER] = {0};
        fill(s, &s->ref, &s->refs, r);
        norms(s, &s->ref, ref_norm, &ref_pairs);
        sd_bag_mark(&s->ref, &s->grams);
        for (size_t k = 0; k < s->hyp.n; k++) {
            const sd_counted *c = &s->hyp.items[k];
            const double w = s->weight[c->gram], x = c->count * w, y = s->grams.gram[c->gram].count * w;
            product[c->order - 1] += (x < y ? x : y) * y;
        }
        sd_bag_unmark(&s->ref, &s->grams);
        const double apart = hyp_pairs - ref_pairs;
        for (int k = 0; k < ORDER; k++) {
            const double both = hyp_norm[k] * ref_norm[k];
            sum += (both > 0 ? product[k] / both : product[k]) * exp(-apart * apart / (2 * sigma * sigma));
        }
    }
    v[0] = end > first ? 10 * sum / ORDER / (double)(end - first) : 0;
    v[1] = 1;
    return sd_scoring_memory(s, err);
}
