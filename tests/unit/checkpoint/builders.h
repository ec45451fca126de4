/* SPDX-License-Identifier: MIT
 *
 * Files made byte by byte, for the tests of this room. Numbers are little-endian, as in all of the room's formats. */
#ifndef SD_TESTS_CHECKPOINT_BUILDERS_H
#define SD_TESTS_CHECKPOINT_BUILDERS_H

#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/buf.h"
#include "src/checkpoint/readers.h"
#include "tests/support/support.h"

static inline void put_number(sd_buf *out, uint64_t x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char byte = (unsigned char)(i < 8 ? x >> (8 * i) : 0);
        sd_buf_add(out, &byte, 1);
    }
}

static inline void patch_number(sd_buf *out, size_t at, uint64_t x, size_t n)
{
    assert_true(at + n <= out->len);
    for (size_t i = 0; i < n; i++) {
        out->data[at + i] = (char)(unsigned char)(x >> (8 * i));
    }
}

/* 0, 1, 2, ... */
static inline void put_ramp(sd_buf *out, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        put_number(out, i, 1);
    }
}

/* ---- running a reader ---- */

/* Runs a reader on a block of exactly n bytes and touches every byte of every tensor, so that AddressSanitizer sees any
 * step outside. */
static inline int run_reader(sd_reader *reader, const void *bytes, size_t n, sd_error *err)
{
    unsigned char *copy = malloc(n ? n : 1);
    assert_non_null(copy);
    memcpy(copy, n ? bytes : "", n);
    sd_tensor_list list = {0};
    *err = (sd_error){0};
    int rc = reader(&list, copy, n, "the file", err);
    if (rc == SD_OK) {
        rc = sd_tensor_list_sort(&list, err);
    }
    volatile unsigned char sum = 0;
    for (size_t i = 0; rc == SD_OK && i < list.n; i++) {
        const sd_tensor *t = &list.entries[i].tensor;
        for (size_t j = 0; j < (size_t)t->n_elements * sd_dtype_size(t->dtype); j++) {
            sum = (unsigned char)(sum + ((const unsigned char *)t->data)[j]);
        }
    }
    sd_tensor_list_free(&list);
    free(copy);
    return rc;
}

/* Fails the test unless the reader refuses the bytes with this code and a message that holds `part`. */
static inline void assert_refused(sd_reader *reader, const sd_buf *file, const char *what, int code, const char *part)
{
    sd_error err;
    int rc = run_reader(reader, file->data, file->len, &err);
    if (rc != code || err.code != code || !strstr(err.message, part) || !strstr(err.message, "the file")) {
        fail_msg("%s: returned %d with \"%s\"; expected %d with \"the file\" and \"%s\"", what, rc, err.message, code,
                 part);
    }
}

static inline void assert_read(sd_reader *reader, const sd_buf *file, const char *what)
{
    sd_error err;
    int rc = run_reader(reader, file->data, file->len, &err);
    if (rc != SD_OK) {
        fail_msg("%s: refused with %d, \"%s\"", what, rc, err.message);
    }
}

/* ---- safetensors ---- */

static inline void make_safetensors(sd_buf *out, const char *header, size_t data_size)
{
    put_number(out, strlen(header), 8);
    sd_buf_add_str(out, header);
    put_ramp(out, data_size);
}

/* ---- ZIP ---- */

typedef struct zip_builder {
    sd_buf bytes, directory;
    unsigned n;
    size_t last_local, last_entry; /* where the last member's headers are: in bytes, and in directory */
    bool wide;                     /* sizes and offsets go to ZIP64 fields */
    bool bare;                     /* no data descriptor: a member ends with its data */
} zip_builder;

/* A stored member. extra: bytes of padding in the local header, as torch aligns its storages. */
static inline void zip_add(zip_builder *zip, const char *name, const void *data, size_t n, size_t extra)
{
    size_t len = strlen(name), at = zip->bytes.len;
    zip->last_local = at;
    zip->last_entry = zip->directory.len;
    zip->n++;
    sd_buf *b = &zip->bytes;
    put_number(b, 0x04034B50, 4);
    put_number(b, 45, 2);
    put_number(b, 0x0808, 2); /* a data descriptor follows: sizes here are 0 */
    put_number(b, 0, 2);      /* stored */
    put_number(b, 0, 4 + 4 + 4);
    put_number(b, 0, 4);
    put_number(b, len, 2);
    put_number(b, extra, 2);
    sd_buf_add(b, name, len);
    for (size_t i = 0; i < extra; i++) {
        put_number(b, i == 0 ? 'F' : i == 1 ? 'B' : i == 2 ? extra - 4 : i == 3 ? 0 : 'Z', 1);
    }
    sd_buf_add(b, data, n);
    if (!zip->bare) {
        put_number(b, 0x08074B50, 4);
        put_number(b, 0, 4);
        put_number(b, n, 4);
        put_number(b, n, 4);
    }

    sd_buf *d = &zip->directory;
    put_number(d, 0x02014B50, 4);
    put_number(d, 45, 2);
    put_number(d, 45, 2);
    put_number(d, 0x0808, 2);
    put_number(d, 0, 2);
    put_number(d, 0, 4 + 4);
    put_number(d, zip->wide ? UINT32_MAX : n, 4);
    put_number(d, zip->wide ? UINT32_MAX : n, 4);
    put_number(d, len, 2);
    put_number(d, zip->wide ? 4 + 3 + 4 + 24 : 0, 2);
    put_number(d, 0, 2 + 2 + 2 + 4);
    put_number(d, zip->wide ? UINT32_MAX : at, 4);
    sd_buf_add(d, name, len);
    if (zip->wide) {
        put_number(d, 0x7777, 2); /* somebody else's field first */
        put_number(d, 3, 2);
        put_number(d, 0, 3);
        put_number(d, 0x0001, 2);
        put_number(d, 24, 2);
        put_number(d, n, 8);
        put_number(d, n, 8);
        put_number(d, at, 8);
    }
}

