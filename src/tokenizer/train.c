/* SPDX-License-Identifier: MIT
 *
 * The count of every pair is kept exact, and each pair knows the pieces it may stand in, so a merge costs only the
 * pieces that it changes. The heap is lazy: counts that fell since they were put in are corrected when they come up. */
#include "src/tokenizer/train.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/error.h"
#include "src/base/utf8.h"
#include "src/tokenizer/pattern.h"
#include "src/tokenizer/train_parts.h"

const char *const sd_special_tokens[SD_N_SPECIALS] = {"<s>", "<pad>", "</s>", "<unk>"};

/* Room for one more in an array of n elements. */
static bool reserve(void **array, size_t n, size_t *cap, size_t size)
{
    if (n < *cap) {
        return true;
    }
    const size_t larger = *cap ? 2 * *cap : 64;
    void *block = sd_realloc(*array, larger, size);
    if (block) {
        *array = block;
        *cap = larger;
    }
    return block != NULL;
}

/* ---- byte strings under numbers: pieces and tokens ---- */

static const char *string_bytes(const sd_strings_table *t, size_t i) { return t->bytes.data + t->ends[i] - t->lens[i]; }

/* The map holds no strings: a key is a hash, and a string whose hash is taken is under the next free key. */
static uint32_t find_string(const sd_strings_table *t, const char *bytes, size_t len, uint64_t *key)
{
    uint64_t h = UINT64_C(0xCBF29CE484222325);
    for (size_t i = 0; i < len; i++) {
        h = (h ^ (unsigned char)bytes[i]) * UINT64_C(0x100000001B3);
    }
    for (*key = h;; (*key)++) {
        const uint32_t i = sd_map_get(&t->by_hash, *key);
        if (i == SD_MAP_NONE || (t->lens[i] == len && memcmp(string_bytes(t, i), bytes, len) == 0)) {
            return i;
        }
    }
}

static bool add_string(sd_strings_table *t, const char *bytes, size_t len, uint64_t key)
{
    size_t cap = t->cap;
    if (!reserve((void **)&t->lens, t->n, &cap, sizeof *t->lens)) {
        return false;
    }
    if (!reserve((void **)&t->ends, t->n, &t->cap, sizeof *t->ends)) {
        return false;
    }
    sd_buf_add(&t->bytes, bytes, len);
    if (t->bytes.failed || !sd_map_insert(&t->by_hash, key, (uint32_t)t->n)) {
        return false;
    }
    t->lens[t->n] = (uint32_t)len;
    t->ends[t->n++] = t->bytes.len;
    return true;
}

static void clear_strings(sd_strings_table *t)
{
    sd_buf_free(&t->bytes);
    sd_map_free(&t->by_hash);
    sd_free(t->lens);
    sd_free(t->ends);
    *t = (sd_strings_table){0};
}

const char *sd_bpe_token(const sd_bpe_trainer *t, size_t id, size_t *len)
{
    *len = t->tokens.lens[id];
    return string_bytes(&t->tokens, id);
}

/* ---- counting ---- */

int sd_bpe_trainer_create(sd_bpe_trainer **out, sd_error *err)
{
    sd_bpe_trainer *t = sd_calloc(1, sizeof *t);
    int rc = t ? sd_pattern_create(&t->pattern, true, err) : sd_fail_memory(err, sizeof *t, "a tokenizer");
    rc = rc == SD_OK ? sd_matcher_create(&t->matcher, t->pattern, err) : rc;
    if (rc != SD_OK) {
        sd_bpe_trainer_free(t);
        t = NULL;
    }
    *out = t;
    return rc;
}

void sd_bpe_trainer_free(sd_bpe_trainer *t)
{
    if (!t) {
        return;
    }
    for (size_t i = 0; i < t->n_pairs; i++) {
        sd_free(t->pairs[i].where);
    }
    sd_free(t->pairs);
    sd_free(t->heap);
    sd_free(t->fresh);
    sd_free(t->counts);
    sd_free(t->symbols);
    sd_free(t->starts);
    sd_free(t->lengths);
    sd_free(t->merges);
    sd_map_free(&t->by_pair);
    clear_strings(&t->pieces);
    clear_strings(&t->tokens);
    sd_matcher_free(t->matcher);
    sd_pattern_free(t->pattern);
    sd_free(t);
}

