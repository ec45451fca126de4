/* SPDX-License-Identifier: MIT */
#include "src/eval/lexicon.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/base/hash.h"

enum { FIRST_SLOTS = 256 };

/* Makes room for one more element of `size` bytes; keeps the array on failure. */
static bool grow(void **array, size_t *cap, size_t n, size_t size)
{
    if (n < *cap) {
        return true;
    }
    const size_t wanted = *cap ? 2 * *cap : 64;
    void *bigger = sd_realloc(*array, wanted, size);
    if (bigger) {
        *array = bigger;
        *cap = wanted;
    }
    return bigger != NULL;
}

/* ---- strings ---- */

const char *sd_lexicon_text(const sd_lexicon *l, uint32_t number, size_t *len)
{
    const size_t start = number > 1 ? l->ends[number - 2] : 0;
    *len = l->ends[number - 1] - start;
    return l->text.data ? l->text.data + start : "";
}

static size_t find_string(const sd_lexicon *l, const char *text, size_t len)
{
    size_t slot = sd_hash(SD_HASH_START, text, len) & (l->n_slots - 1);
    while (l->slots[slot]) {
        size_t n;
        const char *known = sd_lexicon_text(l, l->slots[slot], &n);
        if (n == len && memcmp(known, text, len) == 0) {
            break;
        }
        slot = (slot + 1) & (l->n_slots - 1);
    }
    return slot;
}

static bool rehash_strings(sd_lexicon *l)
{
    const size_t n_slots = l->n_slots ? 2 * l->n_slots : FIRST_SLOTS;
    uint32_t *slots = n_slots < UINT32_MAX ? sd_calloc(n_slots, sizeof *slots) : NULL;
    if (!slots) {
        return false;
    }
    sd_free(l->slots);
    l->slots = slots;
    l->n_slots = n_slots;
    for (uint32_t i = 1; i <= l->n; i++) {
        size_t len;
        const char *text = sd_lexicon_text(l, i, &len);
        l->slots[find_string(l, text, len)] = i;
    }
    return true;
}

uint32_t sd_lexicon_add(sd_lexicon *l, const char *text, size_t len)
{
    if (l->failed || (2 * (l->n + 1) > l->n_slots && !rehash_strings(l))) {
        l->failed = true;
        return 0;
    }
    const size_t slot = find_string(l, text, len);
    if (!l->slots[slot]) {
        void *ends = l->ends;
        const bool room = grow(&ends, &l->cap, l->n, sizeof *l->ends);
        l->ends = ends;
        sd_buf_add(&l->text, text, len);
        if (!room || l->text.failed) {
            l->failed = true;
            return 0;
        }
        l->ends[l->n++] = l->text.len;
        l->slots[slot] = (uint32_t)l->n;
    }
    return l->slots[slot];
}

void sd_lexicon_free(sd_lexicon *l)
{
    sd_buf_free(&l->text);
    sd_free(l->ends);
    sd_free(l->slots);
    *l = (sd_lexicon){0};
}

/* ---- n-grams ---- */

static size_t find_gram(const sd_grams *g, uint32_t prefix, uint32_t item)
{
    uint64_t h = ((uint64_t)prefix << 32 | item) * UINT64_C(0x9E3779B97F4A7C15);
    size_t slot = (size_t)(h ^ h >> 32) & (g->n_slots - 1);
    while (g->slots[slot] && (g->gram[g->slots[slot]].prefix != prefix || g->gram[g->slots[slot]].item != item)) {
        slot = (slot + 1) & (g->n_slots - 1);
    }
    return slot;
}

static bool rehash_grams(sd_grams *g)
{
    const size_t n_slots = g->n_slots ? 2 * g->n_slots : FIRST_SLOTS;
    uint32_t *slots = n_slots < UINT32_MAX ? sd_calloc(n_slots, sizeof *slots) : NULL;
    if (!slots) {
        return false;
    }
    sd_free(g->slots);
    g->slots = slots;
    g->n_slots = n_slots;
    for (uint32_t i = 1; i <= g->n; i++) {
        const size_t slot = find_gram(g, g->gram[i].prefix, g->gram[i].item);
        g->slots[slot] = i;
        g->gram[i].slot = (uint32_t)slot;
    }
    return true;
}

