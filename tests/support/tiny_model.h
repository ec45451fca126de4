/* SPDX-License-Identifier: MIT
 *
 * Random tiny OPT models: made in memory, bent by a test as it likes, written as a model directory. The values are
 * kept, so that a test can compute with them what the library computes. */
#ifndef SD_TESTS_TINY_MODEL_H
#define SD_TESTS_TINY_MODEL_H

#include "include/skipdecode/skipdecode.h"
#include "src/checkpoint/checkpoint.h"

/* What is left zero has the usual value: OPT's pre-norm decoder, ReLU, biases, a tied head, f32, "model.decoder.". */
typedef struct sd_tiny_options {
    uint64_t seed;
    int n_layers, hidden, n_heads, ffn, vocab, max_positions; /* zero: 5, 24, 3, 40, 70, 48 */
    int embed;                                                /* zero: hidden, without projections */
    bool post_norm, no_bias, no_affine, no_final_norm, untied;
    const char *activation; /* as config.json spells it */
    const char *prefix;     /* of all names but the head's */
    sd_dtype dtype;         /* of every tensor in the file */
} sd_tiny_options;

typedef struct sd_tiny_tensor {
    char name[80]; /* whole, prefix included */
    sd_dtype dtype;
    int rank;
    int64_t shape[2];
    float *values; /* exactly what the file will hold; [shape[0] * shape[1]] */
} sd_tiny_tensor;

typedef struct sd_tiny_model {
    sd_tiny_options options; /* without zeros */
    sd_tiny_tensor *tensors; /* [n] */
    size_t n;
} sd_tiny_model;

void sd_tiny_make(sd_tiny_model *tiny, const sd_tiny_options *options);
void sd_tiny_clear(sd_tiny_model *tiny);

/* By the name after the prefix, or the whole name; NULL: none. */
sd_tiny_tensor *sd_tiny_find(const sd_tiny_model *tiny, const char *name);

/* A new tensor of random values with this whole name; columns 0: a vector. Pointers to tensors change. */
sd_tiny_tensor *sd_tiny_add(sd_tiny_model *tiny, const char *whole_name, int64_t rows, int64_t columns);
void sd_tiny_remove(sd_tiny_model *tiny, const char *name);
void sd_tiny_reshape(sd_tiny_tensor *tensor, int64_t rows, int64_t columns); /* with new values, all 0.25 */

/* Rounds the values to what the type holds, and stores the tensor so. An integer type holds zeros. */
void sd_tiny_set_dtype(sd_tiny_tensor *tensor, sd_dtype dtype);

char *sd_tiny_config(const sd_tiny_model *tiny);              /* config.json as text; the caller frees it */
void sd_tiny_write(const sd_tiny_model *tiny, const char *dir); /* config.json and model.safetensors */

/* Writes, loads and removes: a model in the memory of the test. options as for sd_model_load. */
sd_model *sd_tiny_load(const sd_tiny_model *tiny, const sd_model_options *options);

/* The same in one step, on `threads` threads. */
sd_model *sd_tiny_model_of(const sd_tiny_options *options, int threads);

#endif
