/* SPDX-License-Identifier: MIT
 *
 * Packing billions of random numbers would take minutes, so few are made: for each type and width some panels are
 * packed once, and every matrix of that type and width is copied together from them, each of its panels one that a hash
 * picks. Speed does not depend on it: a matrix is as large, and each of its bytes as unknown to the caches, as any. */
#include "src/model/random.h"

#include <math.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/error.h"
#include "src/base/rng.h"
#include "src/model/build.h"

enum { PANELS = 8, STORES = 8 }; /* stores: 2 types times 3 widths, and there is room */

typedef struct sd_panel_store {
    sd_matrix panels; /* PANELS of them; data NULL: not made yet */
    uint64_t seed;
    float *scratch;   /* [workers][SD_PANEL * k], while it is made */
} sd_panel_store;

typedef struct sd_maker {
    sd_model *model;
    uint64_t seed;
    uint64_t made; /* matrices and vectors so far: each has numbers of its own */
    sd_panel_store stores[STORES];
    int n_stores;
    sd_error *err;
} sd_maker;

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t state = a ^ b * 0xD1342543DE82EF95u;
    return sd_rng_splitmix(&state);
}

/* Uniform in -most .. most, two numbers from each draw. */
static void fill(float *x, size_t n, uint64_t seed, float most)
{
    sd_rng rng;
    sd_rng_seed(&rng, seed);
    const float scale = most * 0x1p-31f;
    for (size_t i = 0; i < n; i += 2) {
        const uint64_t bits = sd_rng_u64(&rng);
        x[i] = (float)(int32_t)(uint32_t)bits * scale;
        if (i + 1 < n) {
            x[i + 1] = (float)(int32_t)(uint32_t)(bits >> 32) * scale;
        }
    }
}

/* ---- panels ---- */

/* Rows of a store's panel, of variance 1 / k: sums over k inputs of variance 1 have variance 1. */
static void panel_rows(const sd_panel_store *store, int panel, int rows, float *to)
{
    const size_t k = (size_t)store->panels.k;
    fill(to, (size_t)rows * k, mix(store->seed, (uint64_t)panel), sqrtf(3.0f / (float)k));
}

static void make_panel(void *context, int panel, int worker)
{
    sd_panel_store *store = context;
    float *rows = store->scratch + (size_t)worker * SD_PANEL * (size_t)store->panels.k;
    panel_rows(store, panel, SD_PANEL, rows);
    sd_matrix_pack_rows(&store->panels, panel * SD_PANEL, SD_PANEL, rows);
}

/* The store for matrices like m; NULL with err set when memory is out. */
static const sd_panel_store *find_store(sd_maker *maker, const sd_matrix *m)
{
    for (int i = 0; i < maker->n_stores; i++) {
        const sd_matrix *panels = &maker->stores[i].panels;
        if (panels->type == m->type && panels->k == m->k) {
            return &maker->stores[i];
        }
    }
    sd_pool *pool = maker->model->pool;
    sd_panel_store *store = &maker->stores[maker->n_stores++];
    *store = (sd_panel_store){.panels = {.type = m->type, .n = PANELS * SD_PANEL, .k = m->k},
                              .seed = mix(maker->seed, (uint64_t)m->k)};
    const size_t bytes = sd_matrix_bytes(m->type, store->panels.n, m->k);
    store->panels.data = sd_malloc_aligned(bytes, 1);
    store->scratch = sd_malloc_aligned((size_t)sd_pool_size(pool) * SD_PANEL * (size_t)m->k, sizeof(float));
    if (!store->panels.data || !store->scratch) {
        sd_free_aligned(store->scratch);
        (void)sd_fail_memory(maker->err, bytes, "random weights");
        return NULL;
    }
    memset(store->panels.data, 0, bytes);
    sd_pool_run(pool, PANELS, make_panel, store);
    sd_free_aligned(store->scratch);
    store->scratch = NULL;
    return store;
}

typedef struct sd_copy_job {
    const sd_panel_store *store;
    sd_matrix *dst;
    size_t panel_bytes;
    uint64_t seed;
} sd_copy_job;

static int pick(const sd_copy_job *job, int panel) { return (int)(mix(job->seed, (uint64_t)panel) % PANELS); }

static void copy_panel(void *context, int panel, int worker)
{
    (void)worker;
    const sd_copy_job *job = context;
    const char *from = (const char *)job->store->panels.data + (size_t)pick(job, panel) * job->panel_bytes;
    memcpy((char *)job->dst->data + (size_t)panel * job->panel_bytes, from, job->panel_bytes);
}

/* A panel that is not full keeps zeros where it has no outputs, so it is packed for itself. */
static int pack_rest(sd_maker *maker, const sd_copy_job *job, int first, int rows)
{
    const size_t floats = (size_t)rows * (size_t)job->dst->k;
    float *scratch = sd_malloc_aligned(floats, sizeof *scratch);
    if (!scratch) {
        return sd_fail_memory(maker->err, floats * sizeof *scratch, "random weights");
    }
    panel_rows(job->store, pick(job, first / SD_PANEL), rows, scratch);
    sd_matrix_pack_rows(job->dst, first, rows, scratch);
    sd_free_aligned(scratch);
    return SD_OK;
}

/* ---- matrices and vectors ---- */

