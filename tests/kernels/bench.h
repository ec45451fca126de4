/* SPDX-License-Identifier: MIT */
#ifndef SD_TESTS_KERNELS_BENCH_H
#define SD_TESTS_KERNELS_BENCH_H

#include "src/base/pool.h"
#include "src/kernels/probe.h"
#include "tests/kernels/check.h"

typedef struct bench_buffers {
    char *store, *packed; /* the store is far larger than the caches */
    size_t store_bytes;
    float *x, *y;         /* a million floats each */
} bench_buffers;

/* What is not a product, on the one thread of `pool`; entry NULL: all. */
void bench_rows(const check_tables *tables, const char *entry, sd_pool *pool, const bench_buffers *b);

#endif
