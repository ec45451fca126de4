/* SPDX-License-Identifier: MIT
 *
 * The readers behind sd_checkpoint_open. They work on bytes in memory, so that a test or a fuzzer needs no files. */
#ifndef SD_CHECKPOINT_READERS_H
#define SD_CHECKPOINT_READERS_H

#include <jansson.h>

#include "src/checkpoint/tensor_list.h"

/* Checks one whole file and appends its tensors to the list. Their data points into bytes[0..size) (or into copies that
 * the list owns), their file is `path`: both must outlive the list. Messages begin with the path. After an error the
 * list may hold some of the tensors and is only fit to be freed. */
typedef int sd_reader(sd_tensor_list *list, const unsigned char *bytes, size_t size, const char *path, sd_error *err);

sd_reader sd_safetensors_read; /* https://huggingface.co/docs/safetensors, "Format" */
sd_reader sd_torch_bin_read;   /* torch.save of a state dict, torch >= 1.6 */

enum { SD_SAFETENSORS_MAX_HEADER = 100000000 }; /* bytes, the limit that the format's own library has */

/* model.safetensors.index.json and its like: which shard holds which tensor. */
typedef struct sd_shard_index {
    json_t *root;
    const json_t *weight_map; /* name -> file name; borrowed from root, as are the strings */
    const char **shards;      /* [n_shards] distinct file names, ascending, all inside the index's directory */
    size_t n_shards;
} sd_shard_index;

/* On failure *index needs no clearing. path: for messages. */
int sd_shard_index_parse(sd_shard_index *index, const char *text, size_t len, const char *path, sd_error *err);
void sd_shard_index_clear(sd_shard_index *index); /* tolerates {0} */

#endif
