/* SPDX-License-Identifier: MIT */
#include "src/model/held.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/error.h"
#include "src/model/build.h"

#define MODEL(field) offsetof(struct sd_model, field)
#define LAYER(field) offsetof(sd_layer, field)

/* Matrices before vectors: their sizes are multiples of 64 bytes, so that in a file all of them are aligned. */
static const sd_held_row rows[] = {
    {"embed.weight", true, true, MODEL(embed), {SD_SLOT_EMBED}, 1},
    {"project_in.weight", true, false, MODEL(project_in.w), {SD_SLOT_PROJECT_IN}, 1},
    {"layers.%d.qkv.weight", true, false, LAYER(qkv.w), {SD_SLOT_Q, SD_SLOT_K, SD_SLOT_V}, 3},
    {"layers.%d.out.weight", true, false, LAYER(out.w), {SD_SLOT_OUT}, 1},
    {"layers.%d.fc1.weight", true, false, LAYER(fc1.w), {SD_SLOT_FC1}, 1},
    {"layers.%d.fc2.weight", true, false, LAYER(fc2.w), {SD_SLOT_FC2}, 1},
    {"project_out.weight", true, false, MODEL(project_out.w), {SD_SLOT_PROJECT_OUT}, 1},
    {"head.weight", true, true, MODEL(head), {SD_SLOT_HEAD}, 1},
    {"positions", false, false, MODEL(positions), {SD_SLOT_POSITIONS}, 1},
    {"layers.%d.attn_norm.weight", false, false, LAYER(attn_norm.gain), {SD_SLOT_ATTN_NORM_GAIN}, 1},
    {"layers.%d.attn_norm.bias", false, false, LAYER(attn_norm.bias), {SD_SLOT_ATTN_NORM_BIAS}, 1},
    {"layers.%d.qkv.bias", false, false, LAYER(qkv.bias), {SD_SLOT_Q_BIAS, SD_SLOT_K_BIAS, SD_SLOT_V_BIAS}, 3},
    {"layers.%d.out.bias", false, false, LAYER(out.bias), {SD_SLOT_OUT_BIAS}, 1},
    {"layers.%d.ffn_norm.weight", false, false, LAYER(ffn_norm.gain), {SD_SLOT_FFN_NORM_GAIN}, 1},
    {"layers.%d.ffn_norm.bias", false, false, LAYER(ffn_norm.bias), {SD_SLOT_FFN_NORM_BIAS}, 1},
    {"layers.%d.fc1.bias", false, false, LAYER(fc1.bias), {SD_SLOT_FC1_BIAS}, 1},
    {"layers.%d.fc2.bias", false, false, LAYER(fc2.bias), {SD_SLOT_FC2_BIAS}, 1},
    {"final_norm.weight", false, false, MODEL(final_norm.gain), {SD_SLOT_FINAL_NORM_GAIN}, 1},
    {"final_norm.bias", false, false, MODEL(final_norm.bias), {SD_SLOT_FINAL_NORM_BIAS}, 1},
};
enum { N_ROWS = sizeof rows / sizeof *rows };

static bool of_layer(const sd_held_row *row) { return row->slots[0] >= SD_SLOT_LAYER; }

/* Sizes of a row's tensors in the checkpoint; false: this configuration has none. */
static bool slot_dims(const sd_config *config, sd_slot slot, sd_dim dims[2])
{
    if (slot == SD_SLOT_HEAD) { /* the one slot that the architecture's rows leave out */
        dims[0] = SD_DIM_VOCAB;
        dims[1] = SD_DIM_EMBED;
        return !config->tied;
    }
    const sd_arch *arch = sd_arch_find(config->arch);
    for (size_t i = 0; i < arch->n_rows; i++) {
        if (arch->rows[i].slot == slot) {
            memcpy(dims, arch->rows[i].dims, sizeof arch->rows[i].dims);
            return !arch->rows[i].exists || arch->rows[i].exists(config);
        }
    }
    return false;
}

static void describe(sd_held *held, const sd_held_row *row, int layer, const sd_config *config, const sd_dim dims[2])
{
    *held = (sd_held){.row = row, .layer = layer, .n = row->n_slots * (int)sd_config_dim(config, dims[0]),
                      .k = (int)sd_config_dim(config, dims[1]), .rank = dims[1] == SD_DIM_NONE ? 1 : 2};
    const char *mark = strstr(row->name, "%d");
    if (mark) {
        (void)snprintf(held->name, sizeof held->name, "%.*s%d%s", (int)(mark - row->name), row->name, layer, mark + 2);
    } else {
        (void)snprintf(held->name, sizeof held->name, "%s", row->name);
    }
}

/* Appends a run of rows: those of the layers layer by layer. */
static size_t add_run(sd_held *list, size_t n, size_t first, size_t last, const sd_config *config)
{
    const int copies = of_layer(&rows[first]) ? config->n_layers : 1;
    for (int layer = 0; layer < copies; layer++) {
        for (size_t i = first; i < last; i++) {
            sd_dim dims[2];
            if (slot_dims(config, rows[i].slots[0], dims)) {
                describe(&list[n++], &rows[i], layer, config, dims);
            }
        }
    }
    return n;
}

int sd_held_list(sd_held **out, size_t *n, const sd_config *config, sd_error *err)
{
    *n = 0;
    const size_t most = (size_t)N_ROWS * (size_t)config->n_layers;
    *out = sd_malloc(most, sizeof **out);
    if (!*out) {
        return sd_fail_memory(err, most * sizeof **out, "the list of weights");
    }
    for (size_t first = 0, last; first < N_ROWS; first = last) {
        for (last = first + 1; last < N_ROWS && of_layer(&rows[last]) == of_layer(&rows[first]) &&
                               rows[last].is_matrix == rows[first].is_matrix; last++) {
        }
        *n = add_run(*out, *n, first, last, config);
    }
    return SD_OK;
}

static void *place(const sd_held *held, sd_model *model)
{
    return (of_layer(held->row) ? (char *)&model->layers[held->layer] : (char *)model) + held->row->field;
}

sd_matrix *sd_held_matrix(const sd_held *held, sd_model *model) { return place(held, model); }

float **sd_held_vector(const sd_held *held, sd_model *model) { return place(held, model); }

size_t sd_held_bytes(const sd_held *held, sd_weight_type weights, sd_weight_type head)
{
    if (held->row->is_matrix) {
        return sd_matrix_bytes(sd_model_matrix_type(sd_held_type(held, weights, head)), held->n, held->k);
    }
    return (size_t)held->n * (size_t)held->k * sizeof(float); /* two ints: the product fits */
}
