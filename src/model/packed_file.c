/* SPDX-License-Identifier: MIT */
#include "src/model/packed_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/error.h"
#include "src/base/file.h"
#include "src/base/log.h"
#include "src/model/packed.h"

enum { SUM_DIGITS = 16 };

void sd_packed_description(char text[SD_PACKED_DESCRIPTION], const sd_held *held, sd_weight_type weights,
                           sd_weight_type head)
{
    (void)snprintf(text, SD_PACKED_DESCRIPTION, "%s %dx%d ", sd_weights_name(sd_held_type(held, weights, head)),
                   held->n, held->k);
}

int sd_packed_shape(const sd_held *held, size_t bytes, int64_t shape[2])
{
    if (held->row->is_matrix) {
        shape[0] = sd_matrix_panels(held->n);
        shape[1] = (int64_t)bytes / shape[0];
        return 2;
    }
    shape[0] = held->n;
    shape[1] = held->k;
    return held->rank;
}

uint64_t sd_packed_sum(const void *data, size_t bytes)
{
    uint64_t sum = SD_HASH_START;
    for (size_t at = 0; at < bytes; at += SD_PACKED_PIECE) {
        sd_hash_wide piece = SD_HASH_WIDE_START;
        sd_hash_wide_add(&piece, (const char *)data + at, bytes - at < SD_PACKED_PIECE ? bytes - at : SD_PACKED_PIECE);
        const uint64_t hash = sd_hash_wide_end(&piece);
        sum = sd_hash(sum, &hash, sizeof hash);
    }
    return sum;
}

/* ---- the metadata ---- */

static int wrong_value(sd_error *err, const char *key, const char *found, const char *expected)
{
    return found ? sd_fail(err, SD_ERR_FORMAT, "metadata \"%s\" is \"%s\"; expected %s", key,
                           sd_show(found, strlen(found)).text, expected)
                 : sd_fail(err, SD_ERR_FORMAT, "metadata \"%s\" is missing; expected %s", key, expected);
}

/* Decimal digits and nothing else. */
static int read_number(const json_t *header, const char *key, long min, long max, long *value, sd_error *err)
{
    const char *text = sd_safetensors_metadata(header, key);
    char expected[64];
    (void)snprintf(expected, sizeof expected, "a number in %ld .. %ld", min, max);
    const size_t digits = text ? strspn(text, "0123456789") : 0;
    if (digits == 0 || digits > 9 || text[digits] != '\0') {
        return wrong_value(err, key, text, expected);
    }
    *value = strtol(text, NULL, 10);
    return *value >= min && *value <= max ? SD_OK : wrong_value(err, key, text, expected);
}

static int read_type(const json_t *header, const char *key, sd_weight_type *type, sd_error *err)
{
    const char *text = sd_safetensors_metadata(header, key);
    for (int i = SD_WEIGHTS_F32; text && i <= SD_WEIGHTS_Q4; i++) {
        if (strcmp(text, sd_weights_name((sd_weight_type)i)) == 0) {
            *type = (sd_weight_type)i;
            return SD_OK;
        }
    }
    return wrong_value(err, key, text, "f32, bf16, q8 or q4");
}

/* The layout of matrices: other sizes would be another format. */
static int check_layout(const json_t *header, sd_error *err)
{
    const struct {
        const char *key;
        long value;
    } sizes[] = {{"panel", SD_PANEL}, {"block", SD_BLOCK}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        long value;
        int rc = read_number(header, sizes[i].key, 1, 1 << 20, &value, err);
        if (rc != SD_OK) {
            return rc;
        }
        if (value != sizes[i].value) {
            return sd_fail(err, SD_ERR_UNSUPPORTED, "weights in a %s of %ld; this program computes with %ld: quantise "
                           "the original checkpoint again", sizes[i].key, value, sizes[i].value);
        }
    }
    return SD_OK;
}

