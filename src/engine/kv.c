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

static size_t element_size(const sd_kv_shape *shape)
{
    return shape->type == SD_KV_F16 ? sizeof(uint16_t) : sizeof(float);
}

static size_t layer_elements(const sd_kv_shape *shape, int positions)
{
    return 2 * (size_t)positions * (size_t)shape->n_heads * (size_t)shape->head_dim;
}

size_t sd_kv_plan(const sd_kv_shape *shape, const sd_schedule *schedule, int n_prompt, int max_tokens)
{
    size_t elements = 0;
    for (int l = 0; l < shape->n_layers; l++) {
        elements += layer_elements(shape, sd_kv_layer_positions(schedule, l, n_prompt, max_tokens));
    }
    return elements * element_size(shape);
}

int sd_kv_create(sd_kv *kv, const sd_kv_shape *shape, const sd_schedule *schedule, int n_prompt, int max_tokens,
                 sd_error *err)
{
    *kv = (sd_kv){.shape = *shape, .bytes = sd_kv_plan(shape, schedule, n_prompt, max_tokens)};
    kv->layers = sd_calloc((size_t)shape->n_layers, sizeof *kv->layers);
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
    for (int l = 0; l < shape->n_layers; l++) {
        int cap = sd_kv_layer_positions(schedule, l, n_prompt, max_tokens);
        kv->layers[l] = (sd_kv_layer){.cap = cap, .offset = offset};
        offset += layer_elements(shape, cap);
    }
    return SD_OK;
}

void sd_kv_clear(sd_kv *kv)
{
    sd_free(kv->layers);
    sd_free_aligned(kv->data);
    *kv = (sd_kv){0};
}

/* block: heads before this one, the keys' first */
static void *head_block(const sd_kv *kv, int layer, int block)
{
    const sd_kv_layer *l = &kv->layers[layer];
    size_t elements = l->offset + (size_t)block * (size_t)l->cap * (size_t)kv->shape.head_dim;
    return kv->data + elements * element_size(&kv->shape);
}

void *sd_kv_keys(const sd_kv *kv, int layer, int head) { return head_block(kv, layer, head); }

void *sd_kv_values(const sd_kv *kv, int layer, int head) { return head_block(kv, layer, kv->shape.n_heads + head); }
