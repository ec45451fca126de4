/* SPDX-License-Identifier: MIT
 *
 * The KV cache of one row: per layer exactly the entries that its schedule will ever write. Layer l holds the prompt
 * (if the prompt runs it) and then the steps in which l runs; these are the first positions of the row, because budgets
 * only fall. So an entry's index is its absolute position, and a layer that runs always finds every earlier
 * position. */
#ifndef SD_ENGINE_KV_H
#define SD_ENGINE_KV_H

#include <stddef.h>

#include "src/base/error.h"
#include "src/schedule/schedule.h"

typedef struct sd_kv_layer {
    int len, cap;   /* positions held, positions planned */
    size_t offset;  /* elements from the start of data: keys [heads][cap][head_dim], then values likewise */
} sd_kv_layer;

typedef struct sd_kv_shape {
    int n_layers, n_heads, head_dim;
    sd_kv_type type; /* SD_KV_F32 or SD_KV_F16 */
} sd_kv_shape;

typedef struct sd_kv {
    char *data;          /* one block, 64-byte aligned, of f32 or f16 elements */
    size_t bytes;        /* of data: the planned size exactly */
    sd_kv_layer *layers; /* [n_layers] */
    sd_kv_shape shape;
} sd_kv;

/* Positions that layer l of a row will hold. schedule NULL: all layers. The last token generated is never fed. */
int sd_kv_layer_positions(const sd_schedule *schedule, int layer, int n_prompt, int max_tokens);

/* Bytes of a row's cache: the sum over layers of positions * 2 * n_heads * head_dim elements. */
size_t sd_kv_plan(const sd_kv_shape *shape, const sd_schedule *schedule, int n_prompt, int max_tokens);

int sd_kv_create(sd_kv *kv, const sd_kv_shape *shape, const sd_schedule *schedule, int n_prompt, int max_tokens,
                 sd_error *err);
void sd_kv_clear(sd_kv *kv); /* tolerates {0} */

/* Keys and values of one head of one layer: [cap, head_dim] elements of the cache's type. */
void *sd_kv_keys(const sd_kv *kv, int layer, int head);
void *sd_kv_values(const sd_kv *kv, int layer, int head);

#endif
