/* SPDX-License-Identifier: MIT
 *
 * Models of random weights, for measuring speed and memory without a checkpoint. Their text means nothing. */
#ifndef SD_MODEL_RANDOM_H
#define SD_MODEL_RANDOM_H

#include "src/model/model.h"

typedef struct sd_shape {
    const char *name; /* "opt-1.3b" */
    sd_config config;
} sd_shape;

/* The sizes of published models. */
extern const sd_shape sd_shapes[];
extern const size_t sd_n_shapes;

const sd_shape *sd_shape_find(const char *name); /* NULL: no such shape */

/* A model of this configuration whose weights are small random numbers, such that activations keep their size from
 * layer to layer. The same seed makes the same weights, whatever the number of threads. options as for sd_model_load;
 * AUTO is f32. Fails before it allocates if the weights do not fit the machine. *out is the caller's. */
int sd_model_random(sd_model **out, const sd_config *config, const sd_model_options *options, uint64_t seed,
                    sd_error *err);

#endif
