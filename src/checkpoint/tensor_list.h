/* SPDX-License-Identifier: MIT
 *
 * What every reader of the room fills: a growing list of tensors that owns their names and the few copies that had to
 * be made. Besides it, what the readers share: shapes and names for messages. */
#ifndef SD_CHECKPOINT_TENSOR_LIST_H
#define SD_CHECKPOINT_TENSOR_LIST_H

#include "src/checkpoint/checkpoint.h"

typedef struct sd_tensor_entry {
    sd_tensor tensor; /* name: owned */
    void *copy;       /* NULL, or the owned memory that tensor.data points to because the file's bytes have gaps */
} sd_tensor_entry;

typedef struct sd_tensor_list {
    sd_tensor_entry *entries; /* [n] */
    size_t n, cap;
} sd_tensor_list;

/* Appends *tensor under a copy of name[0..len), which holds no NUL. NULL when memory is out. The entry is the list's
 * and moves with the next addition. tensor->name is not read. */
sd_tensor_entry *sd_tensor_list_add(sd_tensor_list *list, const sd_tensor *tensor, const char *name, size_t len,
                                    sd_error *err);

/* Sorts by name (strcmp). A name that occurs twice is SD_ERR_FORMAT, naming both files. */
int sd_tensor_list_sort(sd_tensor_list *list, sd_error *err);
const sd_tensor *sd_tensor_list_find(const sd_tensor_list *list, const char *name); /* of a sorted list; NULL: none */
void sd_tensor_list_free(sd_tensor_list *list);                                      /* tolerates {0} */

/* *n = product of shape[0..rank), whose dimensions are >= 0; false when the product does not fit in 63 bits. Zero
 * dimensions count as 1 for that test, so that an absurd shape is refused wherever its zero stands. */
bool sd_shape_elements(const int64_t *shape, int rank, int64_t *n);

bool sd_dtype_from_name(const char *name, sd_dtype *dtype); /* safetensors' spelling; false: not one of ours */

/* A name that a file gave us, made fit for a message: one line, valid UTF-8, short. Use as sd_show(name, len).text
 * inside one call. */
typedef struct sd_shown {
    char text[88];
} sd_shown;
sd_shown sd_show(const char *name, size_t len);

#endif
