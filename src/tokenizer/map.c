/* SPDX-License-Identifier: MIT */
#include "src/tokenizer/map.h"

#include "src/base/alloc.h"

static void place(sd_map *map, uint64_t key, uint32_t value)
{
    size_t i = (size_t)sd_map_mix(key) & map->mask;
    while (map->slots[i].value != SD_MAP_NONE) {
        i = (i + 1) & map->mask;
    }
    map->slots[i] = (sd_map_slot){key, value};
}

static bool grow(sd_map *map)
{
    size_t size = map->slots ? 2 * (map->mask + 1) : 16;
    sd_map larger = {sd_malloc(size, sizeof *larger.slots), size - 1, map->n};
    if (!larger.slots) {
        return false;
    }
    for (size_t i = 0; i < size; i++) {
        larger.slots[i] = (sd_map_slot){0, SD_MAP_NONE};
    }
    for (size_t i = 0; map->slots && i <= map->mask; i++) {
        if (map->slots[i].value != SD_MAP_NONE) {
            place(&larger, map->slots[i].key, map->slots[i].value);
        }
    }
    sd_free(map->slots);
    *map = larger;
    return true;
}

bool sd_map_insert(sd_map *map, uint64_t key, uint32_t value)
{
    if ((!map->slots || 2 * (map->n + 1) > map->mask + 1) && !grow(map)) {
        return false;
    }
    place(map, key, value);
    map->n++;
    return true;
}

void sd_map_free(sd_map *map)
{
    sd_free(map->slots);
    *map = (sd_map){0};
}
