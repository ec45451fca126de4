/* SPDX-License-Identifier: MIT */
#include "src/base/hash.h"
#include "src/model/model.h"

/* A prime number of words apart, so that over all matrices every column is met. */
enum { STRIDE_WORDS = 509 };

static uint64_t hash_matrix(uint64_t hash, const sd_matrix *m)
{
    if (m->data) {
        size_t words = sd_matrix_bytes(m->type, m->n, m->k) / sizeof(uint64_t);
        const uint64_t *data = m->data;
        for (size_t i = 0; i < words; i += STRIDE_WORDS) {
            hash = sd_hash(hash, &data[i], sizeof data[i]);
        }
    }
    return hash;
}

uint64_t sd_model_fingerprint(const sd_model *m)
{
    const sd_config *c = &m->config;
    const int facts[] = {
        c->n_layers, c->hidden, c->n_heads, c->ffn, c->vocab, c->embed, c->max_positions, c->pre_norm, c->final_norm,
        c->bias, c->norm_affine, c->tied, (int)c->activation, (int)m->weights, (int)m->head_weights, (int)m->kv,
    };
    uint64_t hash = sd_hash(SD_HASH_START, facts, sizeof facts);
    hash = hash_matrix(hash, &m->embed);
    hash = hash_matrix(hash, &m->head);
    for (int l = 0; l < c->n_layers; l++) {
        const sd_layer *layer = &m->layers[l];
        hash = hash_matrix(hash, &layer->qkv.w);
        hash = hash_matrix(hash, &layer->out.w);
        hash = hash_matrix(hash, &layer->fc1.w);
        hash = hash_matrix(hash, &layer->fc2.w);
    }
    return hash;
}
