/* SPDX-License-Identifier: MIT
 *
 * What the targets of the checkpoint room share. */
#ifndef SD_TESTS_FUZZ_FUZZ_READER_H
#define SD_TESTS_FUZZ_FUZZ_READER_H

#include <string.h>

#include "src/base/utf8.h"
#include "src/checkpoint/readers.h"
#include "tests/fuzz/fuzz.h"

/* Runs the reader on the input, checks its answer, and touches every byte of every tensor that it admits. */
static inline int fuzz_reader(sd_reader *reader, const uint8_t *data, size_t size)
{
    sd_tensor_list list = {0};
    sd_error err = {0};
    int rc = reader(&list, data, size, "input", &err);
    if (rc == SD_OK) {
        rc = sd_tensor_list_sort(&list, &err);
    }
    sd_fuzz_require(rc == err.code);
    sd_fuzz_require(rc == SD_OK || err.message[0] != '\0');
    sd_fuzz_require(sd_utf8_valid(err.message, strlen(err.message)));
    volatile unsigned char sum = 0;
    for (size_t i = 0; rc == SD_OK && i < list.n; i++) {
        const sd_tensor *t = &list.entries[i].tensor;
        int64_t n;
        sd_fuzz_require(t->rank >= 0 && t->rank <= SD_MAX_RANK);
        sd_fuzz_require(sd_shape_elements(t->shape, t->rank, &n) && n == t->n_elements);
        sd_fuzz_require(sd_tensor_list_find(&list, t->name) == t);
        for (size_t j = 0; j < (size_t)n * sd_dtype_size(t->dtype); j++) {
            sum = (unsigned char)(sum + ((const unsigned char *)t->data)[j]);
        }
    }
    sd_tensor_list_free(&list);
    return 0;
}

#endif
