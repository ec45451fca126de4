/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/buf.h"
#include "src/base/file.h"
#include "src/base/utf8.h"
#include "src/checkpoint/readers.h"
#include "src/checkpoint/safetensors.h"

enum { ALIGNMENT = 8 }; /* of the data in the file: a reader may map it and use it in place */

static int fail_source(const sd_tensor_source *t, sd_error *err)
{
    return sd_fail(err, SD_ERR_ARG, "tensor \"%s\": its dtype, rank, shape or data is none that a file can hold",
                   sd_show(t->name, strlen(t->name)).text);
}

static int check_source(const sd_tensor_source *t, size_t *bytes, sd_error *err)
{
    if (!t->name || !sd_utf8_valid(t->name, strlen(t->name)) || strcmp(t->name, "__metadata__") == 0) {
        return sd_fail(err, SD_ERR_ARG, "a tensor's name must be UTF-8 text other than \"__metadata__\"");
    }
    bool known = (unsigned)t->dtype < SD_DTYPES, ok = known && t->rank >= 0 && t->rank <= SD_MAX_RANK;
    for (int i = 0; ok && i < t->rank; i++) {
        ok = t->shape[i] >= 0 && t->shape[i] <= INT64_C(1) << 53; /* what the reader takes */
    }
    int64_t n = 0;
    ok = ok && sd_shape_elements(t->shape, t->rank, &n) && sd_mul_size((size_t)n, sd_dtype_size(t->dtype), bytes);
    if (!ok) {
        return fail_source(t, err);
    }
    return SD_OK;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int check_names_differ(const sd_tensor_source *tensors, size_t n, sd_error *err)
{
    const char **names = sd_malloc(n, sizeof *names);
    if (!names) {
        return sd_fail_memory(err, n * sizeof *names, "the tensors' names");
    }
    for (size_t i = 0; i < n; i++) {
        names[i] = tensors[i].name;
    }
    if (n > 0) {
        qsort(names, n, sizeof *names, by_text);
    }
    int rc = SD_OK;
    for (size_t i = 1; i < n && rc == SD_OK; i++) {
        if (strcmp(names[i - 1], names[i]) == 0) {
            rc = sd_fail(err, SD_ERR_ARG, "tensor \"%s\" is to be written twice",
                         sd_show(names[i], strlen(names[i])).text);
        }
    }
    sd_free(names);
    return rc;
}

static void add_json_string(sd_buf *out, const char *text)
{
    static const char escaped[] = "\"\\\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0A\x0B\x0C\x0D\x0E\x0F\x10\x11\x12\x13"
                                  "\x14\x15\x16\x17\x18\x19\x1A\x1B\x1C\x1D\x1E\x1F";
    sd_buf_add_str(out, "\"");
    for (const char *p = text;;) {
        size_t plain = strcspn(p, escaped);
        sd_buf_add(out, p, plain);
        p += plain;
        if (*p == '\0') {
            break;
        }
        sd_buf_printf(out, "\\u%04x", (unsigned)*p++);
    }
    sd_buf_add_str(out, "\"");
}

static void add_metadata(sd_buf *out, const sd_safetensors_pair *pairs, size_t n)
{
    sd_buf_add_str(out, "{\"__metadata__\":{");
    for (size_t i = 0; i < n; i++) {
        sd_buf_add_str(out, i ? "," : "");
        add_json_string(out, pairs[i].key);
        sd_buf_add_str(out, ":");
        add_json_string(out, pairs[i].value);
    }
    sd_buf_add_str(out, "}");
}

int sd_safetensors_make_header(sd_buf *out, const sd_tensor_source *tensors, size_t n,
                               const sd_safetensors_pair *metadata, size_t n_metadata, size_t alignment, sd_error *err)
{
    uint64_t length = 0;
    sd_buf_add(out, &length, sizeof length); /* filled in below */
    add_metadata(out, metadata, n_metadata);
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        size_t bytes = 0;
        int rc = check_source(&tensors[i], &bytes, err);
        if (rc != SD_OK) {
            return rc;
        }
        size_t end;
        if (!sd_add_size(at, bytes, &end) || end > (size_t)1 << 53) {
            return sd_fail(err, SD_ERR_ARG, "the tensors take more than 2^53 bytes");
        }
        sd_buf_add_str(out, ",");
        add_json_string(out, tensors[i].name);
        sd_buf_printf(out, ":{\"dtype\":\"%s\",\"shape\":[", sd_dtype_name(tensors[i].dtype));
        for (int d = 0; d < tensors[i].rank; d++) {
            sd_buf_printf(out, "%s%lld", d ? "," : "", (long long)tensors[i].shape[d]);
        }
        sd_buf_printf(out, "],\"data_offsets\":[%zu,%zu]}", at, end);
        at = end;
    }
    sd_buf_add_str(out, "}");
    while (out->len % alignment != 0 && !out->failed) {
        sd_buf_add_str(out, " ");
    }
    if (out->failed) {
        return sd_fail_memory(err, out->len, "the header");
    }
    length = out->len - sizeof length;
    if (length > SD_SAFETENSORS_MAX_HEADER) {
        return sd_fail(err, SD_ERR_LIMIT, "the header of %llu bytes is above the format's limit of %d",
                       (unsigned long long)length, SD_SAFETENSORS_MAX_HEADER);
    }
    memcpy(out->data, &length, sizeof length);
    return check_names_differ(tensors, n, err);
}

static int check_data(const sd_tensor_source *tensors, size_t n, sd_error *err)
{
    for (size_t i = 0; i < n; i++) {
        size_t bytes = 0;
        int rc = check_source(&tensors[i], &bytes, err);
        if (rc != SD_OK) {
            return rc;
        }
        if (bytes > 0 && !tensors[i].data) {
            return fail_source(&tensors[i], err);
        }
    }
    return SD_OK;
}

static int write_bytes(sd_atomic_file *file, const void *bytes, size_t n, sd_error *err)
{
    if (n > 0 && fwrite(bytes, 1, n, file->stream) != n) {
        return sd_fail_errno(err, "%s: cannot write", file->temporary);
    }
    return SD_OK;
}

int sd_safetensors_write(const char *path, const sd_tensor_source *tensors, size_t n, sd_error *err)
{
    sd_buf header = {0};
    sd_atomic_file file = {0};
    static const sd_safetensors_pair metadata = {"format", "pt"};
    int rc = check_data(tensors, n, err);
    if (rc == SD_OK) {
        rc = sd_safetensors_make_header(&header, tensors, n, &metadata, 1, ALIGNMENT, err);
    }
    if (rc != SD_OK) {
        rc = sd_fail_prefix(err, rc, "%s", path);
    } else {
        rc = sd_atomic_open(&file, path, err);
    }
    if (rc == SD_OK) {
        rc = write_bytes(&file, header.data, header.len, err);
    }
    for (size_t i = 0; i < n && rc == SD_OK; i++) {
        int64_t elements = 0;
        (void)sd_shape_elements(tensors[i].shape, tensors[i].rank, &elements); /* make_header has checked it */
        rc = write_bytes(&file, tensors[i].data, (size_t)elements * sd_dtype_size(tensors[i].dtype), err);
    }
    if (rc == SD_OK) {
        rc = sd_atomic_commit(&file, err);
    }
    sd_atomic_discard(&file);
    sd_buf_free(&header);
    return rc;
}