enum { ZIP_END64 = 56, ZIP_LOCATOR = 20, ZIP_END = 22 };

/* Appends the directory and the end records; zip->bytes is then the archive. Returns where the directory begins. */
static inline size_t zip_finish(zip_builder *zip, bool end64)
{
    sd_buf *b = &zip->bytes;
    size_t directory = b->len, size = zip->directory.len;
    sd_buf_add(b, zip->directory.data, size);
    if (end64) {
        size_t at = b->len;
        put_number(b, 0x06064B50, 4);
        put_number(b, ZIP_END64 - 12, 8);
        put_number(b, 45, 2);
        put_number(b, 45, 2);
        put_number(b, 0, 4 + 4);
        put_number(b, zip->n, 8);
        put_number(b, zip->n, 8);
        put_number(b, size, 8);
        put_number(b, directory, 8);
        put_number(b, 0x07064B50, 4);
        put_number(b, 0, 4);
        put_number(b, at, 8);
        put_number(b, 1, 4);
    }
    put_number(b, 0x06054B50, 4);
    put_number(b, 0, 2 + 2);
    put_number(b, end64 ? UINT16_MAX : zip->n, 2);
    put_number(b, end64 ? UINT16_MAX : zip->n, 2);
    put_number(b, end64 ? UINT32_MAX : size, 4);
    put_number(b, end64 ? UINT32_MAX : directory, 4);
    put_number(b, 0, 2);
    return directory;
}

static inline void zip_free(zip_builder *zip)
{
    sd_buf_free(&zip->bytes);
    sd_buf_free(&zip->directory);
}

/* ---- pickle ---- */

static inline void op(sd_buf *out, unsigned char code) { put_number(out, code, 1); }

static inline void op_string(sd_buf *out, const char *text)
{
    op(out, 'X');
    put_number(out, strlen(text), 4);
    sd_buf_add_str(out, text);
}

static inline void op_int(sd_buf *out, int64_t x) /* LONG1 of 8 bytes */
{
    op(out, 0x8A);
    op(out, 8);
    put_number(out, (uint64_t)x, 8);
}

static inline void op_name(sd_buf *out, const char *module, const char *name) /* GLOBAL */
{
    op(out, 'c');
    sd_buf_printf(out, "%s\n%s\n", module, name);
}

static inline void op_storage(sd_buf *out, const char *class, const char *key, int64_t elements)
{
    op(out, '(');
    op_string(out, "storage");
    op_name(out, "torch", class);
    op_string(out, key);
    op_string(out, "cpu");
    op_int(out, elements);
    op(out, 't');
    op(out, 'Q');
}

static inline void op_sizes(sd_buf *out, const int64_t *sizes, int n)
{
    op(out, '(');
    for (int i = 0; i < n; i++) {
        op_int(out, sizes[i]);
    }
    op(out, 't');
}

typedef struct view {
    const char *class, *key;
    int64_t elements, offset; /* of the storage; of the view in it */
    int rank;
    int64_t shape[SD_MAX_RANK + 1], stride[SD_MAX_RANK + 1];
} view;

static inline void op_tensor(sd_buf *out, const view *v)
{
    op_name(out, "torch._utils", "_rebuild_tensor_v2");
    op(out, '(');
    op_storage(out, v->class, v->key, v->elements);
    op_int(out, v->offset);
    op_sizes(out, v->shape, v->rank);
    op_sizes(out, v->stride, v->rank);
    op(out, 0x89);
    op_name(out, "collections", "OrderedDict");
    op(out, ')');
    op(out, 'R');
    op(out, 't');
    op(out, 'R');
}

/* {name: view} of one tensor */
static inline void make_pickle(sd_buf *out, const char *name, const view *v)
{
    op(out, 0x80);
    op(out, 2);
    op(out, '}');
    op(out, '(');
    op_string(out, name);
    op_tensor(out, v);
    op(out, 'u');
    op(out, '.');
}

/* The archive of one pickle and one storage "0" of n bytes. */
static inline void make_bin(zip_builder *zip, const sd_buf *pickle, size_t n)
{
    sd_buf storage = {0};
    put_ramp(&storage, n);
    zip_add(zip, "top/data.pkl", pickle->data, pickle->len, 0);
    zip_add(zip, "top/byteorder", "little", 6, 0);
    zip_add(zip, "top/data/0", storage.data ? storage.data : "", n, 9);
    zip_finish(zip, true);
    sd_buf_free(&storage);
}

#endif
