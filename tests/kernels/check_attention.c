/* SPDX-License-Identifier: MIT
 *
 * Attention of one query, against the formula in long double. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/half.h"
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
    bool half;        /* keys and values as f16: k and v hold what those are */
    guard hk, hv;     /* the f16, two in a float */
} attention_case;

static const char *entry_of(const attention_case *c) { return c->half ? "attention_f16" : "attention"; }

/* Arrays of n f16 that end where a guard does: an odd number begins in the middle of a float. */
static uint16_t *halves(const guard *g, size_t n) { return (uint16_t *)(void *)(g->data + g->n) - n; }

static void attend(const sd_kernels *t, const attention_case *c, float *out, float *scores)
{
    const size_t cells = (size_t)c->n * (size_t)c->hd;
    if (c->half) {
        t->attention_f16(out, c->q.data, halves(&c->hk, cells), halves(&c->hv, cells), scores, c->n, c->hd, c->scale);
    } else {
        t->attention(out, c->q.data, c->k.data, c->v.data, scores, c->n, c->hd, c->scale);
    }
}

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
            check_fail(entry_of(c), t->name, "out[%d] is %.9g, expected %.9g, error %.3g of %.3g (n %d, head %d)", d,
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
    attend(t, c, out.data, scores.data);
    attend(t, c, again.data, room.data);
    if (!guard_intact(&out) || !guard_intact(&scores) || !guard_intact(&again) || !guard_intact(&room) ||
        !guard_is_blank(again.data[hd]) || !guard_is_blank(room.data[n])) {
        check_fail(entry_of(c), t->name, "wrote outside out or scores (n %d, head %d)", c->n, c->hd);
    }
    if (memcmp(out.data, again.data, hd * sizeof(float)) != 0 && !spoiled) {
        check_fail(entry_of(c), t->name, "the result depends on the address (n %d, head %d)", c->n, c->hd);
    }
    if (!spoiled) {
        compare_attention(t, c, out.data);
    }
    for (size_t d = 0; d < hd && spoiled; d++) {
        if (!isnan(out.data[d])) {
            check_fail(entry_of(c), t->name, "a NaN among the keys gave out[%zu] = %g", d, (double)out.data[d]);
            break;
        }
    }
    guard_free(&out);
    guard_free(&scores);
    guard_free(&again);
    guard_free(&room);
}

static void round_to_half(guard *half, guard *x)
{
    *half = guard_new((x->n + 1) / 2);
    for (size_t i = 0; i < x->n; i++) {
        halves(half, x->n)[i] = sd_f32_to_f16(x->data[i]);
        x->data[i] = sd_f16_to_f32(halves(half, x->n)[i]);
    }
}

static void check_size(const check_tables *tables, int n, int hd, query_kind kind, bool half, sd_rng *rng)
{
    const size_t cells = (size_t)n * (size_t)hd;
    attention_case c = {.n = n, .hd = hd, .scale = 1 / sqrtf((float)hd), .half = half};
    c.q = guard_new((size_t)hd);
    c.k = guard_new(cells);
    c.v = guard_new(cells);
    check_fill(c.q.data, c.q.n, kind == QUERY_ZERO ? VALUES_ZERO : VALUES_NORMAL, rng);
    check_fill(c.k.data, cells, VALUES_NORMAL, rng);
    check_fill(c.v.data, cells, kind == QUERY_HUGE && !half ? VALUES_MIXED : VALUES_NORMAL, rng);
    for (size_t d = 0; d < c.q.n; d++) {
        c.q.data[d] *= kind == QUERY_SHARP ? 1000.0f : kind == QUERY_HUGE ? 3e4f : 1.0f;
    }
    if (half) {
        round_to_half(&c.hk, &c.k);
        round_to_half(&c.hv, &c.v);
    }
    for (int l = 0; l < tables->n; l++) {
        run_attention(tables->table[l], &c, false);
    }
    c.k.data[cells - 1] = NAN;
    if (half) {
        halves(&c.hk, cells)[cells - 1] = 0x7E00u;
    }
    for (int l = 0; l < tables->n && kind == QUERY_NORMAL; l++) {
        run_attention(tables->table[l], &c, true);
    }
    guard_free(&c.q);
    guard_free(&c.k);
    guard_free(&c.v);
    guard_free(&c.hk);
    guard_free(&c.hv);
}

static void check_sizes(const check_tables *tables, bool half)
{
    sd_rng rng;
    sd_rng_seed(&rng, 5);
    for (int hd = 1; hd <= 67; hd++) {
        for (int n = 1; n <= 67; n++) {
            check_size(tables, n, hd, (query_kind)((hd + n) % QUERY_KINDS), half, &rng);
        }
    }
    static const int large[][2] = {/* n, head size */
        {1, 64}, {257, 64}, {2048, 64}, {130, 80}, {2049, 80}, {131, 128}, {33, 130}, {65, 257}};
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        for (int kind = 0; kind < QUERY_KINDS; kind++) {
            check_size(tables, large[i][0], large[i][1], (query_kind)kind, half, &rng);
        }
    }
}

void check_attention(const check_tables *tables) { check_sizes(tables, false); }
void check_attention_f16(const check_tables *tables) { check_sizes(tables, true); }

void check_to_f16(const check_tables *tables)
{
    sd_rng rng;
    sd_rng_seed(&rng, 7);
    for (size_t n = 1; n <= 67; n++) {
        for (int v = 0; v < VALUES_KINDS; v++) {
            guard x = guard_new(n);
            check_fill(x.data, n, (check_values)v, &rng);
            x.data[n / 2] = n % 4 == 0 ? INFINITY : n % 4 == 1 ? -65520.0f : x.data[n / 2];
            for (int l = 0; l < tables->n; l++) {
                const sd_kernels *t = tables->table[l];
                guard y = guard_new((n + 1) / 2 + 1);
                uint16_t *got = halves(&y, n);
                t->to_f16(got, x.data, n);
                for (size_t i = 0; i < n; i++) {
                    if (got[i] != sd_f32_to_f16(x.data[i])) {
                        check_fail("to_f16", t->name, "%g gives %04x, expected %04x", (double)x.data[i], got[i],
                                   sd_f32_to_f16(x.data[i]));
                        break;
                    }
                }
                if (!guard_intact(&y) || !guard_is_blank(y.data[0])) {
                    check_fail("to_f16", t->name, "wrote in front of the result (n %zu)", n);
                }
                guard_free(&y);
            }
            guard_free(&x);
        }
    }
}
