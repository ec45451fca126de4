/* SPDX-License-Identifier: MIT
 *
 * What a model holds in memory, as a list: every matrix and every vector with its name, its size and its place in
 * sd_model. Files of packed weights are written and read by walking it. */
#ifndef SD_MODEL_HELD_H
#define SD_MODEL_HELD_H

#include "src/model/model.h"

enum { SD_HELD_PARTS = 3, SD_HELD_NAME = 64 };

/* One row for each field of sd_model and sd_layer that holds weights. Sizes, and whether a configuration has them,
 * follow from the architecture's rows of the slots that are put one below the other. */
typedef struct sd_held_row {
    const char *name;             /* "%d" stands for the layer */
    bool is_matrix;               /* packed; else a plain array of f32 */
    bool as_head;                 /* a matrix of the head's type */
    size_t field;                 /* offset in sd_model, or in sd_layer for a slot of a layer */
    sd_slot slots[SD_HELD_PARTS]; /* [n_slots] */
    int n_slots;
} sd_held_row;

typedef struct sd_held {
    const sd_held_row *row;
    int layer;               /* 0 for those of no layer */
    int n, k;                /* outputs and inputs of a matrix; a vector: n values, or n rows of k */
    int rank;                /* 2, or 1 for a vector without rows: k is 1 */
    char name[SD_HELD_NAME];
} sd_held;

/* Everything that a model of this configuration holds: matrices first, in the order of a pass, then vectors. *out is
 * the caller's (sd_free). */
int sd_held_list(sd_held **out, size_t *n, const sd_config *config, sd_error *err);

/* Its place in a model whose layers are allocated. */
sd_matrix *sd_held_matrix(const sd_held *held, sd_model *model);
float **sd_held_vector(const sd_held *held, sd_model *model);

static inline sd_weight_type sd_held_type(const sd_held *held, sd_weight_type weights, sd_weight_type head)
{
    return !held->row->is_matrix ? SD_WEIGHTS_F32 : held->row->as_head ? head : weights;
}

/* Bytes in memory, and in a file; SIZE_MAX if they do not fit. */
size_t sd_held_bytes(const sd_held *held, sd_weight_type weights, sd_weight_type head);

#endif
