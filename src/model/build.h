/* SPDX-License-Identifier: MIT
 *
 * What makes a model, from a checkpoint (load.c) or from nothing (random.c). */
#ifndef SD_MODEL_BUILD_H
#define SD_MODEL_BUILD_H

#include "src/model/model.h"

int sd_model_check_options(const sd_model_options *options, sd_error *err);

/* Kernels, pool and what follows from the configuration, which is set. What is made before a failure is freed by
 * sd_model_free, here and below. */
int sd_model_start(sd_model *model, const sd_model_options *options, sd_error *err);

/* Weight types and the type of keys and values. stored: what AUTO stands for. */
void sd_model_choose_types(sd_model *model, const sd_model_options *options, sd_weight_type stored);

/* Fails if the machine has less memory than the weights need. */
int sd_model_check_memory(const sd_model *model, sd_error *err);

/* Allocated and counted, padding zeroed, for the caller to fill. name: for the error message. */
int sd_model_new_matrix(sd_model *model, sd_matrix *dst, sd_weight_type weights, int n, int k, const char *name,
                        sd_error *err);
int sd_model_new_vector(sd_model *model, float **dst, int64_t n, const char *name, sd_error *err);

sd_wtype sd_model_matrix_type(sd_weight_type weights); /* not of AUTO */

/* f32 values of scratch that packing needs on a pool of this size. */
size_t sd_model_pack_scratch(const sd_config *config, const sd_pool *pool);

/* Fills a matrix, whose padding is zero, from tensors of equal shape that stand one below the other. */
void sd_model_pack_matrix(sd_pool *pool, sd_matrix *dst, const sd_tensor *const *parts, int n_parts, float *scratch);

#endif
