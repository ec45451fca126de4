/* SPDX-License-Identifier: MIT
 *
 * NIST: Doddington, "Automatic evaluation of machine translation quality using n-gram co-occurrence statistics", 2002,
 * as NLTK's corpus_nist computes it: for each order of a segment the reference with the best precision counts, and its
 * length too. A segment's numbers: information matched of order 1..5, n-grams of order 1..5, lengths of those
 * references, length of the text once for each order. mteval's own way is the second: an n-gram counts as often as any
 * reference has it, and the length is the references' mean; scores are higher where there are several. */
#include <math.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/eval/metrics.h"

enum { ORDER = 5 };

/* Counts every n-gram of all references; then weight[n-gram] is what it says given its beginning, in bits. */
int sd_prepare_nist(sd_scoring *s, sd_error *err)
{
    int rc = sd_prepare_words(s, err);
    for (size_t pass = 0; rc == SD_OK && pass < 2; pass++) { /* first to number them, then to count */
        if (pass == 1) {
            s->n_weights = s->grams.n + 1;
            s->frequency = sd_calloc(s->n_weights, sizeof *s->frequency);
            s->weight = sd_calloc(s->n_weights, sizeof *s->weight);
            s->most = sd_calloc(s->n_weights, sizeof *s->most);
            rc = s->frequency && s->weight && s->most
                     ? SD_OK : sd_fail_memory(err, s->n_weights * sizeof *s->weight, "n-grams");
        }
        for (size_t r = 0; rc == SD_OK && r < s->refs.n; r++) {
            sd_bag_fill(&s->ref, &s->grams, sd_sequence_at(&s->refs, r), sd_sequence_len(&s->refs, r), 1, ORDER);
            for (size_t k = 0; pass == 1 && k < s->ref.n; k++) {
                s->frequency[s->ref.items[k].gram] += s->ref.items[k].count;
            }
        }
        rc = rc == SD_OK ? sd_scoring_memory(s, err) : rc;
    }
    for (size_t g = 1; rc == SD_OK && g < s->n_weights; g++) {
        const uint32_t prefix = s->grams.gram[g].prefix;
        const double before = prefix ? (double)s->frequency[prefix] : (double)s->refs.n_items;
        s->weight[g] = log2(before / (double)s->frequency[g]);
    }
    return rc;
}

int sd_nist_segment(sd_scoring *s, size_t i, double *v, sd_error *err)
{
    double best[ORDER], ref_len[ORDER];
    bool any = false;
    sd_bag_fill(&s->hyp, &s->grams, sd_sequence_at(&s->hyps, i), sd_sequence_len(&s->hyps, i), 1, ORDER);
    for (size_t k = 0; k < s->hyp.n; k++) {
        v[ORDER + s->hyp.items[k].order - 1] += s->hyp.items[k].count;
    }
    for (size_t r = s->corpus->first[i]; r < s->corpus->first[i + 1]; r++, any = true) {
        double information[ORDER] = {0};
        const double len = (double)sd_sequence_len(&s->refs, r);
        sd_bag_fill(&s->ref, &s->grams, sd_sequence_at(&s->refs, r), sd_sequence_len(&s->refs, r), 1, ORDER);
        sd_bag_mark(&s->ref, &s->grams);
        for (size_t k = 0; k < s->hyp.n; k++) {
            const sd_counted *c = &s->hyp.items[k];
            const uint32_t there = s->grams.gram[c->gram].count;
            if (there > 0) {
                information[c->order - 1] += s->weight[c->gram] * (c->count < there ? c->count : there);
            }
        }
        sd_bag_unmark(&s->ref, &s->grams);
        for (int k = 0; k < ORDER; k++) {
            if (!any || information[k] > best[k] || (information[k] == best[k] && len > ref_len[k])) {
                best[k] = information[k];
                ref_len[k] = len;
            }
        }
    }
    for (int k = 0; any && k < ORDER; k++) {
        v[k] = best[k];
        v[2 * ORDER] += ref_len[k];
        v[2 * ORDER + 1] += (double)sd_sequence_len(&s->hyps, i);
    }
    return sd_scoring_memory(s, err);
}

int sd_nist_mteval_segment(sd_scoring *s, size_t i, double *v, sd_error *err)
{
    const size_t first = s->corpus->first[i], end = s->corpus->first[i + 1];
    double ref_len = 0;
    for (size_t r = first; r < end; r++) {
        sd_bag_fill(&s->ref, &s->grams, sd_sequence_at(&s->refs, r), sd_sequence_len(&s->refs, r), 1, ORDER);
        ref_len += (double)sd_sequence_len(&s->refs, r) / (double)(end - first);
        for (size_t k = 0; k < s->ref.n; k++) {
            uint32_t *most = &s->most[s->ref.items[k].gram];
            *most = s->ref.items[k].count > *most ? s->ref.items[k].count : *most;
        }
    }
    sd_bag_fill(&s->hyp, &s->grams, sd_sequence_at(&s->hyps, i), sd_sequence_len(&s->hyps, i), 1, ORDER);
    for (size_t k = 0; k < s->hyp.n; k++) {
        const sd_counted *c = &s->hyp.items[k];
        const uint32_t most = c->gram < s->n_weights ? s->most[c->gram] : 0; /* later ones are in no reference */
        v[c->order - 1] += most > 0 ? s->weight[c->gram] * (c->count < most ? c->count : most) : 0;
        v[ORDER + c->order - 1] += c->count;
    }
    for (size_t r = first; r < end; r++) {
        sd_bag_fill(&s->ref, &s->grams, sd_sequence_at(&s->refs, r), sd_sequence_len(&s->refs, r), 1, ORDER);
        for (size_t k = 0; k < s->ref.n; k++) {
            s->most[s->ref.items[k].gram] = 0;
        }
    }
    v[2 * ORDER] = ref_len;
    v[2 * ORDER + 1] = (double)sd_sequence_len(&s->hyps, i);
    return sd_scoring_memory(s, err);
}

double sd_nist_score(const double *v, bool single)
{
    (void)single;
    const double ref_len = v[2 * ORDER], hyp_len = v[2 * ORDER + 1];
    const double ratio = ref_len > 0 ? hyp_len / ref_len : 0;
    double sum = 0, penalty = ratio < 1 ? 0 : 1;
    for (int k = 0; k < ORDER; k++) {
        sum += v[ORDER + k] > 0 ? v[k] / v[ORDER + k] : 0;
    }
    if (ratio > 0 && ratio < 1) { /* such that a text of 2/3 of the length counts half */
        penalty = exp(log(0.5) / (log(1.5) * log(1.5)) * log(ratio) * log(ratio));
    }
    return sum * penalty;
}
