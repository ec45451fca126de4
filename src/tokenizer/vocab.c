/* SPDX-License-Identifier: MIT */
#include "src/tokenizer/vocab.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/base/utf8.h"

/* ---- the byte alphabet ---- */

static bool stands_for_itself(unsigned c) { return (c >= '!' && c <= '~') || (c >= 0xA1 && c <= 0xFF && c != 0xAD); }

/* The byte that character `c` of the alphabet stands for; -1 if c is not in it. */
static int byte_of_character(unsigned c)
{
    if (c <= 0xFF) {
        return stands_for_itself(c) ? (int)c : -1;
    }
    /* U+0100 + i is the i-th byte that does not stand for itself: 0-32, 127-160, 173 */
    unsigned i = c - 0x100;
    return i <= 32 ? (int)i : i <= 66 ? (int)(i - 33 + 127) : i == 67 ? 173 : -1;
}

void sd_vocab_write_bytes(sd_buf *out, const char *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        const unsigned byte = (unsigned char)bytes[i];
        unsigned c = byte;
        if (!stands_for_itself(byte)) {
            c = 0x100 + (byte <= 32 ? byte : byte <= 160 ? byte - 127 + 33 : 67);
        }
        char text[2] = {(char)(0xC0 | c >> 6), (char)(0x80 | (c & 0x3F))};
        if (c < 0x80) {
            text[0] = (char)c;
        }
        sd_buf_add(out, text, c < 0x80 ? 1 : 2);
    }
}

/* Reads text as characters of the alphabet into bytes [len]. False if any character is not in it. */
static bool read_alphabet(const char *text, size_t len, char *bytes, size_t *n_bytes)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t n = 0;
    for (size_t i = 0; i < len;) {
        unsigned c = s[i];
        if (c >= 0x80) { /* the alphabet ends below U+0800, so two bytes */
            if (sd_utf8_next(s + i, len - i) != 2) {
                return false;
            }
            c = (c & 0x1Fu) << 6 | (s[++i] & 0x3Fu);
        }
        i++;
        int byte = byte_of_character(c);
        if (byte < 0) {
            return false;
        }
        bytes[n++] = (char)(unsigned char)byte;
    }
    *n_bytes = n;
    return true;
}

/* ---- tokens by their bytes ---- */

static uint64_t hash_bytes(const char *bytes, size_t len, uint32_t alphabet)
{
    uint64_t h = (uint64_t)len * 2 + (alphabet != 0), word;
    for (; len >= sizeof word; bytes += sizeof word, len -= sizeof word) {
        memcpy(&word, bytes, sizeof word);
        h = sd_map_mix(h ^ word) * 0xD6E8FEB86659FD93u;
    }
    word = 0;
    memcpy(&word, bytes, len);
    return sd_map_mix(h ^ word) * 0xD6E8FEB86659FD93u;
}

/* The map holds no byte strings: a key is a hash, and a string whose hash is taken by another is under the next free
 * key. *key: where the search ended, which is where a new token goes. */
static int32_t find_bytes(const sd_vocab *vocab, const char *bytes, size_t len, uint32_t alphabet, uint64_t *key)
{
    for (*key = hash_bytes(bytes, len, alphabet);; (*key)++) {
        uint32_t id = sd_map_get(&vocab->by_bytes, *key);
        if (id == SD_MAP_NONE) {
            return -1;
        }
        const sd_token *t = &vocab->tokens[id];
        if (t->len == len && (t->flags & SD_TOKEN_BYTES) == alphabet &&
            memcmp(vocab->bytes.data + t->offset, bytes, len) == 0) {
            return (int32_t)id;
        }
    }
}

int32_t sd_vocab_of_bytes(const sd_vocab *vocab, const char *bytes, size_t len)
{
    uint64_t key;
    return find_bytes(vocab, bytes, len, SD_TOKEN_BYTES, &key);
}

