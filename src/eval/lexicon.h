/* SPDX-License-Identifier: MIT
 *
 * Words and n-grams as numbers, so that metrics count instead of comparing strings. A word is a number; an n-gram is
 * the number of the pair (its first n-1 items, its last item): exact, whatever collides in the hash. */
#ifndef SD_EVAL_LEXICON_H
#define SD_EVAL_LEXICON_H

#include <stdbool.h>
#include <stdint.h>

#include "src/base/buf.h"

/* ---- strings ---- */

typedef struct sd_lexicon { /* start from {0} */
    sd_buf text;
    size_t *ends;    /* [n] of string i + 1 in text */
    uint32_t *slots; /* [n_slots] open addressing; 0: free */
    size_t n, cap, n_slots;
    bool failed;     /* memory was out at some time: numbers from then on are 0 */
} sd_lexicon;

/* The number of a string, 1 .. n; the same for equal strings. 0 if memory is out. */
uint32_t sd_lexicon_add(sd_lexicon *lexicon, const char *text, size_t len);
const char *sd_lexicon_text(const sd_lexicon *lexicon, uint32_t number, size_t *len); /* until the next addition */
void sd_lexicon_free(sd_lexicon *lexicon);

/* ---- n-grams ---- */

typedef struct sd_gram {
    uint32_t prefix, item; /* prefix 0: a single item */
    uint32_t slot;
    uint32_t count;        /* for whoever counts; 0 when sd_bag_fill is called */
} sd_gram;

typedef struct sd_grams { /* start from {0} */
    sd_gram *gram;   /* [n + 1], from 1 */
    uint32_t *slots; /* [n_slots] */
    size_t n, cap, n_slots;
    bool failed;
} sd_grams;

uint32_t sd_grams_add(sd_grams *grams, uint32_t prefix, uint32_t item); /* 1 .. n; 0 if memory is out */
void sd_grams_clear(sd_grams *grams); /* forgets all, in the time that they took */
void sd_grams_free(sd_grams *grams);

/* The different n-grams of one text with how often each occurs. */
typedef struct sd_counted {
    uint32_t gram, count;
    int order;
} sd_counted;

typedef struct sd_bag { /* start from {0} */
    sd_counted *items; /* [n] in the order in which they first occur, low orders first at each place */
    size_t n, cap;
} sd_bag;

/* Counts the n-grams of orders lowest .. highest. Separators (item 0) end all n-grams. Memory that is out shows in
 * grams->failed. */
void sd_bag_fill(sd_bag *bag, sd_grams *grams, const uint32_t *items, size_t n, int lowest, int highest);
void sd_bag_free(sd_bag *bag);

/* Sets `count` of the bag's n-grams to how often they occur; or back to 0. */
void sd_bag_mark(const sd_bag *bag, sd_grams *grams);
void sd_bag_unmark(const sd_bag *bag, sd_grams *grams);

/* ---- texts as numbers ---- */

typedef struct sd_sequences { /* start from {0} */
    uint32_t *items; /* all texts one after the other */
    size_t *first;   /* [n + 1] */
    size_t n, n_items, cap, cap_first;
    bool failed;
} sd_sequences;

void sd_sequences_push(sd_sequences *sequences, uint32_t item); /* to the text that is not ended yet */
void sd_sequences_end(sd_sequences *sequences);                 /* ends a text, which may be empty */
void sd_sequences_free(sd_sequences *sequences);

static inline size_t sd_sequence_len(const sd_sequences *s, size_t i) { return s->first[i + 1] - s->first[i]; }
static inline const uint32_t *sd_sequence_at(const sd_sequences *s, size_t i)
{
    return s->items ? s->items + s->first[i] : NULL; /* NULL if all texts are empty */
}

#endif
