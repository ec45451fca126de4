/* SPDX-License-Identifier: MIT
 *
 * What a trainer of this room is made of: train.c learns, train_save.c writes what was learned. */
#ifndef SD_TOKENIZER_TRAIN_PARTS_H
#define SD_TOKENIZER_TRAIN_PARTS_H

#include "src/base/buf.h"
#include "src/tokenizer/map.h"
#include "src/tokenizer/pattern.h"
#include "src/tokenizer/train.h"

/* Different byte strings, numbered in the order they came. */
typedef struct sd_strings_table {
    sd_buf bytes;   /* end to end */
    uint32_t *lens; /* [n] */
    size_t *ends;   /* [n] in bytes */
    size_t n, cap;
    sd_map by_hash;
} sd_strings_table;

/* Two tokens side by side. */
typedef struct sd_pair {
    int32_t left, right;
    int32_t joined;  /* once merged */
    bool merged, fresh;
    int64_t count;   /* how often it stands in the text now */
    uint32_t *where; /* [n_where] pieces where it may stand */
    size_t n_where, cap_where;
} sd_pair;

typedef struct sd_heap_entry {
    int64_t count; /* when it was put in */
    uint32_t pair;
} sd_heap_entry;

typedef struct sd_merge {
    int32_t left, right;
} sd_merge;

struct sd_bpe_trainer {
    sd_pattern *pattern;
    sd_matcher *matcher;
    sd_strings_table pieces;
    int64_t *counts;   /* [pieces.n] how often each piece comes */
    size_t cap_counts;
    int32_t *symbols;  /* the pieces' tokens, piece i from starts[i] on, lengths[i] of them */
    size_t *starts;
    uint32_t *lengths;
    sd_pair *pairs;
    size_t n_pairs, cap_pairs;
    sd_map by_pair;    /* left << 32 | right -> index of pairs */
    sd_heap_entry *heap;
    size_t n_heap, cap_heap;
    uint32_t *fresh;   /* pairs that became more in this round, to be put in the heap */
    size_t n_fresh, cap_fresh;
    sd_strings_table tokens; /* by id: special tokens as text, all others as bytes */
    sd_merge *merges;
    size_t n_merges, cap_merges;
};

/* The bytes of a token, borrowed. */
const char *sd_bpe_token(const sd_bpe_trainer *trainer, size_t id, size_t *len);

#endif
