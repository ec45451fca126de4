/* SPDX-License-Identifier: MIT
 *
 * Speeds of attention, of packing and of layernorm on one thread. Attention walks through keys and values of many
 * heads, far more than the caches hold, as a decode step does, next to the read probe; the others work in the
 * caches. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "tests/kernels/bench.h"

enum { REPEATS = 5, WIDTH = 2048 };
static const double repeat_seconds = 0.04;

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median seconds of one call of `run`, whose `turn` counts up. */
static double time_calls(void (*run)(void *context, int turn), void *context)
{
    double times[REPEATS];
    int turn = 0;
    for (int i = 0; i < REPEATS; i++) {
        const double start = sd_clock_seconds();
        int count = 0;
        do {
            run(context, turn++);
            count++;
        } while (sd_clock_seconds() - start < repeat_seconds);
        times[i] = (sd_clock_seconds() - start) / count;
    }
    qsort(times, REPEATS, sizeof *times, compare_doubles);
    return times[REPEATS / 2];
}

/* ---- attention ---- */

typedef struct heads {
    const sd_kernels *t;
    const bench_buffers *b;
    bool half;
    int n, hd, count; /* positions, head size, heads that fit the store */
    size_t bytes;     /* of the keys of a head, and of its values */
} heads;

static void attend(void *context, int turn)
{
    const heads *h = context;
    const char *k = h->b->store + (size_t)(turn % h->count) * 2 * h->bytes, *v = k + h->bytes;
    float *out = h->b->y, *scores = h->b->y + 4096;
    if (h->half) {
        h->t->attention_f16(out, h->b->x, (const void *)k, (const void *)v, scores, h->n, h->hd, 0.125f);
    } else {
        h->t->attention(out, h->b->x, (const void *)k, (const void *)v, scores, h->n, h->hd, 0.125f);
    }
}

static void bench_attention(const sd_kernels *t, sd_pool *pool, bool half, const bench_buffers *b)
{
    static const int sizes[] = {64, 80, 128}, positions[] = {192, 2048};
    for (int s = 0; s < 3; s++) {
        for (int p = 0; p < 2; p++) {
            heads h = {.t = t, .b = b, .half = half, .n = positions[p], .hd = sizes[s]};
            h.bytes = (size_t)h.n * (size_t)h.hd * (half ? sizeof(uint16_t) : sizeof(float));
            h.count = (int)(b->store_bytes / (2 * h.bytes));
            const sd_span span = {b->store, b->store_bytes};
            const double before = sd_probe_read(pool, &span, 1), seconds = time_calls(attend, &h);
            const double probe = (before + sd_probe_read(pool, &span, 1)) / 2;
            const double gbs = 2 * (double)h.bytes / seconds * 1e-9;
            printf("%-10s %-13s head %3d, %4d positions %9.2f us %8.1f GB/s, probe %5.1f %5.0f%%\n", t->name,
                   half ? "attention_f16" : "attention", h.hd, h.n, seconds * 1e6, gbs, probe, 100 * gbs / probe);
        }
    }
}

/* ---- rows ---- */

typedef struct row_work {
    const sd_kernels *t;
    const bench_buffers *b;
    sd_wtype type;
} row_work;

static void pack_input(void *context, int turn)
{
    const row_work *w = context;
    w->t->pack_input[w->type](w->b->packed, w->b->x + turn % 8 * WIDTH, WIDTH);
}

static void layernorm(void *context, int turn)
{
    const row_work *w = context;
    const float *x = w->b->x;
    w->t->layernorm(w->b->y, x + turn % 8 * WIDTH, x + 8 * WIDTH, x + 9 * WIDTH, WIDTH, 1e-5f);
}

static void quantise(void *context, int turn)
{
    const row_work *w = context;
    w->t->quantise[w->type](w->b->packed, 0, SD_PANEL, w->b->x + turn % 2 * WIDTH, WIDTH);
}

static void bench_row(const sd_kernels *t, const char *entry, sd_wtype type, const bench_buffers *b,
                      void (*run)(void *context, int turn), int elements)
{
    row_work work = {t, b, type};
    const double seconds = time_calls(run, &work);
    printf("%-10s %-10s %-4s %9.0f ns for %6d values, %6.2f a ns\n", t->name, entry, sd_wtype_name(type),
           seconds * 1e9, elements, elements / seconds * 1e-9);
}

static bool wanted(const char *entry, const char *name) { return !entry || strcmp(entry, name) == 0; }

void bench_rows(const check_tables *tables, const char *entry, sd_pool *pool, const bench_buffers *b)
{
    for (int l = 0; l < tables->n; l++) {
        const sd_kernels *t = tables->table[l];
        if (wanted(entry, "attention")) {
            bench_attention(t, pool, false, b);
        }
        if (wanted(entry, "attention_f16")) {
            bench_attention(t, pool, true, b);
        }
        if (wanted(entry, "layernorm")) {
            bench_row(t, "layernorm", SD_W_F32, b, layernorm, WIDTH);
        }
        for (int type = 0; type < SD_W_TYPES; type++) {
            if (t->pack_input[type] && wanted(entry, "pack_input")) {
                bench_row(t, "pack_input", (sd_wtype)type, b, pack_input, WIDTH);
            }
            if (t->quantise[type] && wanted(entry, "quantise")) {
                bench_row(t, "quantise", (sd_wtype)type, b, quantise, SD_PANEL * WIDTH);
            }
        }
    }
}
