/* SPDX-License-Identifier: MIT */
#include "src/tokenizer/added.h"

#include "src/base/alloc.h"

static bool new_node(sd_added *added, uint32_t *node)
{
    if (added->n_nodes == added->cap_nodes) {
        uint32_t cap = added->cap_nodes ? 2 * added->cap_nodes : 64;
        int32_t *ids = cap > added->cap_nodes ? sd_realloc(added->ids, cap, sizeof *ids) : NULL;
        if (!ids) {
            return false;
        }
        added->ids = ids;
        added->cap_nodes = cap;
    }
    *node = added->n_nodes++;
    added->ids[*node] = -1;
    return true;
}

static uint64_t edge(uint32_t node, char byte) { return (uint64_t)node << 8 | (unsigned char)byte; }

bool sd_added_insert(sd_added *added, const char *text, size_t len, int32_t id)
{
    uint32_t node = 0;
    if (added->n_nodes == 0 && !new_node(added, &node)) {
        return false;
    }
    for (size_t i = 0; i < len; i++) {
        uint32_t child = sd_map_get(&added->edges, edge(node, text[i]));
        if (child == SD_MAP_NONE &&
            (!new_node(added, &child) || !sd_map_insert(&added->edges, edge(node, text[i]), child))) {
            return false;
        }
        node = child;
    }
    if (added->ids[node] < 0) {
        added->ids[node] = id;
    }
    added->begins[(unsigned char)text[0]] = true;
    return true;
}

void sd_added_free(sd_added *added)
{
    sd_map_free(&added->edges);
    sd_free(added->ids);
    *added = (sd_added){0};
}

int32_t sd_added_find(const sd_added *added, const char *text, size_t len, size_t from, size_t *start, size_t *end)
{
    const bool *begins = added->begins;
    for (size_t at = from; added->n_nodes > 0 && at < len; at++) {
        while (at < len && !begins[(unsigned char)text[at]]) {
            at++;
        }
        int32_t id = -1;
        uint32_t node = 0;
        for (size_t i = at; i < len; i++) {
            node = sd_map_get(&added->edges, edge(node, text[i]));
            if (node == SD_MAP_NONE) {
                break;
            }
            if (added->ids[node] >= 0) {
                id = added->ids[node];
                *end = i + 1;
            }
        }
        if (id >= 0) {
            *start = at;
            return id;
        }
    }
    return -1;
}