static bool count_piece(sd_bpe_trainer *t, const char *piece, size_t len)
{
    uint64_t key;
    uint32_t i = find_string(&t->pieces, piece, len, &key);
    if (i == SD_MAP_NONE) {
        i = (uint32_t)t->pieces.n;
        if (!reserve((void **)&t->counts, i, &t->cap_counts, sizeof *t->counts) ||
            !add_string(&t->pieces, piece, len, key)) {
            return false;
        }
        t->counts[i] = 0;
    }
    t->counts[i]++;
    return true;
}

int sd_bpe_trainer_add(sd_bpe_trainer *t, const char *text, size_t len, sd_error *err)
{
    if (!sd_utf8_valid(text, len)) {
        return sd_fail(err, SD_ERR_FORMAT, "the text is not valid UTF-8");
    }
    for (size_t at = 0, n; at < len; at += n) {
        int rc = sd_pattern_next(t->pattern, t->matcher, text, len, at, &n, err);
        if (rc != SD_OK) {
            return rc;
        }
        if (!count_piece(t, text + at, n)) {
            return sd_fail_memory(err, t->pieces.bytes.len, "the pieces of the text");
        }
    }
    return SD_OK;
}

/* ---- the heap of pairs: the commonest on top, of equals the smaller ids ---- */

static bool comes_before(const sd_bpe_trainer *t, sd_heap_entry a, sd_heap_entry b)
{
    if (a.count != b.count) {
        return a.count > b.count;
    }
    const sd_pair *x = &t->pairs[a.pair], *y = &t->pairs[b.pair];
    return x->left != y->left ? x->left < y->left : x->right < y->right;
}

static bool push(sd_bpe_trainer *t, uint32_t pair)
{
    if (!reserve((void **)&t->heap, t->n_heap, &t->cap_heap, sizeof *t->heap)) {
        return false;
    }
    const sd_heap_entry entry = {t->pairs[pair].count, pair};
    size_t i = t->n_heap++;
    for (; i > 0 && comes_before(t, entry, t->heap[(i - 1) / 2]); i = (i - 1) / 2) {
        t->heap[i] = t->heap[(i - 1) / 2];
    }
    t->heap[i] = entry;
    return true;
}

static sd_heap_entry pop(sd_bpe_trainer *t)
{
    const sd_heap_entry top = t->heap[0], last = t->heap[--t->n_heap];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < t->n_heap; i = child) {
        child += child + 1 < t->n_heap && comes_before(t, t->heap[child + 1], t->heap[child]);
        if (!comes_before(t, t->heap[child], last)) {
            break;
        }
        t->heap[i] = t->heap[child];
    }
    t->heap[i] = last;
    return top;
}

/* ---- pairs ---- */

/* `times` more of the pair (or fewer), in the piece. */
static bool change_pair(sd_bpe_trainer *t, int32_t left, int32_t right, int64_t times, uint32_t piece)
{
    const uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    uint32_t i = sd_map_get(&t->by_pair, key);
    if (i == SD_MAP_NONE) {
        i = (uint32_t)t->n_pairs;
        if (!reserve((void **)&t->pairs, i, &t->cap_pairs, sizeof *t->pairs) || !sd_map_insert(&t->by_pair, key, i)) {
            return false;
        }
        t->pairs[t->n_pairs++] = (sd_pair){.left = left, .right = right};
    }
    sd_pair *p = &t->pairs[i];
    p->count += times;
    if (times <= 0 || (p->n_where > 0 && p->where[p->n_where - 1] == piece)) {
        return true;
    }
    if (!reserve((void **)&p->where, p->n_where, &p->cap_where, sizeof *p->where)) {
        return false;
    }
    p->where[p->n_where++] = piece;
    if (p->fresh) {
        return true;
    }
    p->fresh = true; /* pushed when all its places of this round are known */
    if (!reserve((void **)&t->fresh, t->n_fresh, &t->cap_fresh, sizeof *t->fresh)) {
        return false;
    }
    t->fresh[t->n_fresh++] = i;
    return true;
}

