/* SPDX-License-Identifier: MIT
 *
 * Files of packed weights: model.skipdecode.safetensors in a model directory holds every matrix as a model holds it in
 * memory, so that loading is reading. docs/FORMAT.md describes the file. */
#ifndef SD_MODEL_PACKED_H
#define SD_MODEL_PACKED_H

#include "src/model/model.h"

#define SD_PACKED_FILE "model.skipdecode.safetensors"

/* Does the directory hold such a file? It then goes before a checkpoint. */
int sd_packed_exists(const char *dir, bool *exists, sd_error *err);

typedef struct sd_packed_info {
    sd_weight_type weights, head;
    size_t tensors, bytes; /* of all tensors */
    int64_t n_params;
} sd_packed_info;

/* Reads and checks the file's header; may change config->vocab, as binding a checkpoint does. */
int sd_packed_describe(sd_packed_info *info, const char *dir, sd_config *config, sd_error *err);

/* Loads the weights of a model that has its configuration, kernels and pool. Types that are asked for must be those of
 * the file. What is made before a failure is freed by sd_model_free. */
int sd_packed_load(sd_model *model, const char *dir, const sd_model_options *options, sd_error *err);

/* ---- writing ---- */

typedef struct sd_quantize_options {
    sd_weight_type weights, head;  /* AUTO: q8; the weights' own, but q8 with q4 */
    int threads;                   /* as for loading */
    bool no_mmap, overwrite;
    const char *const *companions; /* NULL-terminated: files beside the weights to copy where they exist */
    void (*progress)(void *user, size_t done, size_t total); /* bytes written so far; may be NULL */
    void *user;
} sd_quantize_options;

typedef struct sd_quantized {
    sd_weight_type weights, head;
    size_t bytes_before, bytes_after; /* of the checkpoint's tensors, and of the file */
    double bits;                      /* a weight, over all matrices */
    int64_t n_params;
} sd_quantized;

/* Reads the checkpoint of `dir` a matrix at a time and makes `out_dir` a model directory of packed weights: the weights
 * last and by a rename, so that until the end there is nothing in it that loads. On failure nothing
 * stays of what was begun. */
int sd_quantize(const char *dir, const char *out_dir, const sd_quantize_options *options, sd_quantized *result,
                sd_error *err);

#endif