uint32_t sd_grams_add(sd_grams *g, uint32_t prefix, uint32_t item)
{
    void *array = g->gram;
    bool room = !g->failed && grow(&array, &g->cap, g->n + 1, sizeof *g->gram);
    g->gram = array;
    room = room && (2 * (g->n + 1) <= g->n_slots || rehash_grams(g));
    if (!room) {
        g->failed = true;
        return 0;
    }
    const size_t slot = find_gram(g, prefix, item);
    if (!g->slots[slot]) {
        g->slots[slot] = (uint32_t)++g->n;
        g->gram[g->n] = (sd_gram){.prefix = prefix, .item = item, .slot = (uint32_t)slot};
    }
    return g->slots[slot];
}

void sd_grams_clear(sd_grams *g)
{
    for (size_t i = 1; i <= g->n; i++) {
        g->slots[g->gram[i].slot] = 0;
    }
    g->n = 0;
}

void sd_grams_free(sd_grams *g)
{
    sd_free(g->gram);
    sd_free(g->slots);
    *g = (sd_grams){0};
}

/* ---- bags ---- */

void sd_bag_fill(sd_bag *bag, sd_grams *g, const uint32_t *items, size_t n, int lowest, int highest)
{
    bag->n = 0;
    for (size_t i = 0; i < n && !g->failed; i++) {
        uint32_t gram = 0;
        for (int order = 1; order <= highest && i + (size_t)order <= n; order++) {
            const uint32_t item = items[i + (size_t)order - 1];
            gram = item ? sd_grams_add(g, gram, item) : 0;
            if (gram == 0) {
                break;
            }
            if (order < lowest || g->gram[gram].count++ > 0) {
                continue;
            }
            void *array = bag->items;
            const bool room = grow(&array, &bag->cap, bag->n, sizeof *bag->items);
            bag->items = array;
            if (!room) {
                g->failed = true;
                break;
            }
            bag->items[bag->n++] = (sd_counted){.gram = gram, .order = order};
        }
    }
    for (size_t i = 0; i < bag->n; i++) {
        sd_gram *gram = &g->gram[bag->items[i].gram];
        bag->items[i].count = gram->count;
        gram->count = 0;
    }
}

void sd_bag_free(sd_bag *bag)
{
    sd_free(bag->items);
    *bag = (sd_bag){0};
}

void sd_bag_mark(const sd_bag *bag, sd_grams *g)
{
    for (size_t i = 0; i < bag->n; i++) {
        g->gram[bag->items[i].gram].count = bag->items[i].count;
    }
}

void sd_bag_unmark(const sd_bag *bag, sd_grams *g)
{
    for (size_t i = 0; i < bag->n; i++) {
        g->gram[bag->items[i].gram].count = 0;
    }
}

/* ---- texts as numbers ---- */

void sd_sequences_push(sd_sequences *s, uint32_t item)
{
    void *array = s->items;
    s->failed = s->failed || !grow(&array, &s->cap, s->n_items, sizeof *s->items);
    s->items = array;
    if (!s->failed) {
        s->items[s->n_items++] = item;
    }
}

void sd_sequences_end(sd_sequences *s)
{
    void *array = s->first;
    s->failed = s->failed || !grow(&array, &s->cap_first, s->n + 1, sizeof *s->first);
    s->first = array;
    if (!s->failed) {
        s->first[0] = 0;
        s->first[++s->n] = s->n_items;
    }
}

void sd_sequences_free(sd_sequences *s)
{
    sd_free(s->items);
    sd_free(s->first);
    *s = (sd_sequences){0};
}
