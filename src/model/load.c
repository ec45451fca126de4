/* SPDX-License-Identifier: MIT
 *
 * From a checkpoint's bytes to packed weights. Every matrix is packed panel by panel on the pool: each worker converts
 * the rows of one panel to f32 and packs them, so that the extra memory is one panel per worker. bf16 stays bf16. */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/cpu.h"
#include "src/base/error.h"
#include "src/model/build.h"
#include "src/model/packed.h"

/* A matrix made of up to three tensors, one below the other (queries, keys, values). */
typedef struct sd_pack_job {
    sd_matrix *dst;
    const sd_tensor *parts[3];
    int n_parts, part_rows;
    float *scratch; /* [workers][SD_PANEL * k] */
} sd_pack_job;

static void pack_panel(void *context, int panel, int worker)
{
    const sd_pack_job *job = context;
    int k = job->dst->k, first = panel * SD_PANEL;
    int last = first + SD_PANEL < job->dst->n ? first + SD_PANEL : job->dst->n;
    float *rows = job->scratch + (size_t)worker * SD_PANEL * (size_t)k;
    for (int o = first; o < last;) {
        int part = o / job->part_rows, row = o % job->part_rows;
        int n = job->part_rows - row < last - o ? job->part_rows - row : last - o;
        const sd_tensor *t = job->parts[part];
        if (t->dtype == SD_DTYPE_BF16 && job->dst->type == SD_W_BF16) {
            const char *src = (const char *)t->data + (size_t)row * (size_t)k * sizeof(uint16_t);
            sd_matrix_pack_rows_bf16(job->dst, o, n, src);
        } else {
            sd_tensor_read_f32(t, (int64_t)row * k, (int64_t)n * k, rows);
            sd_matrix_pack_rows(job->dst, o, n, rows);
        }
        o += n;
    }
}

void sd_model_pack_matrix(sd_pool *pool, sd_matrix *dst, const sd_tensor *const *parts, int n_parts, float *scratch)
{
    sd_pack_job job = {.dst = dst, .n_parts = n_parts, .part_rows = (int)parts[0]->shape[0], .scratch = scratch};
    memcpy(job.parts, parts, (size_t)n_parts * sizeof *parts);
    sd_pool_run(pool, sd_matrix_panels(dst->n), pack_panel, &job);
}

size_t sd_model_pack_scratch(const sd_config *c, const sd_pool *pool)
{
    int widest = c->hidden > c->ffn ? c->hidden : c->ffn;
    widest = widest > c->embed ? widest : c->embed;
    return (size_t)sd_pool_size(pool) * SD_PANEL * (size_t)widest;
}

typedef struct sd_loader {
    sd_model *model;
    const sd_checkpoint *checkpoint;
    const sd_binding *binding;
    float *scratch; /* [workers][SD_PANEL * widest input] */
    sd_error *err;
} sd_loader;

sd_wtype sd_model_matrix_type(sd_weight_type weights)
{
    switch (weights) {
    case SD_WEIGHTS_BF16: return SD_W_BF16;
    case SD_WEIGHTS_Q8: return SD_W_Q8;
    case SD_WEIGHTS_Q4: return SD_W_Q4;
    default: return SD_W_F32;
    }
}

int sd_model_new_matrix(sd_model *m, sd_matrix *dst, sd_weight_type weights, int n, int k, const char *name,
                        sd_error *err)
{
    sd_wtype type = sd_model_matrix_type(weights);
    *dst = (sd_matrix){.type = type, .n = n, .k = k};
    size_t bytes = sd_matrix_bytes(type, n, k);
    dst->data = sd_malloc_aligned(bytes, 1);
    if (!dst->data) {
        return sd_fail(err, SD_ERR_MEMORY, "out of memory: %zu bytes for tensor \"%s\"%s", bytes, name,
                       type == SD_W_F32    ? "; --weights bf16 needs half as much, q8 a quarter"
                       : type == SD_W_BF16 ? "; --weights q8 needs half as much"
                                           : "");
    }
    if (dst->n % SD_PANEL || k % SD_BLOCK) {
        memset(dst->data, 0, bytes); /* padding is computed with */
    }
    m->weight_bytes += bytes;
    m->n_params += (int64_t)n * k;
    return SD_OK;
}

static int load_matrix(sd_loader *ld, sd_matrix *dst, sd_weight_type weights, const sd_tensor *const *parts,
                       int n_parts)
{
    const sd_tensor *t = parts[0];
    int rc = sd_model_new_matrix(ld->model, dst, weights, n_parts * (int)t->shape[0], (int)t->shape[1], t->name,
                                 ld->err);
    if (rc != SD_OK) {
        return rc;
    }
    sd_model_pack_matrix(ld->model->pool, dst, parts, n_parts, ld->scratch);
    for (int i = 0; i < n_parts; i++) {
        sd_checkpoint_release(ld->checkpoint, parts[i]);
    }
    return SD_OK;
}

