/* SPDX-License-Identifier: MIT */
#include "src/checkpoint/tensor_list.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/half.h"
#include "src/base/utf8.h"

/* Tensors are read where they lie in the file, and every format here stores them little-endian. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "this room reads tensors in place: port it before using it");

static const struct {
    const char *name;
    size_t size;
} dtypes[SD_DTYPES] = {
    [SD_DTYPE_F32] = {"F32", 4},   [SD_DTYPE_F16] = {"F16", 2}, [SD_DTYPE_BF16] = {"BF16", 2},
    [SD_DTYPE_F64] = {"F64", 8},   [SD_DTYPE_I64] = {"I64", 8}, [SD_DTYPE_I32] = {"I32", 4},
    [SD_DTYPE_I16] = {"I16", 2},   [SD_DTYPE_I8] = {"I8", 1},   [SD_DTYPE_U8] = {"U8", 1},
    [SD_DTYPE_BOOL] = {"BOOL", 1},
};

const char *sd_dtype_name(sd_dtype dtype) { return (unsigned)dtype < SD_DTYPES ? dtypes[dtype].name : "unknown"; }

size_t sd_dtype_size(sd_dtype dtype) { return (unsigned)dtype < SD_DTYPES ? dtypes[dtype].size : 0; }

bool sd_dtype_from_name(const char *name, sd_dtype *dtype)
{
    for (int i = 0; i < SD_DTYPES; i++) {
        if (strcmp(name, dtypes[i].name) == 0) {
            *dtype = (sd_dtype)i;
            return true;
        }
    }
    return false;
}

bool sd_shape_elements(const int64_t *shape, int rank, int64_t *n)
{
    int64_t product = 1;
    bool empty = false;
    for (int i = 0; i < rank; i++) {
        empty |= shape[i] == 0;
        if (__builtin_mul_overflow(product, shape[i] > 0 ? shape[i] : 1, &product)) {
            return false;
        }
    }
    *n = empty ? 0 : product;
    return true;
}

sd_shown sd_show(const char *name, size_t len)
{
    sd_shown shown;
    size_t out = 0, in = 0;
    while (in < len) {
        int n = sd_utf8_next((const unsigned char *)name + in, len - in);
        size_t step = n > 0 ? (size_t)n : 1;
        if (out + step + sizeof "..." > sizeof shown.text) {
            memcpy(shown.text + out, "...", 3);
            out += 3;
            break;
        }
        if (n <= 0 || (unsigned char)name[in] < 0x20 || name[in] == 0x7F) {
            shown.text[out++] = '?'; /* a message goes to terminals and logs: no control bytes in it */
        } else {
            memcpy(shown.text + out, name + in, step);
            out += step;
        }
        in += step;
    }
    shown.text[out] = '\0';
    return shown;
}

sd_tensor_entry *sd_tensor_list_add(sd_tensor_list *list, const sd_tensor *tensor, const char *name, size_t len,
                                    sd_error *err)
{
    if (list->n == list->cap) {
        size_t cap = list->cap ? 2 * list->cap : 64;
        sd_tensor_entry *grown = sd_realloc(list->entries, cap, sizeof *grown);
        if (!grown) {
            (void)sd_fail_memory(err, cap * sizeof *grown, "the list of tensors");
            return NULL;
        }
        list->entries = grown;
        list->cap = cap;
    }
    char *copy = sd_strndup(name, len);
    if (!copy) {
        (void)sd_fail_memory(err, len + 1, "a tensor's name");
        return NULL;
    }
    sd_tensor_entry *entry = &list->entries[list->n++];
    *entry = (sd_tensor_entry){.tensor = *tensor};
    entry->tensor.name = copy;
    return entry;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const sd_tensor_entry *)a)->tensor.name, ((const sd_tensor_entry *)b)->tensor.name);
}

int sd_tensor_list_sort(sd_tensor_list *list, sd_error *err)
{
    if (list->n == 0) {
        return SD_OK;
    }
    qsort(list->entries, list->n, sizeof *list->entries, by_name);
    for (size_t i = 1; i < list->n; i++) {
        const sd_tensor *a = &list->entries[i - 1].tensor, *b = &list->entries[i].tensor;
        if (strcmp(a->name, b->name) == 0) {
            return sd_fail(err, SD_ERR_FORMAT, "tensor \"%s\" is there twice: in %s and in %s",
                           sd_show(a->name, strlen(a->name)).text, a->file, b->file);
        }
    }
    return SD_OK;
}

static int name_to_entry(const void *name, const void *entry)
{
    return strcmp(name, ((const sd_tensor_entry *)entry)->tensor.name);
}

const sd_tensor *sd_tensor_list_find(const sd_tensor_list *list, const char *name)
{
    if (list->n == 0) {
        return NULL;
    }
    const sd_tensor_entry *entry = bsearch(name, list->entries, list->n, sizeof *list->entries, name_to_entry);
    return entry ? &entry->tensor : NULL;
}

void sd_tensor_list_free(sd_tensor_list *list)
{
    for (size_t i = 0; i < list->n; i++) {
        sd_free((void *)(uintptr_t)list->entries[i].tensor.name);
        sd_free_aligned(list->entries[i].copy);
    }
    sd_free(list->entries);
    *list = (sd_tensor_list){0};
}

void sd_tensor_read_f32(const sd_tensor *tensor, int64_t first, int64_t n, float *dst)
{
    size_t size = sd_dtype_size(tensor->dtype), count = (size_t)n;
    const unsigned char *src = (const unsigned char *)tensor->data + (size_t)first * size;
    if (tensor->dtype == SD_DTYPE_F32) {
        memcpy(dst, src, count * size);
    } else if (tensor->dtype == SD_DTYPE_F16) {
        sd_f16_to_f32_array(dst, src, count);
    } else if (tensor->dtype == SD_DTYPE_BF16) {
        sd_bf16_to_f32_array(dst, src, count);
    } else if (tensor->dtype == SD_DTYPE_F64) {
        for (size_t i = 0; i < count; i++) {
            double x;
            memcpy(&x, src + i * sizeof x, sizeof x);
            dst[i] = (float)x;
        }
    }
}
