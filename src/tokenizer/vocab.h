/* SPDX-License-Identifier: MIT
 *
 * A byte-level BPE vocabulary: ids <-> byte strings, and the merges. Filled by a loader, then never changed.
 *
 * Files write a byte as a printable character: 188 bytes stand for themselves (as Latin-1), the other 68, in order, are
 * U+0100 .. U+0143 (so a space is U+0120, "Ġ"). A token written in that alphabet is a byte string that merging can
 * produce. Any other token (some added ones hold real spaces or other characters) stands for its own UTF-8 bytes and is
 * never produced by merging. */
#ifndef SD_TOKENIZER_VOCAB_H
#define SD_TOKENIZER_VOCAB_H

#include "src/base/buf.h"
#include "src/base/error.h"
#include "src/tokenizer/map.h"

/* Ids above this are taken for a broken file: the largest vocabularies in use have about 2^18. */
enum { SD_VOCAB_MAX_ID = (1 << 22) - 1 };

enum {
    SD_TOKEN_PRESENT = 1, /* the id is in use; ids may have holes */
    SD_TOKEN_BYTES = 2,   /* written in the byte alphabet */
    SD_TOKEN_WHOLE = 4,   /* merging the token's own bytes gives exactly this token */
    SD_TOKEN_SPECIAL = 8, /* has no text: never decoded */
    SD_TOKEN_ADDED = 16,  /* found in the text before it is split (src/tokenizer/added.h) */
    SD_TOKEN_LSTRIP = 32, /* an added token that swallows the white space before it, */
    SD_TOKEN_RSTRIP = 64  /* and after it */
};

typedef struct sd_token {
    uint32_t offset, len; /* its bytes in sd_vocab.bytes */
    uint32_t flags;       /* SD_TOKEN_*; 0: a hole */
} sd_token;

/* Start from {0}; release with sd_vocab_free. */
typedef struct sd_vocab {
    sd_token *tokens; /* [n_ids] */
    int32_t n_ids, cap_ids;
    sd_buf bytes;          /* the bytes of all tokens, end to end */
    sd_map by_bytes;       /* hash of (bytes, alphabet or not) -> id */
    int32_t byte_ids[256]; /* after sd_vocab_index_bytes: the token of each single byte */
    sd_map merges;         /* left id << 32 | right id -> rank, 0 is merged first */
    int32_t *merged;       /* [n_merges] rank -> the resulting id */
    uint32_t n_merges, cap_merges;
} sd_vocab;

/* Adds a token as a file writes it: `len` bytes of UTF-8. An id out of range or in use, and a text that another id has,
 * are SD_ERR_FORMAT. */
int sd_vocab_add(sd_vocab *vocab, int64_t id, const char *text, size_t len, sd_error *err);

/* The id of a token as a file writes it; -1 if there is none. Fails only when memory is out (it borrows space behind
 * the bytes, which is why vocab is not const). */
int sd_vocab_find(sd_vocab *vocab, const char *text, size_t len, int32_t *id, sd_error *err);

/* Appends a merge, the next in rank. An unknown part or result, and a repeated pair, are SD_ERR_FORMAT. */
int sd_vocab_add_merge(sd_vocab *vocab, const char *left, size_t left_len, const char *right, size_t right_len,
                       sd_error *err);

/* Call when the model's own tokens are in and before added ones: fails unless each of the 256 bytes has a token,
 * without which some text could not be encoded. */
int sd_vocab_index_bytes(sd_vocab *vocab, sd_error *err);

void sd_vocab_free(sd_vocab *vocab);

/* The token with exactly these bytes that merging could produce; -1 if there is none. */
int32_t sd_vocab_of_bytes(const sd_vocab *vocab, const char *bytes, size_t len);

/* Rank of the merge of two neighbours, SD_MAP_NONE if they do not merge. */
static inline uint32_t sd_vocab_rank(const sd_vocab *vocab, int32_t left, int32_t right)
{
    return sd_map_get(&vocab->merges, (uint64_t)(uint32_t)left << 32 | (uint32_t)right);
}

/* Appends bytes as files write them, in the byte alphabet. */
void sd_vocab_write_bytes(sd_buf *out, const char *bytes, size_t len);

/* How much of a token a message shows, for "%.*s": whole characters, about 60 bytes. */
int sd_token_shown(const char *text, size_t len);

static inline bool sd_vocab_has(const sd_vocab *vocab, int64_t id)
{
    return id >= 0 && id < vocab->n_ids && vocab->tokens[id].flags != 0;
}

#endif
