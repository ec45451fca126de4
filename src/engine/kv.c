/* SPDX-License-Identifier: MIT */
#include "src/engine/kv.h"

#include "src/base/alloc.h"

int sd_kv_layer_positions(const sd_schedule *schedule, int layer, int n_prompt, int max_tokens)
{
    if (!schedule) {
        return n_prompt + max_tokens - 1;
    }
    int prompt = sd_schedule_runs(schedule, layer, -1) ? n_prompt : 0;
    return prompt + sd_schedule_layer_steps(schedule, layer, max_tokens - 1);
}

static size_t layer_floats(int positions, int n_heads, int head_dim)
{
    return 2 * (size_t)positions * (size_t)n_heads * (size_t)head_dim;
}

size_t sd_kv_plan(const sd_schedule *schedule, int n_layers, int n_heads, int head_dim, int n_prompt, int max_tokens)
{
    size_t floats = 0;
    for (int l = 0; l < n_layers; l++) {
        floats += layer_floats(sd_kv_layer_positions(schedule, l, n_prompt, max_tokens), n_heads, head_dim);
    }
    return floats * sizeof(float);
}

int sd_kv_create(sd_kv *kv, const sd_schedule *schedule, int n_layers, int n_heads, int head_dim, int n_prompt,
                 int max_tokens, sd_error *err)
{
    *kv = (sd_kv){.n_layers = n_layers, .n_heads = n_heads, .head_dim = head_dim};
    kv->bytes = sd_kv_plan(schedule, n_layers, n_heads, head_dim, n_prompt, max_tokens);
    kv->layers = sd_calloc((size_t)n_layers, sizeof *kv->layers);
    kv->data = sd_malloc_aligned(kv->bytes, 1);
    if (!kv->layers || !kv->data) {
        size_t bytes = kv->bytes;
        sd_kv_clear(kv);
        return sd_fail(err, SD_ERR_MEMORY,
                       "out of memory: %zu bytes for the KV cache of a row of %d prompt tokens and up to %d "
                       "generated ones; use a smaller batch or fewer tokens",
                       bytes, n_prompt, max_tokens);
    }
    size_t offset = 0;
    for (int l = 0; l < n_layers; l++) {
        int cap = sd_kv_layer_positions(schedule, l, n_prompt, max_tokens);
        kv->layers[l] = (sd_kv_layer){.cap = cap, .offset = offset};
        offset += layer_floats(cap, n_heads, head_dim);
    }
    return SD_OK;
}

void sd_kv_clear(sd_kv *kv)
{
    sd_free(kv->layers);
    sd_free_aligned(kv->data);
    *kv = (sd_kv){0};
}

float *sd_kv_keys(const sd_kv *kv, int layer, int head)
{
    const sd_kv_layer *l = &kv->layers[layer];
    return kv->data + l->offset + (size_t)head * (size_t)l->cap * (size_t)kv->head_dim;
}

float *sd_kv_values(const sd_kv *kv, int layer, int head)
{
    const sd_kv_layer *l = &kv->layers[layer];
    return kv->data + l->offset + (size_t)(kv->n_heads + head) * (size_t)l->cap * (size_t)kv->head_dim;
}