static bool push_fresh(sd_bpe_trainer *t)
{
    bool ok = true;
    for (size_t i = 0; ok && i < t->n_fresh; i++) {
        t->pairs[t->fresh[i]].fresh = false;
        ok = push(t, t->fresh[i]);
    }
    t->n_fresh = 0;
    return ok;
}

/* Joins the pair wherever it stands in one piece, from left to right. */
static bool merge_in_piece(sd_bpe_trainer *t, uint32_t piece, int32_t left, int32_t right, int32_t joined)
{
    int32_t *s = t->symbols + t->starts[piece];
    const int64_t times = t->counts[piece];
    uint32_t n = t->lengths[piece], to = 0;
    bool ok = true;
    for (uint32_t i = 0; i < n; i++, to++) {
        if (i + 1 >= n || s[i] != left || s[i + 1] != right) {
            s[to] = s[i];
            continue;
        }
        if (to > 0) {
            ok = ok && change_pair(t, s[to - 1], left, -times, piece);
            ok = ok && change_pair(t, s[to - 1], joined, times, piece);
        }
        if (i + 2 < n) {
            ok = ok && change_pair(t, right, s[i + 2], -times, piece);
            ok = ok && change_pair(t, joined, s[i + 2], times, piece);
        }
        s[to] = joined;
        i++;
    }
    t->lengths[piece] = to;
    return ok;
}

/* ---- learning ---- */

static int out_of_memory(const sd_bpe_trainer *t, sd_error *err)
{
    return sd_fail_memory(err, t->pieces.bytes.len * sizeof *t->symbols, "learning merges");
}

/* The special tokens and the 256 bytes, in the order of the characters that files write for them. */
static bool add_first_tokens(sd_bpe_trainer *t, int32_t of_byte[256])
{
    static const struct {
        int first, last;
    } ranges[] = {{'!', '~'}, {161, 172}, {174, 255}, {0, 32}, {127, 160}, {173, 173}};
    bool ok = true;
    for (int i = 0; ok && i < SD_N_SPECIALS; i++) {
        uint64_t key;
        (void)find_string(&t->tokens, sd_special_tokens[i], strlen(sd_special_tokens[i]), &key);
        ok = add_string(&t->tokens, sd_special_tokens[i], strlen(sd_special_tokens[i]), key);
    }
    for (size_t r = 0; ok && r < sizeof ranges / sizeof *ranges; r++) {
        for (int b = ranges[r].first; ok && b <= ranges[r].last; b++) {
            const char byte = (char)(unsigned char)b;
            uint64_t key;
            (void)find_string(&t->tokens, &byte, 1, &key);
            of_byte[b] = (int32_t)t->tokens.n;
            ok = add_string(&t->tokens, &byte, 1, key);
        }
    }
    return ok;
}

static bool lay_out_pieces(sd_bpe_trainer *t, const int32_t of_byte[256])
{
    const size_t n = t->pieces.n;
    t->symbols = sd_malloc(t->pieces.bytes.len + 1, sizeof *t->symbols);
    t->starts = sd_malloc(n + 1, sizeof *t->starts);
    t->lengths = sd_malloc(n + 1, sizeof *t->lengths);
    bool ok = t->symbols && t->starts && t->lengths;
    for (size_t i = 0; ok && i < n; i++) {
        const char *bytes = string_bytes(&t->pieces, i);
        const uint32_t len = t->pieces.lens[i];
        t->starts[i] = t->pieces.ends[i] - len;
        t->lengths[i] = len;
        for (uint32_t k = 0; k < len; k++) {
            t->symbols[t->starts[i] + k] = of_byte[(unsigned char)bytes[k]];
        }
        for (uint32_t k = 1; ok && k < len; k++) {
            const int32_t *s = t->symbols + t->starts[i] + k;
            ok = change_pair(t, s[-1], s[0], t->counts[i], (uint32_t)i);
        }
    }
    return ok && push_fresh(t);
}