static int make_matrix(sd_maker *maker, sd_matrix *dst, sd_weight_type weights, int n, int k)
{
    int rc = sd_model_new_matrix(maker->model, dst, weights, n, k, "random weights", maker->err);
    if (rc != SD_OK) {
        return rc;
    }
    const sd_panel_store *store = find_store(maker, dst);
    if (!store) {
        return SD_ERR_MEMORY;
    }
    sd_copy_job job = {.store = store, .dst = dst, .panel_bytes = sd_matrix_bytes(dst->type, 1, k),
                       .seed = mix(maker->seed, ++maker->made)};
    sd_pool_run(maker->model->pool, n / SD_PANEL, copy_panel, &job);
    return n % SD_PANEL ? pack_rest(maker, &job, n / SD_PANEL * SD_PANEL, n % SD_PANEL) : SD_OK;
}

/* Values within `most` of `middle`. */
static int make_vector(sd_maker *maker, float **dst, int64_t n, float middle, float most)
{
    int rc = sd_model_new_vector(maker->model, dst, n, "random weights", maker->err);
    if (rc == SD_OK) {
        fill(*dst, (size_t)n, mix(maker->seed, ++maker->made), most);
        for (int64_t i = 0; i < n; i++) {
            (*dst)[i] += middle;
        }
    }
    return rc;
}

static int make_linear(sd_maker *maker, sd_linear *dst, int n, int k, bool bias)
{
    int rc = make_matrix(maker, &dst->w, maker->model->weights, n, k);
    return rc == SD_OK && bias ? make_vector(maker, &dst->bias, n, 0, 0.05f) : rc;
}

static int make_norm(sd_maker *maker, sd_norm *norm)
{
    const sd_config *c = &maker->model->config;
    int rc = c->norm_affine ? make_vector(maker, &norm->gain, c->hidden, 1, 0.1f) : SD_OK;
    return rc == SD_OK && c->norm_affine ? make_vector(maker, &norm->bias, c->hidden, 0, 0.05f) : rc;
}

static int make_layer(sd_maker *maker, sd_layer *layer)
{
    const sd_config *c = &maker->model->config;
    int rc = make_linear(maker, &layer->qkv, 3 * c->hidden, c->hidden, c->bias);
    rc = rc == SD_OK ? make_linear(maker, &layer->out, c->hidden, c->hidden, c->bias) : rc;
    rc = rc == SD_OK ? make_linear(maker, &layer->fc1, c->ffn, c->hidden, c->bias) : rc;
    rc = rc == SD_OK ? make_linear(maker, &layer->fc2, c->hidden, c->ffn, c->bias) : rc;
    rc = rc == SD_OK ? make_norm(maker, &layer->attn_norm) : rc;
    return rc == SD_OK ? make_norm(maker, &layer->ffn_norm) : rc;
}

static int make_global(sd_maker *maker)
{
    sd_model *m = maker->model;
    const sd_config *c = &m->config;
    int rc = make_matrix(maker, &m->embed, m->head_weights, c->vocab, c->embed);
    m->head = m->embed;
    if (rc == SD_OK && !c->tied) {
        rc = make_matrix(maker, &m->head, m->head_weights, c->vocab, c->embed);
    }
    if (rc == SD_OK && c->embed != c->hidden) {
        rc = make_linear(maker, &m->project_in, c->hidden, c->embed, false);
        rc = rc == SD_OK ? make_linear(maker, &m->project_out, c->embed, c->hidden, false) : rc;
    }
    const int64_t positions = sd_config_dim(c, SD_DIM_POSITIONS);
    rc = rc == SD_OK ? make_vector(maker, &m->positions, positions * c->hidden, 0, 0.05f) : rc;
    return rc == SD_OK && c->final_norm ? make_norm(maker, &m->final_norm) : rc;
}

static int make_model(sd_maker *maker, const sd_model_options *options)
{
    sd_model *m = maker->model;
    int rc = sd_model_start(m, options, maker->err);
    sd_model_choose_types(m, options, SD_WEIGHTS_F32);
    rc = rc == SD_OK ? sd_model_check_memory(m, maker->err) : rc;
    if (rc != SD_OK) {
        return rc;
    }
    const size_t layers = (size_t)m->config.n_layers;
    m->layers = sd_calloc(layers, sizeof *m->layers);
    if (!m->layers) {
        return sd_fail_memory(maker->err, layers * sizeof *m->layers, "random weights");
    }
    rc = make_global(maker);
    for (int l = 0; rc == SD_OK && l < m->config.n_layers; l++) {
        rc = make_layer(maker, &m->layers[l]);
    }
    for (int i = 0; i < maker->n_stores; i++) {
        sd_free_aligned(maker->stores[i].panels.data);
    }
    return rc;
}

int sd_model_random(sd_model **out, const sd_config *config, const sd_model_options *options, uint64_t seed,
                    sd_error *err)
{
    *out = NULL;
    sd_model_options defaults;
    if (!options) {
        sd_model_options_default(&defaults);
        options = &defaults;
    }
    int rc = sd_model_check_options(options, err);
    if (rc != SD_OK) {
        return rc;
    }
    sd_model *m = sd_calloc(1, sizeof *m);
    if (!m) {
        return sd_fail_memory(err, sizeof *m, "a model");
    }
    m->config = *config;
    sd_maker maker = {.model = m, .seed = mix(seed, 1), .err = err};
    rc = make_model(&maker, options);
    if (rc != SD_OK) {
        sd_model_free(m);
        return rc;
    }
    *out = m;
    return SD_OK;
}