int sd_model_new_vector(sd_model *m, float **dst, int64_t n, const char *name, sd_error *err)
{
    *dst = sd_malloc_aligned((size_t)n, sizeof **dst);
    if (!*dst) {
        return sd_fail(err, SD_ERR_MEMORY, "out of memory: %zu bytes for tensor \"%s\"", (size_t)n * sizeof **dst,
                       name);
    }
    m->weight_bytes += (size_t)n * sizeof **dst;
    m->n_params += n;
    return SD_OK;
}

/* parts[i] NULL means that the configuration has no such vector: *dst stays NULL. */
static int load_vector(sd_loader *ld, float **dst, const sd_tensor *const *parts, int n_parts)
{
    if (!parts[0]) {
        return SD_OK;
    }
    int64_t n = parts[0]->n_elements;
    int rc = sd_model_new_vector(ld->model, dst, n_parts * n, parts[0]->name, ld->err);
    for (int i = 0; rc == SD_OK && i < n_parts; i++) {
        sd_tensor_read_f32(parts[i], 0, n, *dst + (int64_t)i * n);
    }
    return rc;
}

static int load_linear(sd_loader *ld, sd_linear *dst, const sd_tensor *const *w, const sd_tensor *const *bias,
                       int n_parts)
{
    int rc = load_matrix(ld, &dst->w, ld->model->weights, w, n_parts);
    return rc == SD_OK ? load_vector(ld, &dst->bias, bias, n_parts) : rc;
}

static int load_layer(sd_loader *ld, int l)
{
    sd_layer *layer = &ld->model->layers[l];
    const sd_tensor *const *t = ld->binding->layers + (size_t)l * (SD_SLOTS - SD_SLOT_LAYER);
#define SLOT(name) t[SD_SLOT_##name - SD_SLOT_LAYER]
    const sd_tensor *qkv[3] = {SLOT(Q), SLOT(K), SLOT(V)}, *qkv_bias[3] = {SLOT(Q_BIAS), SLOT(K_BIAS), SLOT(V_BIAS)};
    int rc = load_linear(ld, &layer->qkv, qkv, qkv_bias, 3);
    const struct {
        sd_linear *linear;
        const sd_tensor *const *w, *const *bias;
    } linears[] = {
        {&layer->out, &SLOT(OUT), &SLOT(OUT_BIAS)}, {&layer->fc1, &SLOT(FC1), &SLOT(FC1_BIAS)},
        {&layer->fc2, &SLOT(FC2), &SLOT(FC2_BIAS)},
    };
    for (size_t i = 0; rc == SD_OK && i < 3; i++) {
        rc = load_linear(ld, linears[i].linear, linears[i].w, linears[i].bias, 1);
    }
    const struct {
        float **vector;
        const sd_tensor *const *tensor;
    } norms[] = {
        {&layer->attn_norm.gain, &SLOT(ATTN_NORM_GAIN)}, {&layer->attn_norm.bias, &SLOT(ATTN_NORM_BIAS)},
        {&layer->ffn_norm.gain, &SLOT(FFN_NORM_GAIN)}, {&layer->ffn_norm.bias, &SLOT(FFN_NORM_BIAS)},
    };
#undef SLOT
    for (size_t i = 0; rc == SD_OK && i < 4; i++) {
        rc = load_vector(ld, norms[i].vector, norms[i].tensor, 1);
    }
    return rc;
}

static int load_global(sd_loader *ld)
{
    sd_model *m = ld->model;
    const sd_tensor *const *t = ld->binding->global;
    int rc = load_matrix(ld, &m->embed, m->head_weights, &t[SD_SLOT_EMBED], 1);
    if (rc == SD_OK && t[SD_SLOT_HEAD]) {
        rc = load_matrix(ld, &m->head, m->head_weights, &t[SD_SLOT_HEAD], 1);
    } else {
        m->head = m->embed;
    }
    if (rc == SD_OK && t[SD_SLOT_PROJECT_IN]) {
        rc = load_matrix(ld, &m->project_in.w, m->weights, &t[SD_SLOT_PROJECT_IN], 1);
    }
    if (rc == SD_OK && t[SD_SLOT_PROJECT_OUT]) {
        rc = load_matrix(ld, &m->project_out.w, m->weights, &t[SD_SLOT_PROJECT_OUT], 1);
    }
    if (rc == SD_OK) {
        rc = load_vector(ld, &m->positions, &t[SD_SLOT_POSITIONS], 1);
    }
    if (rc == SD_OK) {
        rc = load_vector(ld, &m->final_norm.gain, &t[SD_SLOT_FINAL_NORM_GAIN], 1);
    }
    return rc == SD_OK ? load_vector(ld, &m->final_norm.bias, &t[SD_SLOT_FINAL_NORM_BIAS], 1) : rc;
}

