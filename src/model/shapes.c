/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "src/model/random.h"

/* OPT's family as published (facebook/opt-*), and the embedded model of models/. */
#define OPT(layers, width, heads, ffn_width, words, positions)                                                         \
    .arch = "opt", .n_layers = (layers), .hidden = (width), .n_heads = (heads), .head_dim = (width) / (heads),         \
    .ffn = (ffn_width), .vocab = (words), .max_positions = (positions), .position_offset = 2, .bias = true,            \
    .norm_affine = true, .tied = true, .activation = SD_MLP_RELU, .norm_eps = 1e-5f, .bos_id = 2, .eos_id = 2,         \
    .pad_id = 1
#define PRE_NORM(width) .embed = (width), .pre_norm = true, .final_norm = true

enum { WORDS = 50272, POSITIONS = 2048 };

const sd_shape sd_shapes[] = {
    {"opt-125m", {OPT(12, 768, 12, 3072, WORDS, POSITIONS), PRE_NORM(768)}},
    {"opt-350m", {OPT(24, 1024, 16, 4096, WORDS, POSITIONS), .embed = 512}}, /* post-norm, with projections */
    {"opt-1.3b", {OPT(24, 2048, 32, 8192, WORDS, POSITIONS), PRE_NORM(2048)}},
    {"opt-2.7b", {OPT(32, 2560, 32, 10240, WORDS, POSITIONS), PRE_NORM(2560)}},
    {"opt-6.7b", {OPT(32, 4096, 32, 16384, WORDS, POSITIONS), PRE_NORM(4096)}},
    {"e2e", {OPT(24, 128, 4, 512, 1500, 512), PRE_NORM(128)}},
};
const size_t sd_n_shapes = sizeof sd_shapes / sizeof *sd_shapes;

const sd_shape *sd_shape_find(const char *name)
{
    for (size_t i = 0; i < sd_n_shapes; i++) {
        if (strcmp(sd_shapes[i].name, name) == 0) {
            return &sd_shapes[i];
        }
    }
    return NULL;
}
