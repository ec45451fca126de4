/* SPDX-License-Identifier: MIT
 *
 * Byte pair encoding of one piece of text: start from single bytes, and while any two neighbours have a merge, join the
 * pair of lowest rank, the leftmost first. */
#ifndef SD_TOKENIZER_BPE_H
#define SD_TOKENIZER_BPE_H

#include "src/tokenizer/vocab.h"

/* Where ids go: counted always, stored while there is room. */
typedef struct sd_id_sink {
    int32_t *ids; /* [cap] */
    size_t cap, n;
} sd_id_sink;

static inline void sd_id_put(sd_id_sink *sink, int32_t id)
{
    if (sink->n < sink->cap) {
        sink->ids[sink->n] = id;
    }
    sink->n++;
}

/* Working memory, grown to the longest piece seen and reused: start from {0}, release with sd_bpe_free. Belongs to one
 * call or thread. */
typedef struct sd_bpe {
    struct sd_bpe_symbol *symbols; /* [cap] */
    uint64_t *heap;                /* [cap_heap] */
    size_t cap, cap_heap;
} sd_bpe;

/* Puts the ids of piece[0 .. len), len > 0, into sink. SD_ERR_MEMORY, or SD_ERR_LIMIT for a piece of 2 GiB. */
int sd_bpe_encode(sd_bpe *bpe, const sd_vocab *vocab, const char *piece, size_t len, sd_id_sink *sink, sd_error *err);
void sd_bpe_free(sd_bpe *bpe);

/* Sets SD_TOKEN_WHOLE. The token of a whole piece can then be looked up instead of merged, with the same result. */
int sd_bpe_mark_whole(sd_vocab *vocab, sd_error *err);

#endif
