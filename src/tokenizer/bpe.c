/* SPDX-License-Identifier: MIT
 *
 * Two ways to the same result. A short piece, which almost all are, sits in two small arrays that are scanned for the
 * lowest rank: quadratic, but in a cache line or two. A long one (a line of Chinese, a wall of "aaaa") is a linked list
 * with a heap of its pairs: n log n. */
#include "src/tokenizer/bpe.h"

#include <string.h>

#include "src/base/alloc.h"

enum { SHORT_PIECE = 32, NO_SYMBOL = -1 };

static int put_short(const sd_vocab *vocab, const char *piece, size_t len, sd_id_sink *sink)
{
    int32_t ids[SHORT_PIECE];
    uint32_t ranks[SHORT_PIECE]; /* of the pair (i, i + 1) */
    size_t n = len;
    for (size_t i = 0; i < n; i++) {
        ids[i] = vocab->byte_ids[(unsigned char)piece[i]];
    }
    for (size_t i = 0; i + 1 < n; i++) {
        ranks[i] = sd_vocab_rank(vocab, ids[i], ids[i + 1]);
    }
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++) {
            best = ranks[i] < ranks[best] ? i : best;
        }
        if (ranks[best] == SD_MAP_NONE) {
            break;
        }
        ids[best] = vocab->merged[ranks[best]];
        n--;
        for (size_t i = best + 1; i < n; i++) {
            ids[i] = ids[i + 1];
            ranks[i - 1] = ranks[i];
        }
        if (best > 0) {
            ranks[best - 1] = sd_vocab_rank(vocab, ids[best - 1], ids[best]);
        }
        if (best + 1 < n) {
            ranks[best] = sd_vocab_rank(vocab, ids[best], ids[best + 1]);
        }
    }
    for (size_t i = 0; i < n; i++) {
        sd_id_put(sink, ids[i]);
    }
    return SD_OK;
}

/* ---- long pieces ---- */

typedef struct sd_bpe_symbol {
    int32_t id;
    int32_t prev, next; /* NO_SYMBOL at the ends */
    uint32_t rank;      /* of the pair (this, next); SD_MAP_NONE: does not merge, or this symbol was merged away */
} sd_bpe_symbol;

/* The heap orders by rank, then by position: rank << 32 | index of the left symbol. An entry is not removed when its
 * pair changes; it is stale, and passed over, when the symbol's rank is no longer the entry's. */
static void sift_down(uint64_t *heap, size_t n, size_t i)
{
    uint64_t entry = heap[i];
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        child += child + 1 < n && heap[child + 1] < heap[child];
        if (heap[child] >= entry) {
            break;
        }
        heap[i] = heap[child];
    }
    heap[i] = entry;
}

static void sift_up(uint64_t *heap, size_t i)
{
    uint64_t entry = heap[i];
    for (; i > 0 && heap[(i - 1) / 2] > entry; i = (i - 1) / 2) {
        heap[i] = heap[(i - 1) / 2];
    }
    heap[i] = entry;
}

/* Makes the pair that starts at `left` anew and puts it on the heap if it merges. */
static void renew_pair(sd_bpe *bpe, const sd_vocab *vocab, int32_t left, size_t *n_heap)
{
    sd_bpe_symbol *s = &bpe->symbols[left];
    s->rank = s->next == NO_SYMBOL ? SD_MAP_NONE : sd_vocab_rank(vocab, s->id, bpe->symbols[s->next].id);
    if (s->rank != SD_MAP_NONE) {
        bpe->heap[*n_heap] = (uint64_t)s->rank << 32 | (uint32_t)left;
        sift_up(bpe->heap, (*n_heap)++);
    }
}