int sd_vocab_find(sd_vocab *vocab, const char *text, size_t len, int32_t *id, sd_error *err)
{
    if (!sd_buf_reserve(&vocab->bytes, len)) {
        return sd_fail_memory(err, len, "a token");
    }
    char *scratch = vocab->bytes.data + vocab->bytes.len;
    size_t n;
    uint64_t key;
    bool alphabet = read_alphabet(text, len, scratch, &n);
    *id = alphabet ? find_bytes(vocab, scratch, n, SD_TOKEN_BYTES, &key) : find_bytes(vocab, text, len, 0, &key);
    return SD_OK;
}

/* ---- building ---- */

static bool reserve_ids(sd_vocab *vocab, int32_t n)
{
    if (n > vocab->cap_ids) {
        int32_t cap = n > 2 * vocab->cap_ids ? n : 2 * vocab->cap_ids;
        sd_token *tokens = sd_realloc(vocab->tokens, (size_t)cap, sizeof *tokens);
        if (!tokens) {
            return false;
        }
        vocab->tokens = tokens;
        vocab->cap_ids = cap;
    }
    for (; vocab->n_ids < n; vocab->n_ids++) {
        vocab->tokens[vocab->n_ids] = (sd_token){0};
    }
    return true;
}

int sd_token_shown(const char *text, size_t len)
{
    size_t n = len < 60 ? len : 60;
    while (n > 0 && n < len && ((unsigned char)text[n] & 0xC0u) == 0x80u) {
        n--;
    }
    return (int)n;
}

int sd_vocab_add(sd_vocab *vocab, int64_t id, const char *text, size_t len, sd_error *err)
{
    if (id < 0 || id > SD_VOCAB_MAX_ID) {
        return sd_fail(err, SD_ERR_FORMAT, "token \"%.*s\": id %lld is outside 0 .. %d", sd_token_shown(text, len),
                       text, (long long)id, SD_VOCAB_MAX_ID);
    }
    if (sd_vocab_has(vocab, id)) {
        return sd_fail(err, SD_ERR_FORMAT,
                       "token \"%.*s\": id %lld already belongs to another token; ids must be unique",
                       sd_token_shown(text, len), text, (long long)id);
    }
    size_t start = vocab->bytes.len, n = len;
    if (len > UINT32_MAX - start) {
        return sd_fail(err, SD_ERR_FORMAT, "token %lld: its %zu bytes make the vocabulary larger than 4 GiB",
                       (long long)id, len);
    }
    if (!sd_buf_reserve(&vocab->bytes, len) ||
        !reserve_ids(vocab, vocab->n_ids > id ? vocab->n_ids : (int32_t)id + 1)) {
        return sd_fail_memory(err, len, "the vocabulary");
    }
    char *bytes = vocab->bytes.data + start;
    uint32_t alphabet = read_alphabet(text, len, bytes, &n) ? SD_TOKEN_BYTES : 0;
    if (!alphabet && len > 0) {
        memcpy(bytes, text, len);
    }
    uint64_t key;
    int32_t other = find_bytes(vocab, bytes, n, alphabet, &key);
    if (other >= 0) {
        return sd_fail(err, SD_ERR_FORMAT, "token \"%.*s\" has two ids, %d and %lld; expected one",
                       sd_token_shown(text, len), text, other, (long long)id);
    }
    if (!sd_map_insert(&vocab->by_bytes, key, (uint32_t)id)) {
        return sd_fail_memory(err, vocab->by_bytes.n * sizeof(sd_map_slot), "the vocabulary");
    }
    vocab->bytes.len += n;
    vocab->tokens[id] = (sd_token){(uint32_t)start, (uint32_t)n, SD_TOKEN_PRESENT | alphabet};
    return SD_OK;
}

/* One side of a merge: a token of the byte alphabet. */
static int find_part(sd_vocab *vocab, const char *text, size_t len, const char *side, int32_t *id, sd_error *err)
{
    if (len == 0) {
        return sd_fail(err, SD_ERR_FORMAT, "the %s part of the merge is empty; expected two tokens", side);
    }
    int rc = sd_vocab_find(vocab, text, len, id, err);
    if (rc != SD_OK) {
        return rc;
    }
    if (*id < 0) {
        return sd_fail(err, SD_ERR_FORMAT, "the %s part of the merge, \"%.*s\", is not in the vocabulary", side,
                       sd_token_shown(text, len), text);
    }
    if (!(vocab->tokens[*id].flags & SD_TOKEN_BYTES)) {
        return sd_fail(err, SD_ERR_FORMAT,
                       "the %s part of the merge, \"%.*s\", is not written in the byte-level alphabet", side,
                       sd_token_shown(text, len), text);
    }
    return SD_OK;
}

