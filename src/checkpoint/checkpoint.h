/* SPDX-License-Identifier: MIT
 *
 * One validated directory of tensors, whatever files it came from: model.safetensors, model.safetensors.index.json with
 * shards, pytorch_model.bin, pytorch_model.bin.index.json with shards. Knows bytes, dtypes and shapes; no layer names.
 *
 * Everything is checked when it is opened: after that every tensor's range lies inside its file. */
#ifndef SD_CHECKPOINT_CHECKPOINT_H
#define SD_CHECKPOINT_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/error.h"

typedef enum sd_dtype {
    SD_DTYPE_F32, SD_DTYPE_F16, SD_DTYPE_BF16, SD_DTYPE_F64,
    SD_DTYPE_I64, SD_DTYPE_I32, SD_DTYPE_I16, SD_DTYPE_I8, SD_DTYPE_U8, SD_DTYPE_BOOL,
    SD_DTYPES
} sd_dtype;

const char *sd_dtype_name(sd_dtype dtype); /* "F32", as safetensors spells it */
size_t sd_dtype_size(sd_dtype dtype);      /* bytes per element */

enum { SD_MAX_RANK = 8 };

typedef struct sd_tensor {
    const char *name;           /* as in the file */
    sd_dtype dtype;
    int rank;
    int64_t shape[SD_MAX_RANK];
    int64_t n_elements;         /* product of shape; 1 for rank 0 */
    const void *data;           /* [n_elements] row-major, contiguous, little-endian, any alignment */
    uint64_t offset;            /* safetensors: of the data, from where the file's data begin */
    const char *file;           /* path, for messages */
} sd_tensor;

typedef struct sd_checkpoint sd_checkpoint;

/* *name: the file by which a directory is known to hold a checkpoint (static storage); NULL: it holds none. */
int sd_checkpoint_exists(const char *dir, const char **name, sd_error *err);

/* Opens what `dir` holds, safetensors before .bin. *out is the caller's; tensors live as long as it does. */
int sd_checkpoint_open(sd_checkpoint **out, const char *dir, bool no_mmap, sd_error *err);
void sd_checkpoint_close(sd_checkpoint *checkpoint);

/* Tensors in ascending order of name (strcmp). */
size_t sd_checkpoint_count(const sd_checkpoint *checkpoint);
const sd_tensor *sd_checkpoint_at(const sd_checkpoint *checkpoint, size_t index);
const sd_tensor *sd_checkpoint_find(const sd_checkpoint *checkpoint, const char *name); /* NULL: none */
const char *sd_checkpoint_format(const sd_checkpoint *checkpoint); /* "safetensors", "safetensors, 3 shards", ... */

/* The tensor's bytes will not be read again soon: where they are mapped, they stop counting as the process's memory. */
void sd_checkpoint_release(const sd_checkpoint *checkpoint, const sd_tensor *tensor);

/* n elements from `first` on as f32. dtype: one of F32, F16, BF16, F64 (the caller has checked). */
void sd_tensor_read_f32(const sd_tensor *tensor, int64_t first, int64_t n, float *dst);

/* ---- writer ---- */

typedef struct sd_tensor_source {
    const char *name;
    sd_dtype dtype;
    int rank;
    int64_t shape[SD_MAX_RANK];
    const void *data; /* contiguous, host byte order */
} sd_tensor_source;

/* Writes one safetensors file atomically, tensors in the given order, with {"format": "pt"} as metadata. */
int sd_safetensors_write(const char *path, const sd_tensor_source *tensors, size_t n, sd_error *err);

#endif
