/* SPDX-License-Identifier: MIT
 *
 * Speeds of the products at the sizes of opt-1.3b. The speed of memory on shared machines changes from second to
 * second, so that each number is printed with a probe taken just before and just after it, and as a share of it.
 * Weights come from a store far larger than the caches, a different part at each call, as a decode step finds them. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "src/base/alloc.h"
#include "src/base/pool.h"
#include "tests/kernels/check.h"

enum { MAX_THREADS = 2, MAX_ROWS = 128, MAX_WIDTH = 8192, REPEATS = 5 };
static const size_t store_bytes = (size_t)512 << 20;
static const double repeat_seconds = 0.06;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- probes: what bounds a product ---- */

typedef struct probe {
    const char *store;
    size_t bytes; /* of the store, for each thread */
    uint64_t result[MAX_THREADS]; /* so that the work cannot be left out */
} probe;

/* Adds up words as fast as memory brings them. */
static uint64_t add_words(const char *data, size_t bytes)
{
    uint64_t sum[8] = {0};
    for (size_t at = 0; at < bytes; at += sizeof sum) {
        __builtin_prefetch(data + at + 4096);
        for (size_t j = 0; j < 8; j++) {
            uint64_t word;
            memcpy(&word, data + at + 8 * j, sizeof word);
            sum[j] += word;
        }
    }
    return sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static uint64_t add_words_avx2(const char *data, size_t bytes)
{
    __m256i sum[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256()};
    for (size_t at = 0; at < bytes; at += 2 * sizeof sum) {
        for (size_t j = 0; j < 8; j++) {
            if (j % 2 == 0) {
                _mm_prefetch(data + at + 32 * j + 4096, _MM_HINT_T0);
            }
            const __m256i words = _mm256_load_si256((const __m256i *)(const void *)(data + at + 32 * j));
            sum[j % 4] = _mm256_add_epi64(sum[j % 4], words);
        }
    }
    const __m256i all = _mm256_add_epi64(_mm256_add_epi64(sum[0], sum[1]), _mm256_add_epi64(sum[2], sum[3]));
    return (uint64_t)_mm256_extract_epi64(all, 0) + (uint64_t)_mm256_extract_epi64(all, 3);
}
#endif

static void read_store(void *context, int task, int worker)
{
    (void)worker;
    probe *p = context;
    const char *data = p->store + (size_t)task * p->bytes;
#if defined(__x86_64__)
    if (sd_cpu_detect() >= SD_CPU_AVX2) {
        p->result[task] = add_words_avx2(data, p->bytes);
        return;
    }
#endif
    p->result[task] = add_words(data, p->bytes);
}

enum { PEAK_ROUNDS = 4 << 20, PEAK_SUMS = 16 };

#if defined(__x86_64__)
__attribute__((target("avx512f"))) static double peak_avx512(void)
{
    __m512 sum[PEAK_SUMS], a = _mm512_set1_ps(0.5f), b = _mm512_set1_ps(1.0f);
    for (int j = 0; j < PEAK_SUMS; j++) {
        sum[j] = _mm512_set1_ps((float)j);
    }
    for (int i = 0; i < PEAK_ROUNDS; i++) {
        for (int j = 0; j < PEAK_SUMS; j++) {
            sum[j] = _mm512_fmadd_ps(sum[j], a, b);
        }
        __asm__ volatile("" : "+v"(a));
    }
    for (int j = 1; j < PEAK_SUMS; j++) {
        sum[0] = _mm512_add_ps(sum[0], sum[j]);
    }
    return (double)_mm512_cvtss_f32(sum[0]);
}

__attribute__((target("avx2,fma"))) static double peak_avx2(void)
{
    enum { SUMS = 12 }; /* of 16 registers */
    __m256 sum[SUMS], a = _mm256_set1_ps(0.5f), b = _mm256_set1_ps(1.0f);
    for (int j = 0; j < SUMS; j++) {
        sum[j] = _mm256_set1_ps((float)j);
    }
    for (int i = 0; i < PEAK_ROUNDS / SUMS * PEAK_SUMS; i++) {
        for (int j = 0; j < SUMS; j++) {
            sum[j] = _mm256_fmadd_ps(sum[j], a, b);
        }
        __asm__ volatile("" : "+x"(a));
    }
    for (int j = 1; j < SUMS; j++) {
        sum[0] = _mm256_add_ps(sum[0], sum[j]);
    }
    return (double)_mm256_cvtss_f32(sum[0]);
}
#endif

static void multiply_and_add(void *context, int task, int worker)
{
    (void)worker;
    probe *p = context;
    double result = 0;
#if defined(__x86_64__)
    const sd_cpu_level_id level = sd_cpu_detect();
    result = level == SD_CPU_AVX512 ? peak_avx512() : level == SD_CPU_AVX2 ? peak_avx2() : 0;
#endif
    p->result[task] = (uint64_t)result;
}

static double probe_bandwidth(sd_pool *pool, int threads, const char *store)
{
    probe p = {.store = store, .bytes = store_bytes / MAX_THREADS};
    const double start = now();
    sd_pool_run(pool, threads, read_store, &p);
    return (double)threads * (double)p.bytes / (now() - start) * 1e-9;
}

/* GFLOP/s of fused multiply-adds at the machine's best level, from registers; 0 where there is no probe. */
static double probe_peak(sd_pool *pool, int threads)
{
    probe p = {0};
    const int lanes = sd_cpu_detect() == SD_CPU_AVX512 ? 16 : sd_cpu_detect() == SD_CPU_AVX2 ? 8 : 0;
    const double start = now();
    sd_pool_run(pool, threads, multiply_and_add, &p);
    return 2.0 * threads * lanes * PEAK_SUMS * (double)PEAK_ROUNDS / (now() - start) * 1e-9;
}

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
        const double start = now();
        int count = 0;
        do {
            m->data = store + at;
            at = at + 2 * bytes <= store_bytes ? at + bytes : 0;
            sd_pool_run(pool, p->threads, multiply_share, p);
            count++;
        } while (now() - start < repeat_seconds);
        times[i] = (now() - start) / count;
    }
    qsort(times, REPEATS, sizeof *times, compare_doubles);
    return times[REPEATS / 2];
}