static int load_weights(sd_model *m, const sd_checkpoint *checkpoint, const sd_binding *binding, sd_error *err)
{
    const sd_config *c = &m->config;
    size_t floats = sd_model_pack_scratch(c, m->pool);
    sd_loader ld = {.model = m, .checkpoint = checkpoint, .binding = binding, .err = err,
                    .scratch = sd_malloc_aligned(floats, sizeof(float))};
    m->layers = sd_calloc((size_t)c->n_layers, sizeof *m->layers);
    int rc = SD_OK;
    if (!ld.scratch || !m->layers) {
        rc = sd_fail_memory(err, floats * sizeof(float), "loading weights");
    }
    if (rc == SD_OK) {
        rc = load_global(&ld);
    }
    for (int l = 0; rc == SD_OK && l < c->n_layers; l++) {
        rc = load_layer(&ld, l);
    }
    sd_free_aligned(ld.scratch);
    return rc;
}

static double bytes_a_weight(sd_weight_type weights)
{
    const sd_wtype type = sd_model_matrix_type(weights);
    return (double)sd_matrix_bytes(type, SD_PANEL, SD_BLOCK) / (SD_PANEL * SD_BLOCK);
}

/* Linux grants memory it does not have and kills the process later: refuse here what the machine cannot hold. */
int sd_model_check_memory(const sd_model *m, sd_error *err)
{
    const sd_config *c = &m->config;
    double layer = 4.0 * c->hidden * c->hidden + 2.0 * c->hidden * c->ffn;
    double head = (double)c->vocab * c->embed * (c->tied ? 1 : 2);
    double bytes = c->n_layers * layer * bytes_a_weight(m->weights) + head * bytes_a_weight(m->head_weights);
    double physical = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGE_SIZE);
    if (physical <= 0 || bytes <= physical) {
        return SD_OK;
    }
    static const sd_weight_type smaller[] = {SD_WEIGHTS_BF16, SD_WEIGHTS_Q8, SD_WEIGHTS_Q4};
    const char *advice = NULL;
    for (size_t i = 0; i < sizeof smaller / sizeof *smaller && !advice; i++) {
        const double less = (c->n_layers * layer + head) * bytes_a_weight(smaller[i]);
        advice = less < physical ? sd_weights_name(smaller[i]) : NULL;
    }
    return sd_fail(err, SD_ERR_MEMORY, "the weights need %.1f GB as %s, this machine has %.1f GB%s%s", bytes * 1e-9,
                   sd_weights_name(m->weights), physical * 1e-9, advice ? "; try --weights " : "",
                   advice ? advice : "");
}

const char *sd_weights_name(sd_weight_type weights)
{
    return weights == SD_WEIGHTS_AUTO ? "auto" : sd_wtype_name(sd_model_matrix_type(weights));
}

static sd_weight_type stored_type(const sd_binding *binding)
{
    const sd_dtype stored = binding->layers[SD_SLOT_FC1 - SD_SLOT_LAYER]->dtype;
    return stored == SD_DTYPE_BF16 ? SD_WEIGHTS_BF16 : SD_WEIGHTS_F32;
}

void sd_model_choose_types(sd_model *m, const sd_model_options *options, sd_weight_type stored)
{
    m->weights = options->weights != SD_WEIGHTS_AUTO ? options->weights : stored;
    m->head_weights = options->head != SD_WEIGHTS_AUTO    ? options->head
                      : m->weights == SD_WEIGHTS_Q4 ? SD_WEIGHTS_Q8
                                                    : m->weights;
    m->kv = options->kv != SD_KV_AUTO ? options->kv : m->weights == SD_WEIGHTS_F32 ? SD_KV_F32 : SD_KV_F16;
}

int sd_model_start(sd_model *m, const sd_model_options *options, sd_error *err)
{
    sd_cpu_level_id level;
    int rc = sd_cpu_select(&level, err);
    if (rc != SD_OK) {
        return rc;
    }
    m->kernels = sd_kernels_get(level);
    m->attention_scale = 1.0f / sqrtf((float)m->config.head_dim);
    return sd_pool_create(&m->pool, options->threads > 0 ? options->threads : sd_cpu_default_threads(), err);
}

