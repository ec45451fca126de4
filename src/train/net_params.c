/* SPDX-License-Identifier: MIT
 *
 * Parameters as one array of f32, in an order that follows from the architecture's rows; where they come from, and the
 * files that they go to. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/file.h"
#include "src/base/half.h"
#include "src/base/rng.h"
#include "src/checkpoint/safetensors.h"
#include "src/train/net_internal.h"

/* ---- layout ---- */

/* A layer's parameters in memory. */
static const sd_slot layer_order[] = {
    SD_SLOT_ATTN_NORM_GAIN, SD_SLOT_ATTN_NORM_BIAS, SD_SLOT_Q, SD_SLOT_K, SD_SLOT_V, SD_SLOT_Q_BIAS, SD_SLOT_K_BIAS,
    SD_SLOT_V_BIAS, SD_SLOT_OUT, SD_SLOT_OUT_BIAS, SD_SLOT_FFN_NORM_GAIN, SD_SLOT_FFN_NORM_BIAS, SD_SLOT_FC1,
    SD_SLOT_FC1_BIAS, SD_SLOT_FC2, SD_SLOT_FC2_BIAS,
};
enum { LAYER_SLOTS = SD_SLOTS - SD_SLOT_LAYER, ALIGN = 16 };
_Static_assert(sizeof layer_order / sizeof *layer_order == LAYER_SLOTS, "every slot of a layer has its place");

static const sd_tensor_row *find_row(const sd_arch *arch, const sd_config *config, sd_slot slot)
{
    for (size_t i = 0; i < arch->n_rows; i++) {
        const sd_tensor_row *row = &arch->rows[i];
        if (row->slot == slot) {
            return !row->exists || row->exists(config) ? row : NULL;
        }
    }
    return NULL;
}

static bool follows_its_like(sd_slot slot)
{
    return slot == SD_SLOT_K || slot == SD_SLOT_V || slot == SD_SLOT_K_BIAS || slot == SD_SLOT_V_BIAS;
}

static size_t place(sd_params *p, const sd_arch *arch, const sd_tensor_row *row, sd_slot slot, int layer)
{
    static const sd_dim head_dims[2] = {SD_DIM_VOCAB, SD_DIM_EMBED};
    const sd_dim *dims = row ? row->dims : head_dims;
    sd_param *param = &p->list[p->n_list++];
    *param = (sd_param){.row = row, .layer = layer, .rank = dims[1] == SD_DIM_NONE ? 1 : 2};
    if (row) {
        sd_tensor_row_name(param->name, arch->prefixes[0], row, layer);
    } else {
        (void)snprintf(param->name, sizeof param->name, "%s", arch->head_names[0]);
    }
    param->n = 1;
    for (int i = 0; i < param->rank; i++) {
        param->shape[i] = sd_config_dim(&p->config, dims[i]);
        param->n *= (size_t)param->shape[i];
    }
    if (!follows_its_like(slot)) {
        p->n = (p->n + ALIGN - 1) / ALIGN * ALIGN;
    }
    param->at = p->n;
    p->n += param->n;
    return param->at;
}

int sd_params_lay_out(sd_params *p, const sd_config *config, sd_error *err)
{
    *p = (sd_params){.config = *config};
    const sd_arch *arch = sd_arch_find(config->arch);
    const size_t most = SD_SLOT_LAYER + (size_t)config->n_layers * LAYER_SLOTS;
    p->list = sd_calloc(most, sizeof *p->list);
    p->layers = sd_calloc((size_t)config->n_layers, sizeof *p->layers);
    if (!p->list || !p->layers) {
        sd_params_clear(p);
        return sd_fail_memory(err, most * sizeof *p->list, "the list of parameters");
    }
    for (sd_slot slot = 0; slot < SD_SLOT_LAYER; slot++) {
        const sd_tensor_row *row = find_row(arch, config, slot);
        const bool is_head = slot == SD_SLOT_HEAD && !config->tied;
        p->global[slot] = row || is_head ? place(p, arch, row, slot, 0) : SD_NO_PARAM;
    }
    for (int l = 0; l < config->n_layers; l++) {
        for (size_t i = 0; i < LAYER_SLOTS; i++) {
            const sd_slot slot = layer_order[i];
            const sd_tensor_row *row = find_row(arch, config, slot);
            p->layers[l][slot - SD_SLOT_LAYER] = row ? place(p, arch, row, slot, l) : SD_NO_PARAM;
        }
    }
    p->n = (p->n + ALIGN - 1) / ALIGN * ALIGN;
    return SD_OK;
}