/* The token whose bytes are those of a and b; -1 if there is none. */
static int find_joined(sd_vocab *vocab, int32_t a, int32_t b, int32_t *id, sd_error *err)
{
    const sd_token *left = &vocab->tokens[a], *right = &vocab->tokens[b];
    size_t len = (size_t)left->len + right->len;
    if (!sd_buf_reserve(&vocab->bytes, len)) {
        return sd_fail_memory(err, len, "a merge");
    }
    char *scratch = vocab->bytes.data + vocab->bytes.len;
    memcpy(scratch, vocab->bytes.data + left->offset, left->len);
    memcpy(scratch + left->len, vocab->bytes.data + right->offset, right->len);
    *id = sd_vocab_of_bytes(vocab, scratch, len);
    return SD_OK;
}

static bool reserve_merge(sd_vocab *vocab)
{
    if (vocab->n_merges < vocab->cap_merges) {
        return true;
    }
    uint32_t cap = vocab->cap_merges ? 2 * vocab->cap_merges : 1024;
    int32_t *merged = cap > vocab->cap_merges ? sd_realloc(vocab->merged, cap, sizeof *merged) : NULL;
    if (!merged) {
        return false;
    }
    vocab->merged = merged;
    vocab->cap_merges = cap;
    return true;
}

int sd_vocab_add_merge(sd_vocab *vocab, const char *left, size_t left_len, const char *right, size_t right_len,
                       sd_error *err)
{
    int32_t a = -1, b = -1, result = -1;
    int rc = find_part(vocab, left, left_len, "left", &a, err);
    if (rc == SD_OK) {
        rc = find_part(vocab, right, right_len, "right", &b, err);
    }
    if (rc == SD_OK) {
        rc = find_joined(vocab, a, b, &result, err);
    }
    if (rc != SD_OK) {
        return rc;
    }
    if (result < 0) {
        return sd_fail(err, SD_ERR_FORMAT, "the result of the merge, \"%.*s%.*s\", is not in the vocabulary",
                       sd_token_shown(left, left_len), left, sd_token_shown(right, right_len), right);
    }
    uint32_t earlier = sd_vocab_rank(vocab, a, b);
    if (earlier != SD_MAP_NONE) {
        return sd_fail(err, SD_ERR_FORMAT, "\"%.*s\" and \"%.*s\" already merge, by rule %lu; expected each pair once",
                       sd_token_shown(left, left_len), left, sd_token_shown(right, right_len), right,
                       (unsigned long)earlier + 1);
    }
    if (!reserve_merge(vocab) ||
        !sd_map_insert(&vocab->merges, (uint64_t)(uint32_t)a << 32 | (uint32_t)b, vocab->n_merges)) {
        return sd_fail_memory(err, (size_t)vocab->n_merges * sizeof(sd_map_slot), "the merges");
    }
    vocab->merged[vocab->n_merges++] = result;
    return SD_OK;
}

int sd_vocab_index_bytes(sd_vocab *vocab, sd_error *err)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        char c = (char)(unsigned char)byte;
        vocab->byte_ids[byte] = sd_vocab_of_bytes(vocab, &c, 1);
        if (vocab->byte_ids[byte] < 0) {
            return sd_fail(err, SD_ERR_UNSUPPORTED,
                           "the vocabulary has no token for byte 0x%02X, so not every text could be encoded; expected "
                           "a "
                           "byte-level vocabulary, which holds all 256 (train it with the whole byte alphabet)",
                           byte);
        }
    }
    return SD_OK;
}

void sd_vocab_free(sd_vocab *vocab)
{
    sd_free(vocab->tokens);
    sd_free(vocab->merged);
    sd_buf_free(&vocab->bytes);
    sd_map_free(&vocab->by_bytes);
    sd_map_free(&vocab->merges);
    *vocab = (sd_vocab){0};
}