static int read_metadata(sd_packed *packed, sd_config *config, const json_t *header, const char *path, sd_error *err)
{
    const char *format = sd_safetensors_metadata(header, "format");
    if (!format || strcmp(format, SD_PACKED_FORMAT) != 0) {
        return wrong_value(err, "format", format,
                           "\"" SD_PACKED_FORMAT "\": not a file that `skipdecode quantize` wrote");
    }
    long version, vocab;
    int rc = read_number(header, "version", 1, 999999999, &version, err);
    if (rc == SD_OK && version != SD_PACKED_VERSION) {
        return sd_fail(err, SD_ERR_UNSUPPORTED, "version %ld of the format; this program reads version %d: quantise "
                       "the original checkpoint again", version, SD_PACKED_VERSION);
    }
    rc = rc == SD_OK ? read_type(header, "weights", &packed->weights, err) : rc;
    rc = rc == SD_OK ? read_type(header, "head", &packed->head, err) : rc;
    rc = rc == SD_OK ? check_layout(header, err) : rc;
    rc = rc == SD_OK ? read_number(header, "vocab", 1, 1 << 24, &vocab, err) : rc;
    if (rc == SD_OK && vocab != config->vocab) {
        sd_warn("%s: holds %ld rows of embedding where config.json says vocab_size %d; going by the file", path, vocab,
                config->vocab);
        config->vocab = (int)vocab;
    }
    return rc;
}

/* "q8 6144x2048 0123456789abcdef" */
static int read_description(sd_packed_entry *entry, const sd_packed *packed, const json_t *header, sd_error *err)
{
    const char *text = sd_safetensors_metadata(header, entry->held.name);
    char expected[SD_PACKED_DESCRIPTION];
    sd_packed_description(expected, &entry->held, packed->weights, packed->head);
    const size_t length = strlen(expected);
    if (!text || strncmp(text, expected, length) != 0 ||
        strspn(text + length, "0123456789abcdef") != SUM_DIGITS || text[length + SUM_DIGITS] != '\0') {
        char why[SD_PACKED_DESCRIPTION + 64];
        (void)snprintf(why, sizeof why, "\"%s\" and a sum, as config.json calls for", expected);
        return wrong_value(err, entry->held.name, text, why);
    }
    entry->sum = strtoull(text + length, NULL, 16);
    return SD_OK;
}

/* ---- the tensors ---- */

static int check_entry(sd_packed_entry *entry, const sd_packed *packed, const sd_tensor_list *tensors, sd_error *err)
{
    const char *name = entry->held.name;
    const sd_tensor *t = sd_tensor_list_find(tensors, name);
    if (!t) {
        return sd_fail(err, SD_ERR_FORMAT, "tensor \"%s\" is missing; config.json calls for it", name);
    }
    const bool matrix = entry->held.row->is_matrix;
    entry->bytes = sd_held_bytes(&entry->held, packed->weights, packed->head);
    entry->at = (size_t)t->offset;
    const sd_dtype dtype = matrix ? SD_DTYPE_U8 : SD_DTYPE_F32;
    if (t->dtype != dtype) {
        return sd_fail(err, SD_ERR_FORMAT, "tensor \"%s\" is of type %s; expected %s", name, sd_dtype_name(t->dtype),
                       sd_dtype_name(dtype));
    }
    int64_t shape[2];
    const int rank = sd_packed_shape(&entry->held, entry->bytes, shape);
    if (entry->bytes > INT64_MAX || t->rank != rank || t->shape[0] != shape[0] ||
        (rank == 2 && t->shape[1] != shape[1])) {
        return sd_fail(err, SD_ERR_FORMAT, "tensor \"%s\" has %d dimensions and %lld elements; config.json calls for "
                       "[%lld%s%.0lld]", name, t->rank, (long long)t->n_elements, (long long)shape[0],
                       rank == 2 ? ", " : "", rank == 2 ? (long long)shape[1] : 0);
    }
    return SD_OK;
}

