/* SPDX-License-Identifier: MIT
 *
 * Which files a directory holds, one reader call for each of them, and one sorted list of tensors in the end. */
#include "src/checkpoint/checkpoint.h"

#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/file.h"
#include "src/checkpoint/readers.h"

typedef struct sd_checkpoint_file {
    char *path;
    sd_file file;
} sd_checkpoint_file;

struct sd_checkpoint {
    sd_checkpoint_file *files; /* [n_files] what the tensors point into */
    size_t n_files;
    sd_tensor_list tensors;
    char format[48];
};

/* In order of preference: safetensors cannot hold code, so it comes before .bin; one file before an index, as others
 * do. */
typedef struct layout {
    const char *name;   /* the file that tells that this is it */
    const char *format; /* for people */
    sd_reader *read;
    bool sharded; /* name is an index */
} layout;

static const layout layouts[] = {
    {"model.safetensors", "safetensors", sd_safetensors_read, false},
    {"model.safetensors.index.json", "safetensors", sd_safetensors_read, true},
    {"pytorch_model.bin", "PyTorch .bin", sd_torch_bin_read, false},
    {"pytorch_model.bin.index.json", "PyTorch .bin", sd_torch_bin_read, true},
};
enum { N_LAYOUTS = sizeof layouts / sizeof *layouts };

/* A clone without git-lfs leaves small text files where the weights should be. */
static int reject_lfs_pointer(const sd_checkpoint_file *f, sd_error *err)
{
    static const char sign[] = "version https://git-lfs";
    if (f->file.size >= sizeof sign - 1 && memcmp(f->file.data, sign, sizeof sign - 1) == 0) {
        return sd_fail(err, SD_ERR_FORMAT, "%s: a Git LFS pointer, not the weights: fetch them (git lfs pull)",
                       f->path);
    }
    return SD_OK;
}

/* Opens files[i] as dir/name and reads its tensors. */
static int read_file(sd_checkpoint *c, size_t i, const char *dir, const char *name, const layout *how, bool no_mmap,
                     sd_error *err)
{
    sd_checkpoint_file *f = &c->files[i];
    f->path = sd_path_join(dir, name);
    if (!f->path) {
        return sd_fail_memory(err, strlen(dir) + strlen(name) + 2, "a file name");
    }
    int rc = sd_file_open(&f->file, f->path, no_mmap, err);
    if (rc == SD_OK) {
        rc = reject_lfs_pointer(f, err);
    }
    return rc == SD_OK ? how->read(&c->tensors, f->file.data, f->file.size, f->path, err) : rc;
}

static int make_files(sd_checkpoint *c, size_t n, sd_error *err)
{
    c->files = sd_calloc(n, sizeof *c->files);
    if (!c->files) {
        return sd_fail_memory(err, n * sizeof *c->files, "the list of files");
    }
    c->n_files = n;
    return SD_OK;
}

static int open_single(sd_checkpoint *c, const char *dir, const layout *how, bool no_mmap, sd_error *err)
{
    int rc = make_files(c, 1, err);
    if (rc == SD_OK) {
        rc = read_file(c, 0, dir, how->name, how, no_mmap, err);
    }
    (void)snprintf(c->format, sizeof c->format, "%s", how->format);
    return rc == SD_OK ? sd_tensor_list_sort(&c->tensors, err) : rc;
}

static int check_shards_exist(const sd_shard_index *index, const char *dir, const char *index_name, sd_error *err)
{
    for (size_t i = 0; i < index->n_shards; i++) {
        char *path = sd_path_join(dir, index->shards[i]);
        if (!path) {
            return sd_fail_memory(err, strlen(dir) + strlen(index->shards[i]) + 2, "a file name");
        }
        bool exists = sd_file_exists(path);
        sd_free(path);
        if (!exists) {
            return sd_fail(err, SD_ERR_IO,
                           "%s: there is no \"%s\", one of the %zu shards that %s names: fetch it, or mend the "
                           "name in the index",
                           dir, sd_show(index->shards[i], strlen(index->shards[i])).text, index->n_shards, index_name);
        }
    }
    return SD_OK;
}

/* The tensors from `first` on came from `shard`: the index must say so for each. */
static int check_against_map(const sd_checkpoint *c, size_t first, const sd_shard_index *index, const char *shard,
                             const char *index_name, sd_error *err)
{
    for (size_t i = first; i < c->tensors.n; i++) {
        const sd_tensor *t = &c->tensors.entries[i].tensor;
        const char *listed = json_string_value(json_object_get(index->weight_map, t->name));
        if (!listed) {
            return sd_fail(err, SD_ERR_FORMAT, "%s: holds tensor \"%s\", which %s does not list", t->file,
                           sd_show(t->name, strlen(t->name)).text, index_name);
        }
        if (strcmp(listed, shard) != 0) {
            return sd_fail(err, SD_ERR_FORMAT, "%s: holds tensor \"%s\", which %s puts into \"%s\"", t->file,
                           sd_show(t->name, strlen(t->name)).text, index_name, sd_show(listed, strlen(listed)).text);
        }
    }
    return SD_OK;
}

static int check_map_is_met(const sd_checkpoint *c, const sd_shard_index *index, const char *index_name, sd_error *err)
{
    json_t *map = (json_t *)(uintptr_t)index->weight_map; /* jansson's iterator is not const-correct */
    for (void *it = json_object_iter(map); it; it = json_object_iter_next(map, it)) {
        const char *name = json_object_iter_key(it);
        if (!sd_tensor_list_find(&c->tensors, name)) {
            const char *shard = json_string_value(json_object_iter_value(it));
            return sd_fail(err, SD_ERR_FORMAT, "%s puts tensor \"%s\" into \"%s\", which does not hold it", index_name,
                           sd_show(name, strlen(name)).text, sd_show(shard, strlen(shard)).text);
        }
    }
    return SD_OK;
}