void sd_params_clear(sd_params *p)
{
    sd_free(p->list);
    sd_free(p->layers);
    sd_free_aligned(p->values);
    *p = (sd_params){0};
}

static int allocate(sd_params *p, sd_error *err)
{
    p->values = sd_malloc_aligned(p->n, sizeof *p->values);
    if (!p->values) {
        return sd_fail_memory(err, p->n * sizeof *p->values, "the weights");
    }
    memset(p->values, 0, p->n * sizeof *p->values);
    return SD_OK;
}

/* ---- where they come from ---- */

int sd_params_load(sd_params *p, const char *dir, sd_error *err)
{
    sd_checkpoint *checkpoint = NULL;
    sd_binding binding = {0};
    sd_config config = p->config;
    int rc = sd_checkpoint_open(&checkpoint, dir, false, err);
    rc = rc == SD_OK ? sd_binding_make(&binding, &config, checkpoint, err) : rc;
    if (rc == SD_OK && config.vocab != p->config.vocab) { /* the embedding's rows decide */
        sd_params_clear(p);
        rc = sd_params_lay_out(p, &config, err);
    }
    rc = rc == SD_OK ? allocate(p, err) : rc;
    for (size_t i = 0; rc == SD_OK && i < p->n_list; i++) {
        const sd_param *param = &p->list[i];
        const sd_slot slot = param->row ? param->row->slot : SD_SLOT_HEAD;
        const sd_tensor *t = slot < SD_SLOT_LAYER ? binding.global[slot]
                                 : binding.layers[(size_t)param->layer * LAYER_SLOTS + (size_t)(slot - SD_SLOT_LAYER)];
        sd_tensor_read_f32(t, 0, (int64_t)param->n, p->values + param->at);
        sd_checkpoint_release(checkpoint, t);
    }
    sd_binding_clear(&binding);
    sd_checkpoint_close(checkpoint);
    return rc;
}

/* Two standard normal numbers (Box and Muller). */
static void normal_pair(sd_rng *rng, float pair[2])
{
    const double radius = sqrt(-2.0 * log(1.0 - sd_rng_double(rng))), angle = 6.283185307179586 * sd_rng_double(rng);
    pair[0] = (float)(radius * cos(angle));
    pair[1] = (float)(radius * sin(angle));
}

int sd_params_random(sd_params *p, uint64_t seed, float std, sd_error *err)
{
    int rc = allocate(p, err);
    sd_rng rng;
    sd_rng_seed(&rng, seed);
    for (size_t i = 0; rc == SD_OK && i < p->n_list; i++) {
        const sd_param *param = &p->list[i];
        const sd_slot slot = param->row ? param->row->slot : SD_SLOT_HEAD;
        float *values = p->values + param->at;
        if (slot == SD_SLOT_ATTN_NORM_GAIN || slot == SD_SLOT_FFN_NORM_GAIN || slot == SD_SLOT_FINAL_NORM_GAIN) {
            for (size_t k = 0; k < param->n; k++) {
                values[k] = 1.0f;
            }
        } else if (param->rank == 2) {
            for (size_t k = 0; k < param->n; k += 2) {
                float pair[2];
                normal_pair(&rng, pair);
                for (size_t j = 0; j < 2 && k + j < param->n; j++) {
                    values[k + j] = std * pair[j];
                }
            }
        }
        if (slot == SD_SLOT_EMBED && p->config.pad_id >= 0 && p->config.pad_id < p->config.vocab) {
            const size_t width = (size_t)p->config.embed;
            memset(values + (size_t)p->config.pad_id * width, 0, width * sizeof *values);
        }
    }
    return rc;
}

