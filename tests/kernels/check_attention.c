/* SPDX-License-Identifier: MIT
 *
 * Attention of one query, against the formula in long double. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/kernels/check.h"

typedef enum query_kind {
    QUERY_NORMAL,
    QUERY_ZERO,  /* every position weighs the same */
    QUERY_SHARP, /* scores in the hundreds: one position takes all, the others vanish */
    QUERY_HUGE,  /* scores whose exponential would overflow without the maximum */
    QUERY_KINDS
} query_kind;

typedef struct attention_case {
    int n, hd;
    float scale;
    guard q, k, v;
} attention_case;

/* The weights that softmax gives, and by how much rounded scores may change them (relative). */
static double make_weights(const attention_case *c, long double *weights)
{
    long double max = -HUGE_VALL, total = 0, magnitude = 0;
    for (int p = 0; p < c->n; p++) {
        long double dot = 0, sum = 0;
        for (int d = 0; d < c->hd; d++) {
            const long double product = (long double)c->q.data[d] * (long double)c->k.data[(size_t)(p * c->hd + d)];
            dot += product;
            sum += fabsl(product);
        }
        weights[p] = dot * (long double)c->scale;
        max = weights[p] > max ? weights[p] : max;
        sum *= fabsl((long double)c->scale);
        magnitude = sum > magnitude ? sum : magnitude;
    }
    for (int p = 0; p < c->n; p++) {
        weights[p] = expl(weights[p] - max);
        total += weights[p];
    }
    for (int p = 0; p < c->n; p++) {
        weights[p] /= total;
    }
    return 0x1p-24 * (4 + sqrt((double)c->hd)) * (double)magnitude;
}

static void compare_attention(const sd_kernels *t, const attention_case *c, const float *out)
{
    long double *weights = malloc((size_t)c->n * sizeof *weights);
    if (!weights) {
        perror("checkkernels");
        exit(2);
    }
    const double shift = make_weights(c, weights);
    for (int d = 0; d < c->hd; d++) {
        long double want = 0, magnitude = 0;
        for (int p = 0; p < c->n; p++) {
            const long double product = weights[p] * (long double)c->v.data[(size_t)(p * c->hd + d)];
            want += product;
            magnitude += fabsl(product);
        }
        const double unit = 0x1p-24 * (12 + 2 * sqrt((double)c->n));
        const double allowed = (double)magnitude * (unit + expm1(2 * shift)) + 1e-37;
        if (!(fabs((double)out[d] - (double)want) <= allowed)) {
            check_fail("attention", t->name, "out[%d] is %.9g, expected %.9g, error %.3g of %.3g (n %d, head %d)", d,
                       (double)out[d], (double)want, fabs((double)out[d] - (double)want), allowed, c->n, c->hd);
            break;
        }
    }
    free(weights);
}

static void run_attention(const sd_kernels *t, const attention_case *c, bool spoiled)
{
    const size_t n = (size_t)c->n, hd = (size_t)c->hd;
    guard out = guard_new(hd), scores = guard_new(n), again = guard_new(hd + 1), room = guard_new(n + 1);
    t->attention(out.data, c->q.data, c->k.data, c->v.data, scores.data, c->n, c->hd, c->scale);
    t->attention(again.data, c->q.data, c->k.data, c->v.data, room.data, c->n, c->hd, c->scale);
    if (!guard_intact(&out) || !guard_intact(&scores) || !guard_intact(&again) || !guard_intact(&room) ||
        !guard_is_blank(again.data[hd]) || !guard_is_blank(room.data[n])) {
        check_fail("attention", t->name, "wrote outside out or scores (n %d, head %d)", c->n, c->hd);
    }
    if (memcmp(out.data, again.data, hd * sizeof(float)) != 0 && !spoiled) {
        check_fail("attention", t->name, "the result depends on the address (n %d, head %d)", c->n, c->hd);
    }
    if (!spoiled) {
        compare_attention(t, c, out.data);
    }
    for (size_t d = 0; d < hd && spoiled; d++) {
        if (!isnan(out.data[d])) {
            check_fail("attention", t->name, "a NaN among the keys gave out[%zu] = %g", d, (double)out.data[d]);
            break;
        }
    }
    guard_free(&out);
    guard_free(&scores);
    guard_free(&again);
    guard_free(&room);
}

static void check_size(const check_tables *tables, int n, int hd, query_kind kind, sd_rng *rng)
{
    const size_t cells = (size_t)n * (size_t)hd;
    attention_case c = {.n = n, .hd = hd, .scale = 1 / sqrtf((float)hd)};
    c.q = guard_new((size_t)hd);
    c.k = guard_new(cells);
    c.v = guard_new(cells);
    check_fill(c.q.data, c.q.n, kind == QUERY_ZERO ? VALUES_ZERO : VALUES_NORMAL, rng);
    check_fill(c.k.data, cells, VALUES_NORMAL, rng);
    check_fill(c.v.data, cells, kind == QUERY_HUGE ? VALUES_MIXED : VALUES_NORMAL, rng);
    for (size_t d = 0; d < c.q.n; d++) {
        c.q.data[d] *= kind == QUERY_SHARP ? 1000.0f : kind == QUERY_HUGE ? 3e4f : 1.0f;
    }
    for (int l = 0; l < tables->n; l++) {
        run_attention(tables->table[l], &c, false);
    }
    c.k.data[cells - 1] = NAN;
    for (int l = 0; l < tables->n && kind == QUERY_NORMAL; l++) {
        run_attention(tables->table[l], &c, true);
    }
    guard_free(&c.q);
    guard_free(&c.k);
    guard_free(&c.v);
}

void check_attention(const check_tables *tables)
{
    sd_rng rng;
    sd_rng_seed(&rng, 5);
    for (int hd = 1; hd <= 67; hd++) {
        for (int n = 1; n <= 67; n++) {
            check_size(tables, n, hd, (query_kind)((hd + n) % QUERY_KINDS), &rng);
        }
    }
    static const int large[][2] = {/* n, head size */
        {1, 64}, {257, 64}, {2048, 64}, {130, 80}, {2049, 80}, {131, 128}, {33, 130}, {65, 257}};
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        for (int kind = 0; kind < QUERY_KINDS; kind++) {
            check_size(tables, large[i][0], large[i][1], (query_kind)kind, &rng);
        }
    }
}
