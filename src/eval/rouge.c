/* SPDX-License-Identifier: MIT
 *
 * ROUGE: Lin, "ROUGE: a package for automatic evaluation of summaries", 2004, as rouge-score computes it. A segment's
 * numbers: its best F1, 1. And the ROUGE-L of the COCO caption tools, which weighs recall more. */
#include <string.h>

#include "src/base/alloc.h"
#include "src/eval/metrics.h"

int sd_prepare_rouge(sd_scoring *s, sd_error *err)
{
    const bool stem = s->options->stem, lines = s->metric == SD_METRIC_ROUGELSUM;
    const sd_tokenization how = lines ? (stem ? SD_TOKENS_SENTENCE_STEMS : SD_TOKENS_SENTENCES)
                                      : (stem ? SD_TOKENS_STEMS : SD_TOKENS_ROUGE);
    return sd_scoring_cut(s, how, true, &s->hyps, &s->refs, err);
}

static double f1(double hits, double hyp, double ref)
{
    const double precision = hits / (hyp > 1 ? hyp : 1), recall = hits / (ref > 1 ? ref : 1);
    return precision + recall > 0 ? 2 * precision * recall / (precision + recall) : 0;
}

static double overlap(sd_scoring *s, size_t i, size_t r, int order)
{
    double hits = 0, hyp = 0, ref = 0;
    sd_grams_clear(&s->grams);
    sd_bag_fill(&s->ref, &s->grams, sd_sequence_at(&s->refs, r), sd_sequence_len(&s->refs, r), order, order);
    sd_bag_fill(&s->hyp, &s->grams, sd_sequence_at(&s->hyps, i), sd_sequence_len(&s->hyps, i), order, order);
    for (size_t k = 0; k < s->ref.n; k++) {
        ref += s->ref.items[k].count;
    }
    sd_bag_mark(&s->ref, &s->grams);
    for (size_t k = 0; k < s->hyp.n; k++) {
        const uint32_t said = s->hyp.items[k].count, there = s->grams.gram[s->hyp.items[k].gram].count;
        hyp += said;
        hits += said < there ? said : there;
    }
    sd_bag_unmark(&s->ref, &s->grams);
    return f1(hits, hyp, ref);
}

/* ---- longest common subsequences ---- */

/* Crochemore et al., "A fast and practical bit-vector algorithm for the longest common subsequence problem", 2001: bit
 * i of a row is 0 where the length grows at word i of `a`. A word of `b` costs n / 64 steps and its places in `a`. */
int sd_common_length(sd_scoring *s, const uint32_t *a, size_t n, const uint32_t *b, size_t m, size_t *length,
                     sd_error *err)
{
    const size_t words = n / 64 + 1, items = s->cutter.lexicon.n + 1;
    const size_t heads = s->heads_cap;
    *length = 0;
    s->bits = sd_scoring_room(s->bits, &s->bits_cap, 2 * words, sizeof *s->bits);
    s->links = sd_scoring_room(s->links, &s->links_cap, n + 1, sizeof *s->links);
    s->heads = sd_scoring_room(s->heads, &s->heads_cap, items, sizeof *s->heads);
    if (!s->bits || !s->links || !s->heads) {
        return sd_fail_memory(err, (n + items) * sizeof *s->links, "comparing two texts");
    }
    if (s->heads_cap != heads) {
        memset(s->heads, 0, s->heads_cap * sizeof *s->heads);
    }
    uint64_t *row = s->bits, *places = s->bits + words;
    memset(row, 0xFF, words * sizeof *row);
    memset(places, 0, words * sizeof *places);
    for (size_t i = 0; i < n; i++) { /* where each word stands in a: a list from its last place on, places + 1 */
        s->links[i] = s->heads[a[i]];
        s->heads[a[i]] = (uint32_t)i + 1;
    }
    for (size_t j = 0; j < m; j++) {
        uint64_t carry = 0;
        for (uint32_t at = s->heads[b[j]]; at; at = s->links[at - 1]) {
            places[(at - 1) / 64] |= UINT64_C(1) << ((at - 1) % 64);
        }
        for (size_t w = 0; w < words && s->heads[b[j]]; w++) {
            const uint64_t v = row[w], u = v & places[w], sum = v + u, full = sum + carry;
            carry = (sum < v) | (full < sum);
            row[w] = full | (v & ~places[w]);
            places[w] = 0;
        }
    }
    for (size_t i = 0; i < n; i++) {
        *length += !(row[i / 64] >> (i % 64) & 1);
        s->heads[a[i]] = 0;
    }
    return SD_OK;
}