/* The token that the pair makes. Two ways may lead to one token: "ab"+"c" and "a"+"bc". */
static bool join_token(sd_bpe_trainer *t, const sd_pair *pair, int32_t *id)
{
    sd_buf joined = {0};
    sd_buf_add(&joined, string_bytes(&t->tokens, (size_t)pair->left), t->tokens.lens[pair->left]);
    sd_buf_add(&joined, string_bytes(&t->tokens, (size_t)pair->right), t->tokens.lens[pair->right]);
    bool ok = !joined.failed;
    if (ok) {
        uint64_t key;
        uint32_t found = find_string(&t->tokens, joined.data, joined.len, &key);
        ok = found != SD_MAP_NONE || add_string(&t->tokens, joined.data, joined.len, key);
        *id = found != SD_MAP_NONE ? (int32_t)found : (int32_t)t->tokens.n - 1;
    }
    sd_buf_free(&joined);
    return ok;
}

static bool merge_pair(sd_bpe_trainer *t, uint32_t i)
{
    /* taken out of the table, which grows and moves while the merge makes new pairs */
    sd_pair pair = t->pairs[i];
    t->pairs[i].where = NULL;
    t->pairs[i].n_where = t->pairs[i].cap_where = 0;
    bool ok = true;
    if (!pair.merged) { /* else a later merge made it anew, by way of a token that is made in two ways */
        ok = join_token(t, &pair, &pair.joined) &&
             reserve((void **)&t->merges, t->n_merges, &t->cap_merges, sizeof *t->merges);
        if (ok && pair.joined < SD_N_SPECIALS) {
            pair.n_where = 0; /* text that spells a special token stays text, in pieces */
        } else if (ok) {
            t->merges[t->n_merges++] = (sd_merge){pair.left, pair.right};
            t->pairs[i].merged = true;
            t->pairs[i].joined = pair.joined;
        }
    }
    t->pairs[i].count = 0;
    for (size_t k = 0; ok && k < pair.n_where; k++) {
        ok = merge_in_piece(t, pair.where[k], pair.left, pair.right, pair.joined);
    }
    t->pairs[i].count = t->pairs[i].count < 0 ? 0 : t->pairs[i].count; /* "aaa" takes "aa" from itself */
    sd_free(pair.where);
    return ok && push_fresh(t);
}

int sd_bpe_trainer_run(sd_bpe_trainer *t, int vocab_size, sd_error *err)
{
    if (vocab_size < SD_SMALLEST_VOCAB || vocab_size > 1 << 22) {
        return sd_fail(err, SD_ERR_ARG,
                       "a vocabulary of %d tokens; expected %d (special tokens and single bytes) .. %d", vocab_size,
                       SD_SMALLEST_VOCAB, 1 << 22);
    }
    int32_t of_byte[256];
    bool ok = add_first_tokens(t, of_byte) && lay_out_pieces(t, of_byte);
    while (ok && t->tokens.n < (size_t)vocab_size && t->n_heap > 0) {
        const sd_heap_entry top = pop(t);
        const int64_t count = t->pairs[top.pair].count;
        if (count == top.count) {
            ok = merge_pair(t, top.pair);
        } else if (count > 0) {
            ok = push(t, top.pair);
        }
    }
    return ok ? SD_OK : out_of_memory(t, err);
}

int sd_bpe_trainer_vocab_size(const sd_bpe_trainer *t) { return (int)t->tokens.n; }
int sd_bpe_trainer_n_merges(const sd_bpe_trainer *t) { return (int)t->n_merges; }
size_t sd_bpe_trainer_n_pieces(const sd_bpe_trainer *t) { return t->pieces.n; }