static void bench_product(const sd_kernels *t, sd_pool *pool, int threads, sd_matrix m, int rows, char *store, float *x,
                          float *y)
{
    product p = {.kernels = t, .threads = threads};
    p.gemm = (sd_gemm){.w = &m, .x = x, .x_stride = (size_t)m.k, .y = y, .y_stride = (size_t)m.n, .rows = rows};
    const double bandwidth_before = probe_bandwidth(pool, threads, store), peak_before = probe_peak(pool, threads);
    const double seconds = time_product(pool, &p, &m, store);
    const double bandwidth = (bandwidth_before + probe_bandwidth(pool, threads, store)) / 2;
    const double peak = (peak_before + probe_peak(pool, threads)) / 2;
    const double gbs = (double)sd_matrix_bytes(m.type, m.n, m.k) / seconds * 1e-9;
    const double gflops = 2.0 * rows * m.n * m.k / seconds * 1e-9;
    printf("%-6s %-9s %dx%d %4d %7d %9.1f %8.1f %5.0f%% %9.1f %8.1f %5.0f%%\n", t->name,
           m.type == SD_W_F32 ? "gemm_f32" : "gemm_bf16", m.n, m.k, rows, threads, gbs, bandwidth,
           100 * gbs / bandwidth, gflops, peak, peak > 0 ? 100 * gflops / peak : 0);
}

static void bench_threads(const check_tables *tables, const char *entry, sd_pool *pool, int threads, char *store,
                          float *x, float *y)
{
    static const int sizes[][2] = {{2048, 2048}, {8192, 2048}, {2048, 8192}}, rows[] = {1, 8, 32, 128};
    for (int l = 0; l < tables->n; l++) {
        for (int type = 0; type < SD_W_TYPES; type++) {
            if (entry && strcmp(entry, type == SD_W_F32 ? "gemm_f32" : "gemm_bf16") != 0) {
                continue;
            }
            for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
                for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
                    const sd_matrix m = {.type = (sd_wtype)type, .n = sizes[s][0], .k = sizes[s][1]};
                    bench_product(tables->table[l], pool, threads, m, rows[r], store, x, y);
                }
            }
        }
    }
}

void bench_run(const check_tables *tables, const char *entry)
{
    char *store = sd_malloc_aligned(store_bytes, 1);
    float *x = sd_malloc_aligned((size_t)MAX_ROWS * MAX_WIDTH, sizeof *x);
    float *y = sd_malloc_aligned((size_t)MAX_ROWS * MAX_WIDTH, sizeof *y);
    if (store && x && y) {
        for (size_t i = 0; i < store_bytes / sizeof(float); i++) { /* about 0.01 as f32 and as a pair of bf16 */
            ((uint32_t *)(void *)store)[i] = 0x3C233C23u;
        }
        for (size_t i = 0; i < (size_t)MAX_ROWS * MAX_WIDTH; i++) {
            x[i] = (float)(i % 97) * 0.01f;
        }
        printf("level  entry     n x k     rows threads      GB/s    probe  share   GFLOP/s     peak  share\n");
        for (int threads = 1; threads <= MAX_THREADS; threads++) {
            sd_pool *pool;
            sd_error err;
            if (sd_pool_create(&pool, threads, &err) != SD_OK) {
                printf("no %d threads: %s\n", threads, err.message);
                break;
            }
            bench_threads(tables, entry, pool, threads, store, x, y);
            sd_pool_free(pool);
        }
    }
    sd_free_aligned(store);
    sd_free_aligned(x);
    sd_free_aligned(y);
}