static int open_shards(sd_checkpoint *c, const sd_shard_index *index, const char *dir, const layout *how, bool no_mmap,
                       sd_error *err)
{
    int rc = check_shards_exist(index, dir, how->name, err);
    if (rc == SD_OK) {
        rc = make_files(c, index->n_shards, err);
    }
    for (size_t i = 0; i < index->n_shards && rc == SD_OK; i++) {
        size_t first = c->tensors.n;
        rc = read_file(c, i, dir, index->shards[i], how, no_mmap, err);
        if (rc == SD_OK) {
            rc = check_against_map(c, first, index, index->shards[i], how->name, err);
        }
    }
    (void)snprintf(c->format, sizeof c->format, "%s, %zu shard%s", how->format, index->n_shards,
                   index->n_shards == 1 ? "" : "s");
    if (rc == SD_OK) {
        rc = sd_tensor_list_sort(&c->tensors, err);
    }
    return rc == SD_OK ? check_map_is_met(c, index, how->name, err) : rc;
}

static int open_sharded(sd_checkpoint *c, const char *dir, const layout *how, bool no_mmap, sd_error *err)
{
    char *path = sd_path_join(dir, how->name);
    if (!path) {
        return sd_fail_memory(err, strlen(dir) + strlen(how->name) + 2, "a file name");
    }
    sd_file file;
    int rc = sd_file_open(&file, path, no_mmap, err);
    if (rc == SD_OK) {
        sd_shard_index index;
        rc = sd_shard_index_parse(&index, (const char *)file.data, file.size, path, err);
        if (rc == SD_OK) {
            rc = open_shards(c, &index, dir, how, no_mmap, err);
            sd_shard_index_clear(&index);
        }
        sd_file_close(&file);
    }
    sd_free(path);
    return rc;
}

/* *found: NULL if the directory holds none of the layouts. */
static int find_layout(const layout **found, const char *dir, sd_error *err)
{
    *found = NULL;
    for (size_t i = 0; i < N_LAYOUTS && !*found; i++) {
        char *path = sd_path_join(dir, layouts[i].name);
        if (!path) {
            return sd_fail_memory(err, strlen(dir) + strlen(layouts[i].name) + 2, "a file name");
        }
        if (sd_file_exists(path)) {
            *found = &layouts[i];
        }
        sd_free(path);
    }
    return SD_OK;
}

int sd_checkpoint_exists(const char *dir, const char **name, sd_error *err)
{
    const layout *how;
    int rc = find_layout(&how, dir, err);
    *name = how ? how->name : NULL;
    return rc;
}

int sd_checkpoint_open(sd_checkpoint **out, const char *dir, bool no_mmap, sd_error *err)
{
    *out = NULL;
    if (sd_file_exists(dir)) {
        return sd_fail(err, SD_ERR_ARG, "%s: is a file; name the directory that holds it and config.json", dir);
    }
    if (!sd_dir_exists(dir)) {
        return sd_fail(err, SD_ERR_IO, "%s: there is no such directory", dir);
    }
    const layout *how;
    int rc = find_layout(&how, dir, err);
    if (rc != SD_OK) {
        return rc;
    }
    if (!how) {
        return sd_fail(err, SD_ERR_IO, "%s: holds no checkpoint: looked for %s, %s, %s and %s", dir, layouts[0].name,
                       layouts[1].name, layouts[2].name, layouts[3].name);
    }
    sd_checkpoint *c = sd_calloc(1, sizeof *c);
    if (!c) {
        return sd_fail_memory(err, sizeof *c, "the checkpoint");
    }
    rc = how->sharded ? open_sharded(c, dir, how, no_mmap, err) : open_single(c, dir, how, no_mmap, err);
    if (rc != SD_OK) {
        sd_checkpoint_close(c);
        return rc;
    }
    *out = c;
    return SD_OK;
}

void sd_checkpoint_close(sd_checkpoint *checkpoint)
{
    if (!checkpoint) {
        return;
    }
    sd_tensor_list_free(&checkpoint->tensors);
    for (size_t i = 0; i < checkpoint->n_files; i++) {
        sd_file_close(&checkpoint->files[i].file);
        sd_free(checkpoint->files[i].path);
    }
    sd_free(checkpoint->files);
    sd_free(checkpoint);
}

size_t sd_checkpoint_count(const sd_checkpoint *checkpoint) { return checkpoint->tensors.n; }

const sd_tensor *sd_checkpoint_at(const sd_checkpoint *checkpoint, size_t index)
{
    return &checkpoint->tensors.entries[index].tensor;
}

const sd_tensor *sd_checkpoint_find(const sd_checkpoint *checkpoint, const char *name)
{
    return sd_tensor_list_find(&checkpoint->tensors, name);
}

void sd_checkpoint_release(const sd_checkpoint *checkpoint, const sd_tensor *tensor)
{
    const uintptr_t at = (uintptr_t)tensor->data;
    for (size_t i = 0; i < checkpoint->n_files; i++) {
        const sd_file *file = &checkpoint->files[i].file;
        if (at >= (uintptr_t)file->data && at - (uintptr_t)file->data < file->size) {
            sd_file_release(file, at - (uintptr_t)file->data,
                            (size_t)tensor->n_elements * sd_dtype_size(tensor->dtype));
        }
    }
}

const char *sd_checkpoint_format(const sd_checkpoint *checkpoint) { return checkpoint->format; }