/* ---- where they go ---- */

static const char *const state_names[] = {"moment1", "moment2", "weights"}; /* in the order of names */
enum { STATES = 3 };

int sd_net_save_state(const sd_net *net, const char *path, sd_error *err)
{
    const float *arrays[STATES] = {net->m, net->v, net->params.values};
    sd_tensor_source sources[STATES];
    for (int i = 0; i < STATES; i++) {
        sources[i] = (sd_tensor_source){.name = state_names[i], .dtype = SD_DTYPE_F32, .rank = 1,
                                        .shape = {(int64_t)net->params.n}, .data = arrays[i]};
    }
    return sd_safetensors_write(path, sources, STATES, err);
}

int sd_net_load_state(sd_net *net, const char *path, sd_error *err)
{
    float *arrays[STATES] = {net->m, net->v, net->params.values};
    sd_safetensors_file file;
    int rc = sd_safetensors_file_open(&file, path, err);
    if (rc != SD_OK) {
        return rc;
    }
    for (int i = 0; rc == SD_OK && i < STATES; i++) { /* all are checked before the first is read */
        const sd_tensor *t = sd_tensor_list_find(&file.tensors, state_names[i]);
        if (!t || t->dtype != SD_DTYPE_F32 || t->n_elements != (int64_t)net->params.n) {
            rc = sd_fail(err, SD_ERR_FORMAT, "%s: \"%s\" is %s; expected %zu numbers of type F32: the state of another "
                         "model", path, state_names[i], t ? "of another size or type" : "missing", net->params.n);
        }
    }
    for (int i = 0; rc == SD_OK && i < STATES; i++) {
        const sd_tensor *t = sd_tensor_list_find(&file.tensors, state_names[i]);
        rc = sd_read_at(file.fd, arrays[i], net->params.n * sizeof(float), (size_t)(file.data_at + t->offset), err);
    }
    sd_safetensors_file_close(&file);
    return rc;
}

static void convert(void *dst, const float *src, size_t n, sd_dtype dtype)
{
    for (size_t i = 0; i < n; i++) {
        ((uint16_t *)dst)[i] = dtype == SD_DTYPE_F16 ? sd_f32_to_f16(src[i]) : sd_f32_to_bf16(src[i]);
    }
}

int sd_net_save_weights(const sd_net *net, const char *path, sd_dtype dtype, sd_error *err)
{
    const sd_params *p = &net->params;
    if (dtype != SD_DTYPE_F32 && dtype != SD_DTYPE_F16 && dtype != SD_DTYPE_BF16) {
        return sd_fail(err, SD_ERR_ARG, "weights are saved as F32, F16 or BF16, not as %s", sd_dtype_name(dtype));
    }
    sd_tensor_source *sources = sd_calloc(p->n_list, sizeof *sources);
    uint16_t *halves = dtype == SD_DTYPE_F32 ? NULL : sd_malloc(p->n, sizeof *halves);
    if (!sources || (dtype != SD_DTYPE_F32 && !halves)) {
        sd_free(sources);
        sd_free(halves);
        return sd_fail_memory(err, p->n * sizeof *halves, "the weights as they are saved");
    }
    if (halves) {
        convert(halves, p->values, p->n, dtype);
    }
    for (size_t i = 0; i < p->n_list; i++) {
        const sd_param *param = &p->list[i];
        sources[i] = (sd_tensor_source){.name = param->name, .dtype = dtype, .rank = param->rank,
                                        .shape = {param->shape[0], param->shape[1]},
                                        .data = halves ? (const void *)(halves + param->at)
                                                       : (const void *)(p->values + param->at)};
    }
    const int rc = sd_safetensors_write(path, sources, p->n_list, err);
    sd_free(sources);
    sd_free(halves);
    return rc;
}
