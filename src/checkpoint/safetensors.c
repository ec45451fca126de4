/* SPDX-License-Identifier: MIT
 *
 * Reader of safetensors: 8 bytes of header length, a JSON header, then the tensors' bytes without a gap.
 * https://huggingface.co/docs/safetensors describes the format. Nothing in the header is believed before it is checked.
 */
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/json.h"
#include "src/checkpoint/readers.h"
#include "src/checkpoint/safetensors.h"

static const char METADATA[] = "__metadata__";

/* The file being read: the header's bounds are already checked. */
typedef struct source {
    size_t data_size; /* bytes behind the header */
    const char *path;
} source;

typedef struct range {
    uint64_t begin, end; /* bytes from the start of the data */
    const char *name;
} range;

static int read_dtype(const json_t *object, sd_dtype *dtype, sd_error *err)
{
    const char *name = NULL;
    int rc = sd_json_get_string(object, "dtype", true, &name, err);
    if (rc == SD_OK && !sd_dtype_from_name(name, dtype)) {
        return sd_fail(
            err, SD_ERR_UNSUPPORTED,
            "dtype \"%s\" is not one that this library reads (F32, F16, BF16, F64, I64, I32, I16, I8, U8, BOOL); "
            "save the tensor in one of these",
            sd_show(name, strlen(name)).text);
    }
    return rc;
}

static int read_shape(const json_t *object, sd_tensor *tensor, sd_error *err)
{
    const json_t *shape = json_object_get(object, "shape");
    if (!json_is_array(shape)) {
        return sd_fail(err, SD_ERR_FORMAT, "key \"shape\": expected an array, found %s", sd_json_type_name(shape));
    }
    size_t rank = json_array_size(shape);
    if (rank > SD_MAX_RANK) {
        return sd_fail(err, SD_ERR_UNSUPPORTED, "key \"shape\": %zu dimensions, at most %d are read", rank,
                       SD_MAX_RANK);
    }
    tensor->rank = (int)rank;
    for (size_t i = 0; i < rank; i++) {
        const json_t *item = json_array_get(shape, i);
        if (!sd_json_as_int(item, &tensor->shape[i]) || tensor->shape[i] < 0) {
            return sd_fail(err, SD_ERR_FORMAT, "key \"shape\": dimension %zu is %s; expected an integer in 0 .. 2^53",
                           i, json_is_number(item) ? "a number that is none" : sd_json_type_name(item));
        }
    }
    if (!sd_shape_elements(tensor->shape, tensor->rank, &tensor->n_elements)) {
        return sd_fail(err, SD_ERR_FORMAT, "key \"shape\": the product of the dimensions does not fit in 63 bits");
    }
    return SD_OK;
}

static int read_offsets(const json_t *object, const source *src, uint64_t *begin, uint64_t *end, sd_error *err)
{
    const json_t *offsets = json_object_get(object, "data_offsets");
    int64_t from, to;
    if (!json_is_array(offsets) || json_array_size(offsets) != 2 ||
        !sd_json_as_int(json_array_get(offsets, 0), &from) || !sd_json_as_int(json_array_get(offsets, 1), &to) ||
        from < 0 || to < from) {
        return sd_fail(err, SD_ERR_FORMAT,
                       "key \"data_offsets\": expected [begin, end] with 0 <= begin <= end, found %s",
                       json_is_array(offsets) ? "another array" : sd_json_type_name(offsets));
    }
    if ((uint64_t)to > src->data_size) {
        return sd_fail(
            err, SD_ERR_FORMAT,
            "its data ends at byte %lld, but the file holds %zu bytes of data: it is truncated, fetch it again",
            (long long)to, src->data_size);
    }
    *begin = (uint64_t)from;
    *end = (uint64_t)to;
    return SD_OK;
}

static int read_entry(const json_t *object, const source *src, sd_tensor *tensor, sd_error *err)
{
    if (!json_is_object(object)) {
        return sd_fail(err, SD_ERR_FORMAT, "expected an object with dtype, shape and data_offsets, found %s",
                       sd_json_type_name(object));
    }
    *tensor = (sd_tensor){.file = src->path};
    int rc = read_dtype(object, &tensor->dtype, err);
    if (rc == SD_OK) {
        rc = read_shape(object, tensor, err);
    }
    uint64_t begin = 0, end = 0;
    if (rc == SD_OK) {
        rc = read_offsets(object, src, &begin, &end, err);
    }
    if (rc != SD_OK) {
        return rc;
    }
    size_t bytes;
    if (!sd_mul_size((size_t)tensor->n_elements, sd_dtype_size(tensor->dtype), &bytes) || bytes != end - begin) {
        return sd_fail(err, SD_ERR_FORMAT,
                       "its %lld elements of %s do not fill the %llu bytes that data_offsets gives it",
                       (long long)tensor->n_elements, sd_dtype_name(tensor->dtype), (unsigned long long)(end - begin));
    }
    tensor->offset = begin;
    return SD_OK;
}

static int by_begin(const void *a, const void *b)
{
    const range *x = a, *y = b;
    if (x->begin != y->begin) {
        return x->begin < y->begin ? -1 : 1;
    }
    return (x->end > y->end) - (x->end < y->end);
}

/* The format wants the tensors, from list entry `first` on, to tile the data: bytes that belong to none, or to two,
 * could hide something. */