/* ---- ROUGE-Lsum ---- */

/* Marks in s->taken the words of sentence a that one longest common subsequence with sentence b holds: the one that
 * going back from the ends finds, upwards (to fewer words of a) where both ways are as long. */
static int mark_common(sd_scoring *s, const uint32_t *a, size_t n, const uint32_t *b, size_t m, sd_error *err)
{
    enum { DIAGONAL = 1, LEFT = 2, UP = 3 };
    static const size_t most_cells = (size_t)1 << 31;
    size_t cells;
    if (!sd_mul_size(n + 1, m + 1, &cells) || cells > most_cells) {
        return sd_fail(err, SD_ERR_LIMIT,
                       "rougeLsum of sentences with %zu and %zu words would need a table of more than 2 GiB; leave it "
                       "out or cut the text into lines", n, m);
    }
    s->rows = sd_scoring_room(s->rows, &s->row_cap, 2 * (m + 1), sizeof *s->rows);
    s->steps = sd_scoring_room(s->steps, &s->step_cap, cells, 1);
    if (!s->rows || !s->steps) {
        return sd_fail_memory(err, cells, "comparing two texts");
    }
    uint32_t *before = s->rows, *now = s->rows + m + 1;
    memset(before, 0, (m + 1) * sizeof *before);
    now[0] = 0;
    for (size_t i = 1; i <= n; i++) {
        unsigned char *steps = s->steps + i * (m + 1);
        for (size_t j = 1; j <= m; j++) {
            if (a[i - 1] == b[j - 1]) {
                now[j] = before[j - 1] + 1;
                steps[j] = DIAGONAL;
            } else {
                steps[j] = now[j - 1] > before[j] ? LEFT : UP;
                now[j] = now[j - 1] > before[j] ? now[j - 1] : before[j];
            }
        }
        uint32_t *swap = before;
        before = now;
        now = swap;
    }
    for (size_t i = n, j = m; i > 0 && j > 0;) {
        const unsigned char step = s->steps[i * (m + 1) + j];
        if (step == DIAGONAL) {
            s->taken[i - 1] = 1;
        }
        i -= step != LEFT;
        j -= step != UP;
    }
    return SD_OK;
}

/* The sentence of `items` that starts at *at; moves *at behind its separator. */
static size_t next_sentence(const uint32_t *items, size_t n, size_t *at)
{
    size_t len = 0;
    while (*at + len < n && items[*at + len] != 0) {
        len++;
    }
    *at += len + 1;
    return len;
}

static double count_words(uint32_t *left, const uint32_t *items, size_t n)
{
    double words = 0;
    for (size_t i = 0; i < n; i++) {
        words += items[i] != 0;
        left[items[i]] += items[i] != 0;
    }
    return words;
}

/* Every word of a reference's sentence that is common with any sentence of the text is a hit, but no word more often
 * than both sides have it. */
static int union_hits(sd_scoring *s, const uint32_t *ref, size_t n, const uint32_t *hyp, size_t m, double *hits,
                      sd_error *err)
{
    int rc = SD_OK;
    for (size_t at = 0; rc == SD_OK && at < n;) {
        const uint32_t *sentence = ref + at;
        const size_t len = next_sentence(ref, n, &at);
        memset(s->taken, 0, len);
        for (size_t other = 0; rc == SD_OK && other < m;) {
            const uint32_t *against = hyp + other;
            const size_t other_len = next_sentence(hyp, m, &other);
            rc = mark_common(s, sentence, len, against, other_len, err);
        }
        for (size_t i = 0; rc == SD_OK && i < len; i++) {
            const uint32_t word = sentence[i];
            if (s->taken[i] && s->left_hyp[word] > 0 && s->left_ref[word] > 0) {
                s->left_hyp[word]--;
                s->left_ref[word]--;
                *hits += 1;
            }
        }
    }
    return rc;
}

