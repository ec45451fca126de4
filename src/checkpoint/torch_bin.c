/* SPDX-License-Identifier: MIT
 *
 * Reader of pytorch_model.bin, what torch.save makes of a state dict since torch 1.6: a ZIP of stored members, all in
 * one top folder of any name. "data.pkl" describes the tensors as views of storages, "data/<key>" are the storages'
 * bytes. https://docs.pytorch.org/docs/stable/notes/serialization.html */
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/buf.h"
#include "src/checkpoint/pickle.h"
#include "src/checkpoint/readers.h"
#include "src/checkpoint/zip.h"

typedef struct source {
    const char *path;
    sd_zip zip;
    const char *top; /* [top_len] the folder, borrowed from a member's name */
    size_t top_len;
    size_t copy_budget; /* bytes that copies of views with gaps may still take */
} source;

/* ---- members ---- */

/* *member: top/name, NULL if there is none. torch.save never compresses. */
static int find_member(const source *src, const char *name, size_t len, const sd_zip_member **member, sd_error *err)
{
    sd_buf full = {0};
    sd_buf_add(&full, src->top, src->top_len);
    sd_buf_add_str(&full, "/");
    sd_buf_add(&full, name, len);
    if (full.failed) {
        sd_buf_free(&full);
        return sd_fail_memory(err, src->top_len + len + 2, "a ZIP member's name");
    }
    *member = sd_zip_find(&src->zip, full.data, full.len);
    int rc = SD_OK;
    if (*member && !(*member)->stored) {
        rc = sd_fail(err, SD_ERR_UNSUPPORTED,
                     "ZIP: member \"%s\" is compressed: load the file with torch and save it again",
                     sd_show(full.data, full.len).text);
    }
    sd_buf_free(&full);
    return rc;
}

static int find_top(source *src, sd_error *err)
{
    static const char suffix[] = "/data.pkl";
    enum { SUFFIX = sizeof suffix - 1 };
    for (size_t i = 0; i < src->zip.n; i++) {
        const sd_zip_member *m = &src->zip.members[i];
        if (m->name_len < SUFFIX || memcmp(m->name + m->name_len - SUFFIX, suffix, SUFFIX) != 0) {
            continue;
        }
        size_t len = m->name_len - SUFFIX;
        if (memchr(m->name, '/', len)) {
            continue; /* deeper down: not torch.save's */
        }
        if (src->top) {
            return sd_fail(err, SD_ERR_FORMAT, "ZIP: holds two data.pkl, in \"%s\" and in \"%s\"",
                           sd_show(src->top, src->top_len).text, sd_show(m->name, len).text);
        }
        src->top = m->name;
        src->top_len = len;
    }
    if (!src->top) {
        return sd_fail(err, SD_ERR_FORMAT,
                       "ZIP: none of its %zu members is \"<folder>/data.pkl\": torch.save did not write it",
                       src->zip.n);
    }
    return SD_OK;
}

static int check_kind(const source *src, sd_error *err)
{
    const sd_zip_member *member = NULL;
    int rc = find_member(src, "constants.pkl", strlen("constants.pkl"), &member, err);
    if (rc == SD_OK && member) {
        return sd_fail(err, SD_ERR_UNSUPPORTED,
                       "is TorchScript, a program, not a state dict: convert the model to safetensors");
    }
    if (rc == SD_OK) {
        rc = find_member(src, "byteorder", strlen("byteorder"), &member, err);
    }
    if (rc != SD_OK || !member) {
        return rc; /* files from before torch 2.1 do not say; the machines that wrote them were little-endian */
    }
    if (member->size != strlen("little") || memcmp(member->data, "little", member->size) != 0) {
        return sd_fail(err, SD_ERR_UNSUPPORTED,
                       "byte order \"%s\"; only \"little\" is read: convert the model to safetensors",
                       sd_show((const char *)member->data, member->size).text);
    }
    return SD_OK;
}

/* ---- tensors ---- */

