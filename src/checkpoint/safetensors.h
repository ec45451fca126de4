/* SPDX-License-Identifier: MIT
 *
 * The parts of the safetensors reader and writer, for a caller that handles the data itself: the header alone. */
#ifndef SD_CHECKPOINT_SAFETENSORS_H
#define SD_CHECKPOINT_SAFETENSORS_H

#include <jansson.h>

#include "src/base/buf.h"
#include "src/checkpoint/tensor_list.h"

enum { SD_SAFETENSORS_LENGTH = 8 }; /* bytes in front of the header that hold its length */

/* start: the first SD_SAFETENSORS_LENGTH bytes of a file of `size` bytes (or fewer, if it has fewer). */
int sd_safetensors_header_size(const unsigned char *start, size_t size, size_t *header_size, sd_error *err);

/* Checks a header and appends its tensors to the list: everything but their data, of which there are data_size bytes.
 * *header, the whole JSON object, is the caller's (json_decref); NULL after an error. path: what tensors name as their
 * file; it must outlive the list. */
int sd_safetensors_parse_header(sd_tensor_list *list, json_t **header, const char *text, size_t header_size,
                                size_t data_size, const char *path, sd_error *err);

/* An open file of which only the header was read. */
typedef struct sd_safetensors_file {
    int fd;
    char *path;             /* owned; NULL: not open */
    size_t size, data_at;   /* bytes of the file, and where the data begin */
    sd_tensor_list tensors; /* sorted, without data */
    json_t *header;
} sd_safetensors_file;

int sd_safetensors_file_open(sd_safetensors_file *file, const char *path, sd_error *err);
void sd_safetensors_file_close(sd_safetensors_file *file); /* tolerates {0} */

/* The value of a key of the metadata; NULL: no such key, or no string. */
const char *sd_safetensors_metadata(const json_t *header, const char *key);

/* ---- writer ---- */

typedef struct sd_safetensors_pair {
    const char *key, *value; /* UTF-8 */
} sd_safetensors_pair;

/* The file's first bytes, up to where the data begin: a multiple of `alignment`. The tensors' data are not read. */
int sd_safetensors_make_header(sd_buf *out, const sd_tensor_source *tensors, size_t n,
                               const sd_safetensors_pair *metadata, size_t n_metadata, size_t alignment, sd_error *err);

#endif
