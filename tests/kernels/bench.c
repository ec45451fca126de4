/* SPDX-License-Identifier: MIT
 *
 * Speeds of the products at the sizes of opt-1.3b, and of the rest. The speed of memory on shared machines changes from
 * second to second, so that each number is printed with a probe taken just before and just after it, and as a share of
 * it. Weights come from a store far larger than the caches, a different part at each call, as a decode step finds
 * them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "tests/kernels/bench.h"

enum { MAX_THREADS = 2, MAX_ROWS = 128, MAX_WIDTH = 8192, REPEATS = 5 };
static const size_t store_bytes = (size_t)512 << 20;
static const double repeat_seconds = 0.06;

/* ---- products ---- */

typedef struct product {
    const sd_kernels *kernels;
    sd_gemm gemm;
    int threads;
} product;

static void multiply_share(void *context, int task, int worker)
{
    (void)worker;
    const product *p = context;
    const int panels = sd_matrix_panels(p->gemm.w->n);
    p->kernels->gemm[p->gemm.w->type](&p->gemm, panels * task / p->threads, panels * (task + 1) / p->threads);
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median time of one product, over repetitions that walk through the store. */
static double time_product(sd_pool *pool, product *p, sd_matrix *m, char *store)
{
    const size_t bytes = sd_matrix_bytes(m->type, m->n, m->k);
    double times[REPEATS];
    size_t at = 0;
    for (int i = 0; i < REPEATS; i++) {
        const double start = sd_clock_seconds();
        int count = 0;
        do {
            m->data = store + at;
            at = at + 2 * bytes <= store_bytes ? at + bytes : 0;
            sd_pool_run(pool, p->threads, multiply_share, p);
            count++;
        } while (sd_clock_seconds() - start < repeat_seconds);
        times[i] = (sd_clock_seconds() - start) / count;
    }
    qsort(times, REPEATS, sizeof *times, compare_doubles);
    return times[REPEATS / 2];
}

static const char *entry_name(sd_wtype type)
{
    static const char *const names[SD_W_TYPES] = {"gemm_f32", "gemm_bf16", "gemm_q8", "gemm_q4"};
    return names[type];
}

/* The peak of the instruction that a type is multiplied with at this level. */
static sd_peak peak_of(const sd_kernels *t, sd_wtype type)
{
    if (type == SD_W_Q8 || type == SD_W_Q4) {
        return SD_PEAK_INT8;
    }
    return type == SD_W_BF16 && t->pack_input[type] ? SD_PEAK_BF16 : SD_PEAK_F32;
}

static void bench_product(const sd_kernels *t, sd_pool *pool, int threads, sd_matrix m, int rows,
                          const bench_buffers *b)
{
    char *store = b->store;
    float *x = b->x, *y = b->y;
    const sd_peak kind = peak_of(t, m.type);
    product p = {.kernels = t, .threads = threads};
    p.gemm = (sd_gemm){.w = &m, .x = x, .x_stride = (size_t)m.k, .y = y, .y_stride = (size_t)m.n, .rows = rows};
    for (int r = 0; t->pack_input[m.type] && r < rows; r++) {
        p.gemm.packed_x = b->packed;
        p.gemm.packed_stride = sd_input_bytes(m.type, m.k);
        t->pack_input[m.type](b->packed + (size_t)r * p.gemm.packed_stride, x + (size_t)r * (size_t)m.k, m.k);
    }
    const sd_span span = {store, store_bytes};
    const double bandwidth_before = sd_probe_read(pool, &span, 1), peak_before = sd_probe_peak(pool, kind);
    const double seconds = time_product(pool, &p, &m, store);
    const double bandwidth = (bandwidth_before + sd_probe_read(pool, &span, 1)) / 2;
    const double peak = (peak_before + sd_probe_peak(pool, kind)) / 2;
    const double gbs = (double)sd_matrix_bytes(m.type, m.n, m.k) / seconds * 1e-9;
    const double gflops = 2.0 * rows * m.n * m.k / seconds * 1e-9;
    printf("%-10s %-9s %dx%d %4d %7d %9.1f %8.1f %5.0f%% %9.1f %8.1f %5.0f%%\n", t->name, entry_name(m.type), m.n,
           m.k, rows, threads, gbs, bandwidth, 100 * gbs / bandwidth, gflops, peak, peak > 0 ? 100 * gflops / peak : 0);
}

static void bench_threads(const check_tables *tables, const char *entry, sd_pool *pool, int threads,
                          const bench_buffers *b)
{
    static const int sizes[][2] = {{2048, 2048}, {8192, 2048}, {2048, 8192}}, rows[] = {1, 8, 32, 128};
    for (int l = 0; l < tables->n; l++) {
        for (int type = 0; type < SD_W_TYPES; type++) {
            if (entry && strcmp(entry, entry_name((sd_wtype)type)) != 0) {
                continue;
            }
            for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
                for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
                    const sd_matrix m = {.type = (sd_wtype)type, .n = sizes[s][0], .k = sizes[s][1]};
                    bench_product(tables->table[l], pool, threads, m, rows[r], b);
                }
            }
        }
    }
}

void bench_run(const check_tables *tables, const char *entry)
{
    char *store = sd_malloc_aligned(store_bytes, 1), *packed = sd_malloc_aligned((size_t)MAX_ROWS * MAX_WIDTH, 2);
    float *x = sd_malloc_aligned((size_t)MAX_ROWS * MAX_WIDTH, sizeof *x);
    float *y = sd_malloc_aligned((size_t)MAX_ROWS * MAX_WIDTH, sizeof *y);
    if (store && packed && x && y) {
        /* about 0.01 as f32 and as a pair of bf16, 1 as f16 */
        for (size_t i = 0; i < store_bytes / sizeof(float); i++) {
            ((uint32_t *)(void *)store)[i] = 0x3C233C23u;
        }
        for (size_t i = 0; i < (size_t)MAX_ROWS * MAX_WIDTH; i++) {
            x[i] = (float)(i % 97) * 0.01f;
        }
        printf("level      entry     n x k     rows threads      GB/s    probe  share   GFLOP/s     peak  share\n");
        for (int threads = 1; threads <= MAX_THREADS; threads++) {
            sd_pool *pool;
            sd_error err;
            if (sd_pool_create(&pool, threads, &err) != SD_OK) {
                printf("no %d threads: %s\n", threads, err.message);
                break;
            }
            const bench_buffers b = {.store = store, .packed = packed, .store_bytes = store_bytes, .x = x, .y = y};
            bench_threads(tables, entry, pool, threads, &b);
            if (threads == 1) {
                bench_rows(tables, entry, pool, &b);
            }
            sd_pool_free(pool);
        }
    }
    sd_free_aligned(store);
    sd_free_aligned(packed);
    sd_free_aligned(x);
    sd_free_aligned(y);
}
