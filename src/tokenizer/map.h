/* SPDX-License-Identifier: MIT
 *
 * A hash map from 64-bit keys to 32-bit values: merge pairs, pieces by hash, edges of a trie. Insert only. */
#ifndef SD_TOKENIZER_MAP_H
#define SD_TOKENIZER_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SD_MAP_NONE UINT32_MAX /* what a missing key gives; not a value that can be stored */

typedef struct sd_map_slot {
    uint64_t key;
    uint32_t value; /* SD_MAP_NONE: the slot is empty */
} sd_map_slot;

/* Start from {0}; release with sd_map_free. */
typedef struct sd_map {
    sd_map_slot *slots; /* [mask + 1], a power of two, at most half full */
    size_t mask, n;
} sd_map;

/* Stores value under a key that is not there yet. False when memory is out; the map is unchanged then. */
bool sd_map_insert(sd_map *map, uint64_t key, uint32_t value);
void sd_map_free(sd_map *map);

/* Makes the low bits, which choose the slot, depend on every bit of x. */
static inline uint64_t sd_map_mix(uint64_t x)
{
    x ^= x >> 32;
    x *= 0x9E3779B97F4A7C15u; /* 2^64 over the golden ratio */
    return x ^ (x >> 32);
}

static inline uint32_t sd_map_get(const sd_map *map, uint64_t key)
{
    if (!map->slots) {
        return SD_MAP_NONE;
    }
    size_t i = (size_t)sd_map_mix(key) & map->mask;
    while (map->slots[i].value != SD_MAP_NONE && map->slots[i].key != key) {
        i = (i + 1) & map->mask;
    }
    return map->slots[i].value;
}

#endif