static size_t start_heap(sd_bpe *bpe, const sd_vocab *vocab, const char *piece, int32_t n)
{
    sd_bpe_symbol *symbols = bpe->symbols;
    size_t n_heap = 0;
    for (int32_t i = 0; i < n; i++) {
        symbols[i] = (sd_bpe_symbol){vocab->byte_ids[(unsigned char)piece[i]], i - 1, i + 1 < n ? i + 1 : NO_SYMBOL,
                                     SD_MAP_NONE};
    }
    for (int32_t i = 0; i + 1 < n; i++) {
        symbols[i].rank = sd_vocab_rank(vocab, symbols[i].id, symbols[i + 1].id);
        if (symbols[i].rank != SD_MAP_NONE) {
            bpe->heap[n_heap++] = (uint64_t)symbols[i].rank << 32 | (uint32_t)i;
        }
    }
    for (size_t i = n_heap / 2; i-- > 0;) {
        sift_down(bpe->heap, n_heap, i);
    }
    return n_heap;
}

static void merge_by_heap(sd_bpe *bpe, const sd_vocab *vocab, size_t n_heap)
{
    sd_bpe_symbol *symbols = bpe->symbols;
    while (n_heap > 0) {
        uint32_t rank = (uint32_t)(bpe->heap[0] >> 32);
        int32_t left = (int32_t)(bpe->heap[0] & 0xFFFFFFFFu);
        bpe->heap[0] = bpe->heap[--n_heap];
        sift_down(bpe->heap, n_heap, 0);
        sd_bpe_symbol *s = &symbols[left];
        if (s->rank != rank) {
            continue;
        }
        sd_bpe_symbol *gone = &symbols[s->next];
        s->id = vocab->merged[rank];
        s->next = gone->next;
        gone->rank = SD_MAP_NONE;
        if (s->next != NO_SYMBOL) {
            symbols[s->next].prev = left;
        }
        renew_pair(bpe, vocab, left, &n_heap);
        if (s->prev != NO_SYMBOL) {
            renew_pair(bpe, vocab, s->prev, &n_heap);
        }
    }
}

/* A merge takes an entry off the heap and puts at most two on, and there are at most len - 1 merges. */
static bool reserve(sd_bpe *bpe, size_t len)
{
    size_t cap = len > 2 * bpe->cap ? len : 2 * bpe->cap;
    if (len > bpe->cap) {
        sd_bpe_free(bpe);
        bpe->symbols = sd_malloc(cap, sizeof *bpe->symbols);
        bpe->heap = sd_malloc(cap, 2 * sizeof *bpe->heap);
        bpe->cap = bpe->symbols && bpe->heap ? cap : 0;
    }
    return bpe->cap >= len;
}

int sd_bpe_encode(sd_bpe *bpe, const sd_vocab *vocab, const char *piece, size_t len, sd_id_sink *sink, sd_error *err)
{
    if (len <= SHORT_PIECE) {
        return put_short(vocab, piece, len, sink);
    }
    if (len > INT32_MAX) {
        return sd_fail(err, SD_ERR_LIMIT,
                       "a piece of text of %zu bytes without a place to split; at most %d can be encoded", len,
                       INT32_MAX);
    }
    if (!reserve(bpe, len)) {
        return sd_fail_memory(err, len * (sizeof *bpe->symbols + 2 * sizeof *bpe->heap),
                              "encoding a long piece of text");
    }
    merge_by_heap(bpe, vocab, start_heap(bpe, vocab, piece, (int32_t)len));
    for (int32_t i = 0; i != NO_SYMBOL; i = bpe->symbols[i].next) {
        sd_id_put(sink, bpe->symbols[i].id);
    }
    return SD_OK;
}

void sd_bpe_free(sd_bpe *bpe)
{
    sd_free(bpe->symbols);
    sd_free(bpe->heap);
    *bpe = (sd_bpe){0};
}

int sd_bpe_mark_whole(sd_vocab *vocab, sd_error *err)
{
    sd_bpe bpe = {0};
    int rc = SD_OK;
    for (int32_t id = 0; id < vocab->n_ids && rc == SD_OK; id++) {
        sd_token *t = &vocab->tokens[id];
        if ((t->flags & SD_TOKEN_BYTES) && t->len > 0) {
            int32_t only;
            sd_id_sink sink = {&only, 1, 0};
            rc = sd_bpe_encode(&bpe, vocab, vocab->bytes.data + t->offset, t->len, &sink, err);
            t->flags |= rc == SD_OK && sink.n == 1 && only == id ? SD_TOKEN_WHOLE : 0;
        }
    }
    sd_bpe_free(&bpe);
    return rc;
}
