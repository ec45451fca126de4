/* SPDX-License-Identifier: MIT
 *
 * The header of a file of packed weights, checked against a configuration. */
#ifndef SD_MODEL_PACKED_FILE_H
#define SD_MODEL_PACKED_FILE_H

#include "src/base/hash.h"
#include "src/checkpoint/safetensors.h"
#include "src/model/held.h"

#define SD_PACKED_FORMAT "skipdecode-packed"

enum {
    SD_PACKED_VERSION = 1,
    SD_PACKED_ALIGNMENT = 64,   /* of the data of every matrix, from the file's start */
    SD_PACKED_PIECE = 2 << 20,  /* bytes that are read, and hashed, by one thread: a huge page */
    SD_PACKED_STEP = 256 << 10, /* read at once, so that they are hashed while they are in a cache */
    SD_PACKED_DESCRIPTION = 80
};

typedef struct sd_packed_entry {
    sd_held held;
    size_t at, bytes; /* in the file's data */
    uint64_t sum;
} sd_packed_entry;

typedef struct sd_packed {
    sd_weight_type weights, head;
    sd_packed_entry *entries; /* [n], everything that the model holds */
    size_t n, bytes;
    int64_t n_params;
} sd_packed;

/* tensors: those of the file, sorted. Every size, type and name must be what config calls for; config->vocab goes by
 * the file. path: for messages. Release with sd_packed_clear. */
int sd_packed_parse(sd_packed *packed, sd_config *config, const sd_tensor_list *tensors, const json_t *header,
                    const char *path, sd_error *err);
void sd_packed_clear(sd_packed *packed); /* tolerates {0} */

/* Opens dir/SD_PACKED_FILE and parses its header. */
int sd_packed_open(sd_packed *packed, sd_safetensors_file *file, const char *dir, sd_config *config, sd_error *err);

/* What the metadata say of an entry before its sum: "q8 6144x2048 ". */
void sd_packed_description(char text[SD_PACKED_DESCRIPTION], const sd_held *held, sd_weight_type weights,
                           sd_weight_type head);

/* The shape that an entry's tensor has in the file; returns the rank. A matrix is [panels, bytes of a panel]. */
int sd_packed_shape(const sd_held *held, size_t bytes, int64_t shape[2]);

/* The sum of an entry's bytes is the FNV-1a hash of the wide hashes of its pieces of SD_PACKED_PIECE bytes. */
uint64_t sd_packed_sum(const void *data, size_t bytes);

#endif