static int load_from(sd_model *m, const char *dir, const sd_model_options *options, sd_error *err)
{
    int rc = sd_config_load(&m->config, dir, err);
    rc = rc == SD_OK ? sd_model_start(m, options, err) : rc;
    bool packed = false;
    rc = rc == SD_OK ? sd_packed_exists(dir, &packed, err) : rc;
    if (rc != SD_OK || packed) {
        return rc == SD_OK ? sd_packed_load(m, dir, options, err) : rc;
    }
    sd_checkpoint *checkpoint;
    rc = sd_checkpoint_open(&checkpoint, dir, options->no_mmap, err);
    if (rc != SD_OK) {
        return rc;
    }
    sd_binding binding;
    rc = sd_binding_make(&binding, &m->config, checkpoint, err);
    if (rc != SD_OK) {
        (void)sd_fail_prefix(err, rc, "%s", dir);
    } else {
        sd_model_choose_types(m, options, stored_type(&binding));
        rc = sd_model_check_memory(m, err);
        if (rc == SD_OK) {
            rc = load_weights(m, checkpoint, &binding, err);
        }
        sd_binding_clear(&binding);
    }
    sd_checkpoint_close(checkpoint);
    return rc;
}

void sd_model_options_default(sd_model_options *options) { *options = (sd_model_options){.weights = SD_WEIGHTS_AUTO}; }

int sd_model_check_options(const sd_model_options *options, sd_error *err)
{
    if (options->threads < 0 || (unsigned)options->weights > SD_WEIGHTS_Q4 ||
        (unsigned)options->head > SD_WEIGHTS_Q4 || (unsigned)options->kv > SD_KV_F16) {
        return sd_fail(err, SD_ERR_ARG,
                       "model options: threads %d, weights %d, head %d, kv %d; expected threads >= 0, SD_WEIGHTS_* and "
                       "SD_KV_*",
                       options->threads, (int)options->weights, (int)options->head, (int)options->kv);
    }
    return SD_OK;
}

int sd_model_load(sd_model **out, const char *dir, const sd_model_options *options, sd_error *err)
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
    rc = load_from(m, dir, options, err);
    if (rc != SD_OK) {
        sd_model_free(m);
        return rc;
    }
    *out = m;
    return SD_OK;
}

static void free_linear(sd_linear *linear)
{
    sd_free_aligned(linear->w.data);
    sd_free_aligned(linear->bias);
}

static void free_norm(sd_norm *norm)
{
    sd_free_aligned(norm->gain);
    sd_free_aligned(norm->bias);
}

void sd_model_free(sd_model *m)
{
    if (!m) {
        return;
    }
    for (int l = 0; m->layers && l < m->config.n_layers; l++) {
        sd_layer *layer = &m->layers[l];
        free_norm(&layer->attn_norm);
        free_norm(&layer->ffn_norm);
        free_linear(&layer->qkv);
        free_linear(&layer->out);
        free_linear(&layer->fc1);
        free_linear(&layer->fc2);
    }
    sd_free(m->layers);
    if (m->head.data != m->embed.data) {
        sd_free_aligned(m->head.data);
    }
    sd_free_aligned(m->embed.data);
    sd_free_aligned(m->positions);
    free_linear(&m->project_in);
    free_linear(&m->project_out);
    free_norm(&m->final_norm);
    sd_pool_free(m->pool);
    sd_free(m);
}

void sd_model_get_info(const sd_model *m, sd_model_info *info)
{
    const sd_config *c = &m->config;
    const sd_wtype type = sd_model_matrix_type(m->weights);
    size_t layer = sd_matrix_bytes(type, 3 * c->hidden, c->hidden) + sd_matrix_bytes(type, c->hidden, c->hidden) +
                   sd_matrix_bytes(type, c->ffn, c->hidden) + sd_matrix_bytes(type, c->hidden, c->ffn);
    *info = (sd_model_info){
        .arch = c->arch, .n_layers = c->n_layers, .hidden_size = c->hidden, .n_heads = c->n_heads,
        .head_dim = c->head_dim, .ffn_size = c->ffn, .vocab_size = c->vocab, .max_positions = c->max_positions,
        .bos_id = c->bos_id, .eos_id = c->eos_id, .pad_id = c->pad_id, .n_params = m->n_params,
        .weight_bytes = m->weight_bytes, .layer_bytes = layer,
        .head_bytes = sd_matrix_bytes(m->head.type, c->vocab, c->embed), .weights = m->weights,
        .head = m->head_weights, .kv = m->kv, .threads = sd_pool_size(m->pool),
    };
}