/* The storage's bytes: the size that the pickle claims must be there. */
static int find_storage(const source *src, const sd_pickle_tensor *t, const unsigned char **bytes, sd_error *err)
{
    sd_buf name = {0};
    sd_buf_add_str(&name, "data/");
    sd_buf_add(&name, t->key, t->key_len);
    const sd_zip_member *member = NULL;
    int rc = name.failed ? sd_fail_memory(err, t->key_len + 6, "a storage's name")
                         : find_member(src, name.data, name.len, &member, err);
    sd_buf_free(&name);
    if (rc != SD_OK) {
        return rc;
    }
    if (!member) {
        return sd_fail(err, SD_ERR_FORMAT, "its storage \"%s\" is not in the file", sd_show(t->key, t->key_len).text);
    }
    size_t size;
    if (!sd_mul_size((size_t)t->storage_elements, sd_dtype_size(t->dtype), &size) || size > member->size) {
        return sd_fail(err, SD_ERR_FORMAT, "its storage \"%s\" should hold %lld elements of %s, but has %zu bytes",
                       sd_show(t->key, t->key_len).text, (long long)t->storage_elements, sd_dtype_name(t->dtype),
                       member->size);
    }
    *bytes = member->data;
    return SD_OK;
}

/* Every element of the view must lie in the storage. */
static int check_view(const sd_pickle_tensor *t, int64_t *n_elements, sd_error *err)
{
    if (!sd_shape_elements(t->shape, t->rank, n_elements)) {
        return sd_fail(err, SD_ERR_FORMAT, "the product of its dimensions does not fit in 63 bits");
    }
    int64_t last = t->offset;
    bool fits = true;
    for (int i = 0; i < t->rank && *n_elements > 0 && fits; i++) {
        int64_t reach;
        fits = !__builtin_mul_overflow(t->shape[i] - 1, t->stride[i], &reach) &&
               !__builtin_add_overflow(last, reach, &last);
    }
    if (!fits || last > t->storage_elements || (last == t->storage_elements && *n_elements > 0)) {
        return sd_fail(err, SD_ERR_FORMAT, "its offset and strides reach beyond the %lld elements of its storage",
                       (long long)t->storage_elements);
    }
    return SD_OK;
}

/* True if the elements follow each other in row-major order; the stride of a dimension of one element says nothing. */
static bool is_contiguous(const sd_pickle_tensor *t)
{
    int64_t step = 1;
    for (int i = t->rank; i-- > 0;) {
        if (t->shape[i] != 1 && t->stride[i] != step) {
            return false;
        }
        step *= t->shape[i];
    }
    return true;
}

/* Writes the n elements of a checked view to dst in row-major order. The last dimension is a plain loop, the others
 * count like an odometer. rank >= 1: a scalar is contiguous. */
static void gather(unsigned char *dst, const unsigned char *storage, const sd_pickle_tensor *t, int64_t n)
{
    size_t size = sd_dtype_size(t->dtype);
    int inner = t->rank - 1;
    size_t row = (size_t)t->shape[inner], step = (size_t)t->stride[inner] * size;
    int64_t index[SD_MAX_RANK] = {0}, at = t->offset;
    for (int64_t done = 0; done < n; done += t->shape[inner]) {
        const unsigned char *src = storage + (size_t)at * size;
        for (size_t j = 0; j < row; j++) {
            memcpy(dst, src + j * step, size);
            dst += size;
        }
        for (int i = inner - 1; i >= 0; i--) {
            if (++index[i] < t->shape[i]) {
                at += t->stride[i];
                break;
            }
            at -= t->stride[i] * (t->shape[i] - 1); /* within the storage; the stride alone need not be */
            index[i] = 0;
        }
    }
}

/* A transposed or sliced view is copied. Views that overlap themselves (expand) or copies that together outgrow the
 * file would let a small file ask for any amount of memory. */
