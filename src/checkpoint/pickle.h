/* SPDX-License-Identifier: MIT
 *
 * Reads the pickle inside a torch.save file as data. A pickle is a program for a stack machine that may call any Python
 * function; this machine knows the few opcodes and the few names that a state dict needs, builds descriptions of
 * tensors from them, and refuses everything else. Nothing that a file names is ever called. */
#ifndef SD_CHECKPOINT_PICKLE_H
#define SD_CHECKPOINT_PICKLE_H

#include "src/checkpoint/checkpoint.h"

/* A tensor as a view of a storage. Numbers count elements. Dimensions, strides, offset and storage size are >= 0;
 * nothing else about them is checked yet. */
typedef struct sd_pickle_tensor {
    const char *name; /* [name_len] UTF-8 without NUL; the strings borrow from the pickle's bytes */
    size_t name_len;
    const char *key; /* [key_len] of the storage */
    size_t key_len;
    sd_dtype dtype;
    int64_t storage_elements, offset;
    int rank;
    int64_t shape[SD_MAX_RANK], stride[SD_MAX_RANK];
} sd_pickle_tensor;

typedef struct sd_state_dict {
    sd_pickle_tensor *tensors; /* [n] in the file's order */
    size_t n;
} sd_state_dict;

/* Limits far above what torch.save writes (about 200 bytes and 10 memo entries a tensor). */
enum { SD_PICKLE_MAX_BYTES = 16 << 20, SD_PICKLE_MAX_STACK = 1 << 20 };

/* bytes: one pickle of protocol 2 to 5 whose value is a dict of names and tensors; other values in it are passed over.
 * A dict that holds no tensor is an error that says what it holds. On failure *dict needs no freeing. */
int sd_pickle_read(sd_state_dict *dict, const unsigned char *bytes, size_t size, sd_error *err);
void sd_state_dict_free(sd_state_dict *dict); /* tolerates {0} */

#endif
