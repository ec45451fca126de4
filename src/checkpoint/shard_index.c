/* SPDX-License-Identifier: MIT
 *
 * The index of a sharded checkpoint. Only "weight_map" is used: metadata.total_size is missing or wrong in the wild,
 * and every shard is checked against its own contents anyway. */
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/file.h"
#include "src/base/json.h"
#include "src/checkpoint/readers.h"

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int collect_shards(sd_shard_index *index, json_t *map, sd_error *err)
{
    size_t n = json_object_size(map);
    index->shards = sd_malloc(n, sizeof *index->shards);
    if (!index->shards) {
        return sd_fail_memory(err, n * sizeof *index->shards, "the shards' names");
    }
    size_t i = 0;
    for (void *it = json_object_iter(map); it; it = json_object_iter_next(map, it)) {
        const char *name = json_object_iter_key(it);
        const json_t *value = json_object_iter_value(it);
        if (!json_is_string(value)) {
            return sd_fail(err, SD_ERR_FORMAT, "weight_map gives tensor \"%s\" %s; expected a shard's file name",
                           sd_show(name, strlen(name)).text, sd_json_type_name(value));
        }
        const char *shard = json_string_value(value);
        if (!sd_path_is_contained(shard)) {
            return sd_fail(err, SD_ERR_FORMAT,
                           "weight_map puts tensor \"%s\" into \"%s\", which is not inside the directory",
                           sd_show(name, strlen(name)).text, sd_show(shard, strlen(shard)).text);
        }
        index->shards[i++] = shard;
    }
    qsort(index->shards, n, sizeof *index->shards, by_text);
    for (i = 0; i < n; i++) {
        if (i == 0 || strcmp(index->shards[i], index->shards[index->n_shards - 1]) != 0) {
            index->shards[index->n_shards++] = index->shards[i];
        }
    }
    return SD_OK;
}

int sd_shard_index_parse(sd_shard_index *index, const char *text, size_t len, const char *path, sd_error *err)
{
    *index = (sd_shard_index){0};
    int rc = sd_json_parse(&index->root, text, len, path, err);
    if (rc != SD_OK) {
        return rc;
    }
    json_t *map = json_object_get(index->root, "weight_map");
    if (!json_is_object(map)) {
        rc = sd_fail(err, SD_ERR_FORMAT, "%s: expected an object \"weight_map\", found %s", path,
                     sd_json_type_name(map));
    } else if (json_object_size(map) == 0) {
        rc = sd_fail(err, SD_ERR_FORMAT, "%s: \"weight_map\" is empty: it names no tensor", path);
    } else {
        index->weight_map = map;
        rc = collect_shards(index, map, err);
        if (rc != SD_OK) {
            rc = sd_fail_prefix(err, rc, "%s", path);
        }
    }
    if (rc != SD_OK) {
        sd_shard_index_clear(index);
    }
    return rc;
}

void sd_shard_index_clear(sd_shard_index *index)
{
    json_decref(index->root);
    sd_free(index->shards);
    *index = (sd_shard_index){0};
}