static int summary(sd_scoring *s, size_t i, size_t r, double *score, sd_error *err)
{
    const uint32_t *hyp = sd_sequence_at(&s->hyps, i), *ref = sd_sequence_at(&s->refs, r);
    const size_t m = sd_sequence_len(&s->hyps, i), n = sd_sequence_len(&s->refs, r);
    const size_t items = s->cutter.lexicon.n + 1;
    *score = 0;
    if (!s->left_hyp) {
        s->left_hyp = sd_calloc(items, sizeof *s->left_hyp);
        s->left_ref = sd_calloc(items, sizeof *s->left_ref);
    }
    s->taken = sd_scoring_room(s->taken, &s->taken_cap, n + 1, 1);
    if (!s->left_hyp || !s->left_ref || !s->taken) {
        return sd_fail_memory(err, items * sizeof *s->left_hyp, "comparing two texts");
    }
    const double hyp_words = count_words(s->left_hyp, hyp, m), ref_words = count_words(s->left_ref, ref, n);
    double hits = 0;
    int rc = hyp_words > 0 && ref_words > 0 ? union_hits(s, ref, n, hyp, m, &hits, err) : SD_OK;
    for (size_t k = 0; k < m; k++) {
        s->left_hyp[hyp[k]] = 0;
    }
    for (size_t k = 0; k < n; k++) {
        s->left_ref[ref[k]] = 0;
    }
    *score = f1(hits, hyp_words, ref_words);
    return rc;
}

static int longest(sd_scoring *s, size_t i, size_t r, double *score, sd_error *err)
{
    const size_t n = sd_sequence_len(&s->refs, r), m = sd_sequence_len(&s->hyps, i);
    size_t common;
    int rc = sd_common_length(s, sd_sequence_at(&s->refs, r), n, sd_sequence_at(&s->hyps, i), m, &common, err);
    *score = f1((double)common, (double)m, (double)n);
    return rc;
}

int sd_rouge_segment(sd_scoring *s, size_t i, double *v, sd_error *err)
{
    v[1] = 1;
    for (size_t r = s->corpus->first[i]; r < s->corpus->first[i + 1]; r++) {
        double score = 0;
        int rc = SD_OK;
        switch (s->metric) {
        case SD_METRIC_ROUGE1: score = overlap(s, i, r, 1); break;
        case SD_METRIC_ROUGE2: score = overlap(s, i, r, 2); break;
        case SD_METRIC_ROUGEL: rc = longest(s, i, r, &score, err); break;
        default: rc = summary(s, i, r, &score, err); break;
        }
        if (rc != SD_OK) {
            return rc;
        }
        v[0] = score > v[0] ? score : v[0];
    }
    return sd_scoring_memory(s, err);
}

/* ---- COCO's ROUGE-L ---- */

/* The best precision and the best recall, of whichever references. Its tools cut at single spaces, so that a text
 * without words is one word, the empty one. */
int sd_coco_rouge_segment(sd_scoring *s, size_t i, double *v, sd_error *err)
{
    static const double beta2 = 1.2 * 1.2;
    const size_t m = sd_sequence_len(&s->hyps, i);
    double precision = 0, recall = 0;
    for (size_t r = s->corpus->first[i]; r < s->corpus->first[i + 1]; r++) {
        const size_t n = sd_sequence_len(&s->refs, r);
        size_t common;
        int rc = sd_common_length(s, sd_sequence_at(&s->refs, r), n, sd_sequence_at(&s->hyps, i), m, &common, err);
        if (rc != SD_OK) {
            return rc;
        }
        const double hits = n == 0 && m == 0 ? 1 : (double)common;
        const double p = hits / (double)(m ? m : 1), q = hits / (double)(n ? n : 1);
        precision = p > precision ? p : precision;
        recall = q > recall ? q : recall;
    }
    v[0] = precision > 0 && recall > 0 ? (1 + beta2) * precision * recall / (recall + beta2 * precision) : 0;
    v[1] = 1;
    return SD_OK;
}