static int check_tiling(const sd_tensor_list *list, size_t first, const source *src, sd_error *err)
{
    size_t n = list->n - first;
    range *ranges = sd_malloc(n, sizeof *ranges);
    if (!ranges) {
        return sd_fail_memory(err, n * sizeof *ranges, "the tensors' ranges");
    }
    for (size_t i = 0; i < n; i++) {
        const sd_tensor *t = &list->entries[first + i].tensor;
        ranges[i] = (range){t->offset, t->offset + (uint64_t)t->n_elements * sd_dtype_size(t->dtype), t->name};
    }
    if (n > 0) {
        qsort(ranges, n, sizeof *ranges, by_begin);
    }
    int rc = SD_OK;
    uint64_t at = 0;
    for (size_t i = 0; i < n && rc == SD_OK; i++) {
        if (ranges[i].begin != at) {
            rc = sd_fail(err, SD_ERR_FORMAT, "tensor \"%s\" begins at byte %llu of the data, %s byte %llu",
                         sd_show(ranges[i].name, strlen(ranges[i].name)).text, (unsigned long long)ranges[i].begin,
                         ranges[i].begin < at ? "inside another tensor that ends at" : "leaving a hole after",
                         (unsigned long long)at);
        }
        at = ranges[i].end;
    }
    if (rc == SD_OK && at != src->data_size) {
        rc = sd_fail(err, SD_ERR_FORMAT, "%llu bytes after the last tensor belong to none",
                     (unsigned long long)(src->data_size - at));
    }
    sd_free(ranges);
    return rc;
}

static int read_tensors(sd_tensor_list *list, const json_t *header, const source *src, sd_error *err)
{
    size_t first = list->n;
    /* Iterating does not change the object, but jansson's iterator is not const-correct. */
    json_t *object = (json_t *)(uintptr_t)header;
    for (void *it = json_object_iter(object); it; it = json_object_iter_next(object, it)) {
        const char *name = json_object_iter_key(it);
        const json_t *value = json_object_iter_value(it);
        if (strcmp(name, METADATA) == 0) {
            if (!json_is_object(value)) {
                return sd_fail(err, SD_ERR_FORMAT, "key \"%s\": expected an object, found %s", METADATA,
                               sd_json_type_name(value));
            }
            continue;
        }
        sd_tensor tensor;
        int rc = read_entry(value, src, &tensor, err);
        if (rc != SD_OK) {
            return sd_fail_prefix(err, rc, "tensor \"%s\"", sd_show(name, strlen(name)).text);
        }
        if (!sd_tensor_list_add(list, &tensor, name, strlen(name), err)) {
            return SD_ERR_MEMORY;
        }
    }
    return check_tiling(list, first, src, err);
}

int sd_safetensors_header_size(const unsigned char *start, size_t size, size_t *header_size, sd_error *err)
{
    if (size < SD_SAFETENSORS_LENGTH) {
        return sd_fail(err, SD_ERR_FORMAT, "%zu bytes are too few for a safetensors file: it is empty or truncated",
                       size);
    }
    uint64_t length;
    memcpy(&length, start, sizeof length);
    if (length > SD_SAFETENSORS_MAX_HEADER) {
        return sd_fail(err, SD_ERR_FORMAT, "a header of %llu bytes is above the limit of %d: not a safetensors file",
                       (unsigned long long)length, SD_SAFETENSORS_MAX_HEADER);
    }
    if (length > size - SD_SAFETENSORS_LENGTH) {
        return sd_fail(err, SD_ERR_FORMAT, "the header is %llu bytes long, but only %zu follow: the file is truncated",
                       (unsigned long long)length, size - SD_SAFETENSORS_LENGTH);
    }
    *header_size = (size_t)length;
    return SD_OK;
}

int sd_safetensors_parse_header(sd_tensor_list *list, json_t **header, const char *text, size_t header_size,
                                size_t data_size, const char *path, sd_error *err)
{
    *header = NULL;
    if (header_size == 0 || text[0] != '{') {
        return sd_fail(err, SD_ERR_FORMAT, "the header does not begin with \"{\": not a safetensors file");
    }
    int rc = sd_json_parse(header, text, header_size, "header", err);
    if (rc != SD_OK) {
        *header = NULL;
        return rc;
    }
    const source src = {data_size, path};
    rc = read_tensors(list, *header, &src, err);
    if (rc != SD_OK) {
        json_decref(*header);
        *header = NULL;
    }
    return rc;
}

static int read_file(sd_tensor_list *list, const unsigned char *bytes, size_t size, const char *path, sd_error *err)
{
    size_t header_size = 0, first = list->n;
    int rc = sd_safetensors_header_size(bytes, size, &header_size, err);
    if (rc != SD_OK) {
        return rc;
    }
    const unsigned char *text = bytes + SD_SAFETENSORS_LENGTH, *data = text + header_size;
    json_t *header;
    rc = sd_safetensors_parse_header(list, &header, (const char *)text, header_size,
                                     size - SD_SAFETENSORS_LENGTH - header_size, path, err);
    for (size_t i = first; rc == SD_OK && i < list->n; i++) {
        list->entries[i].tensor.data = data + list->entries[i].tensor.offset;
    }
    json_decref(header);
    return rc;
}

int sd_safetensors_read(sd_tensor_list *list, const unsigned char *bytes, size_t size, const char *path, sd_error *err)
{
    int rc = read_file(list, bytes, size, path, err);
    return rc == SD_OK ? SD_OK : sd_fail_prefix(err, rc, "%s", path);
}