/* The file may hold nothing else: all entries were found, so a tensor too many is one that none of them names. */
static int reject_unknown(const sd_packed *packed, const sd_tensor_list *tensors, sd_error *err)
{
    if (tensors->n == packed->n) {
        return SD_OK;
    }
    for (size_t i = 0; i < tensors->n; i++) {
        bool known = false;
        for (size_t j = 0; j < packed->n && !known; j++) {
            known = strcmp(tensors->entries[i].tensor.name, packed->entries[j].held.name) == 0;
        }
        if (!known) {
            const char *name = tensors->entries[i].tensor.name;
            return sd_fail(err, SD_ERR_FORMAT, "tensor \"%s\" has no place in the model that config.json describes: "
                           "wrong config.json?", sd_show(name, strlen(name)).text);
        }
    }
    return SD_OK;
}

static int make_entries(sd_packed *packed, const sd_config *config, sd_error *err)
{
    sd_held *held;
    size_t n;
    int rc = sd_held_list(&held, &n, config, err);
    if (rc != SD_OK) {
        return rc;
    }
    packed->entries = sd_calloc(n, sizeof *packed->entries);
    if (!packed->entries) {
        rc = sd_fail_memory(err, n * sizeof *packed->entries, "the list of weights");
    }
    for (size_t i = 0; rc == SD_OK && i < n; i++) {
        packed->entries[i].held = held[i];
        packed->n = n;
    }
    sd_free(held);
    return rc;
}

int sd_packed_parse(sd_packed *packed, sd_config *config, const sd_tensor_list *tensors, const json_t *header,
                    const char *path, sd_error *err)
{
    *packed = (sd_packed){0};
    int rc = read_metadata(packed, config, header, path, err);
    if (rc == SD_OK) {
        rc = make_entries(packed, config, err);
    }
    for (size_t i = 0; rc == SD_OK && i < packed->n; i++) {
        sd_packed_entry *entry = &packed->entries[i];
        rc = check_entry(entry, packed, tensors, err);
        if (rc == SD_OK) {
            rc = read_description(entry, packed, header, err);
        }
        packed->bytes += entry->bytes; /* the tensors lie side by side in the file: no overflow */
        packed->n_params += (int64_t)entry->held.n * entry->held.k;
    }
    if (rc == SD_OK) {
        rc = reject_unknown(packed, tensors, err);
    }
    if (rc != SD_OK) {
        sd_packed_clear(packed);
        return sd_fail_prefix(err, rc, "%s", path);
    }
    return SD_OK;
}

void sd_packed_clear(sd_packed *packed)
{
    sd_free(packed->entries);
    *packed = (sd_packed){0};
}

/* ---- the file ---- */

int sd_packed_exists(const char *dir, bool *exists, sd_error *err)
{
    char *path = sd_path_join(dir, SD_PACKED_FILE);
    if (!path) {
        return sd_fail_memory(err, strlen(dir) + sizeof SD_PACKED_FILE, "a file name");
    }
    *exists = sd_file_exists(path);
    sd_free(path);
    return SD_OK;
}

int sd_packed_open(sd_packed *packed, sd_safetensors_file *file, const char *dir, sd_config *config, sd_error *err)
{
    *packed = (sd_packed){0};
    *file = (sd_safetensors_file){.fd = -1};
    char *path = sd_path_join(dir, SD_PACKED_FILE);
    if (!path) {
        return sd_fail_memory(err, strlen(dir) + sizeof SD_PACKED_FILE, "a file name");
    }
    int rc = sd_safetensors_file_open(file, path, err);
    if (rc == SD_OK) {
        rc = sd_packed_parse(packed, config, &file->tensors, file->header, path, err);
    }
    if (rc != SD_OK) {
        sd_safetensors_file_close(file);
    }
    sd_free(path);
    return rc;
}

int sd_packed_describe(sd_packed_info *info, const char *dir, sd_config *config, sd_error *err)
{
    sd_packed packed;
    sd_safetensors_file file;
    int rc = sd_packed_open(&packed, &file, dir, config, err);
    if (rc == SD_OK) {
        *info = (sd_packed_info){.weights = packed.weights, .head = packed.head, .tensors = packed.n,
                                 .bytes = packed.bytes, .n_params = packed.n_params};
        sd_packed_clear(&packed);
        sd_safetensors_file_close(&file);
    }
    return rc;
}