static int copy_view(source *src, sd_tensor_entry *entry, const unsigned char *storage, const sd_pickle_tensor *t,
                     sd_error *err)
{
    int64_t n = entry->tensor.n_elements;
    size_t size = sd_dtype_size(t->dtype);
    if (n > t->storage_elements || (size_t)n > src->copy_budget / size) {
        return sd_fail(err, SD_ERR_UNSUPPORTED,
                       "it is a view that takes more bytes than are stored for it: call .contiguous() on it before "
                       "saving");
    }
    src->copy_budget -= (size_t)n * size;
    entry->copy = sd_malloc_aligned((size_t)n, size);
    if (!entry->copy) {
        return sd_fail_memory(err, (size_t)n * size, "a copy of a tensor whose elements are not contiguous");
    }
    gather(entry->copy, storage, t, n);
    entry->tensor.data = entry->copy;
    return SD_OK;
}

static int add_tensor(source *src, sd_tensor_list *list, const sd_pickle_tensor *t, sd_error *err)
{
    const unsigned char *storage = NULL;
    sd_tensor tensor = {.dtype = t->dtype, .rank = t->rank, .file = src->path};
    memcpy(tensor.shape, t->shape, (size_t)t->rank * sizeof *t->shape);
    int rc = find_storage(src, t, &storage, err);
    if (rc == SD_OK) {
        rc = check_view(t, &tensor.n_elements, err);
    }
    if (rc != SD_OK) {
        return rc;
    }
    tensor.data = storage + (size_t)t->offset * sd_dtype_size(t->dtype);
    sd_tensor_entry *entry = sd_tensor_list_add(list, &tensor, t->name, t->name_len, err);
    if (!entry) {
        return SD_ERR_MEMORY;
    }
    return tensor.n_elements == 0 || is_contiguous(t) ? SD_OK : copy_view(src, entry, storage, t, err);
}

static int read_archive(source *src, sd_tensor_list *list, sd_error *err)
{
    int rc = find_top(src, err);
    if (rc == SD_OK) {
        rc = check_kind(src, err);
    }
    const sd_zip_member *pickle = NULL;
    if (rc == SD_OK) {
        rc = find_member(src, "data.pkl", strlen("data.pkl"), &pickle, err);
    }
    sd_state_dict dict;
    if (rc == SD_OK) {
        rc = sd_pickle_read(&dict, pickle->data, pickle->size, err);
    }
    if (rc != SD_OK) {
        return rc;
    }
    for (size_t i = 0; i < dict.n && rc == SD_OK; i++) {
        rc = add_tensor(src, list, &dict.tensors[i], err);
        if (rc != SD_OK) {
            rc = sd_fail_prefix(err, rc, "tensor \"%s\"", sd_show(dict.tensors[i].name, dict.tensors[i].name_len).text);
        }
    }
    sd_state_dict_free(&dict);
    return rc;
}

/* Before torch 1.6 the file was several pickles, the first of them this number. */
static bool is_legacy(const unsigned char *bytes, size_t size)
{
    static const unsigned char magic[] = {0x80, 0x02, 0x8A, 0x0A, 0x6C, 0xFC, 0x9C,
                                          0x46, 0xF9, 0x20, 0x6A, 0xA8, 0x50, 0x19};
    return size >= sizeof magic && memcmp(bytes, magic, sizeof magic) == 0;
}

int sd_torch_bin_read(sd_tensor_list *list, const unsigned char *bytes, size_t size, const char *path, sd_error *err)
{
    source src = {.path = path, .copy_budget = size};
    int rc;
    if (is_legacy(bytes, size)) {
        rc = sd_fail(err, SD_ERR_UNSUPPORTED,
                     "is in the format that torch wrote before 1.6: load it with torch and save it as safetensors");
    } else if (size < 4 || memcmp(bytes, "PK\3\4", 4) != 0) {
        rc = sd_fail(err, SD_ERR_FORMAT, "%s: not a file of torch.save",
                     size == 0 ? "is empty" : "does not begin like a ZIP");
    } else {
        rc = sd_zip_open(&src.zip, bytes, size, err);
    }
    if (rc == SD_OK) {
        rc = read_archive(&src, list, err);
        sd_zip_close(&src.zip);
    }
    return rc == SD_OK ? SD_OK : sd_fail_prefix(err, rc, "%s", path);
}
