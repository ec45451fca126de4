/* SPDX-License-Identifier: MIT
 *
 * The kernels over one row, against the same formulas in long double. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/half.h"
#include "tests/kernels/check.h"

static const int long_rows[] = {68, 130, 257, 768, 2048, 2051, 8192, 50272};
enum { LONG_ROWS = sizeof long_rows / sizeof *long_rows, SHORT_ROWS = 67 };

/* 1 .. 67, then the long ones */
static int length_of(int i) { return i < SHORT_ROWS ? i + 1 : long_rows[i - SHORT_ROWS]; }

static guard copy_of(const guard *g)
{
    guard copy = guard_new(g->n);
    memcpy(copy.data, g->data, g->n * sizeof(float));
    return copy;
}

/* The same elements at an address with another remainder: one float of room after the array. */
static guard shifted_copy_of(const guard *g)
{
    guard copy = guard_new(g->n + 1);
    memcpy(copy.data, g->data, g->n * sizeof(float));
    return copy;
}

/* ---- layernorm ---- */

typedef struct norm_case {
    int n;
    bool has_gain, has_bias, in_place;
    check_values values;
    float eps;
} norm_case;

static void compare_norm(const sd_kernels *t, const norm_case *c, const float *y, const guard *x, const guard *gain,
                         const guard *bias)
{
    long double mean = 0, variance = 0;
    for (int i = 0; i < c->n; i++) {
        mean += (long double)x->data[i] / c->n;
    }
    for (int i = 0; i < c->n; i++) {
        variance += ((long double)x->data[i] - mean) * ((long double)x->data[i] - mean) / c->n;
    }
    for (int i = 0; i < c->n; i++) {
        const double g = c->has_gain ? (double)gain->data[i] : 1, b = c->has_bias ? (double)bias->data[i] : 0;
        const double normal = (double)(((long double)x->data[i] - mean) / sqrtl(variance + (long double)c->eps));
        const double want = normal * g + b, allowed = 4 * 0x1p-24 * (fabs(normal * g) + fabs(b)) + 0x1p-148;
        if (!(fabs((double)y[i] - want) <= allowed)) {
            check_fail("layernorm", t->name,
                       "y[%d] is %.9g, expected %.9g (n %d, gain %d, bias %d, in place %d, values %d)", i,
                       (double)y[i], want, c->n, c->has_gain, c->has_bias, c->in_place, c->values);
            return;
        }
    }
}

static void check_norm_case(const check_tables *tables, const norm_case *c, sd_rng *rng)
{
    const size_t n = (size_t)c->n;
    guard x = guard_new(n), gain = guard_new(n), bias = guard_new(n);
    check_fill(x.data, n, c->values, rng);
    check_fill(gain.data, n, VALUES_NORMAL, rng);
    check_fill(bias.data, n, VALUES_NORMAL, rng);
    for (int l = 0; l < tables->n; l++) {
        const sd_kernels *t = tables->table[l];
        const float *gains = c->has_gain ? gain.data : NULL, *biases = c->has_bias ? bias.data : NULL;
        guard y = c->in_place ? copy_of(&x) : guard_new(n), shifted = shifted_copy_of(&x);
        t->layernorm(y.data, c->in_place ? y.data : x.data, gains, biases, c->n, c->eps);
        compare_norm(t, c, y.data, &x, &gain, &bias);
        t->layernorm(shifted.data, shifted.data, gains, biases, c->n, c->eps);
        if (memcmp(shifted.data, y.data, n * sizeof(float)) != 0) {
            check_fail("layernorm", t->name, "the result depends on the address (n %d)", c->n);
        }
        if (!guard_intact(&y) || !guard_intact(&shifted) || !guard_is_blank(shifted.data[n])) {
            check_fail("layernorm", t->name, "wrote outside y (n %d)", c->n);
        }
        guard_free(&y);
        guard_free(&shifted);
    }
    guard_free(&x);
    guard_free(&gain);
    guard_free(&bias);
}

void check_layernorm(const check_tables *tables)
{
    sd_rng rng;
    sd_rng_seed(&rng, 2);
    for (int i = 0; i < SHORT_ROWS + LONG_ROWS; i++) {
        for (int v = 0; v < 4 * VALUES_KINDS; v++) {
            const check_values values = (check_values)(v % VALUES_KINDS);
            check_norm_case(tables, &(norm_case){.n = length_of(i), .has_gain = v & 1, .has_bias = (v / 2 + i) & 1,
                                                 .in_place = (v + i) % 3 == 0, .values = values, .eps = 1e-5f}, &rng);
        }
    }
}

/* ---- activations ---- */

static long double gelu_want(long double v) { return 0.5L * v * erfcl(-v * 0.70710678118654752440L); }

static long double gelu_tanh_want(long double v)
{
    return 0.5L * v * (1.0L + tanhl(0.79788456080286535588L * (v + 0.044715L * v * v * v)));
}

typedef struct activation_check {
    const char *entry;
    long double (*want)(long double v);
    bool tanh;
} activation_check;

static void check_activation_values(const activation_check *a, const sd_kernels *t, const guard *x)
{
    guard y = copy_of(x), shifted = shifted_copy_of(x);
    void (*fn)(float *, size_t) = a->tanh ? t->gelu_tanh : t->gelu;
    fn(y.data, y.n);
    fn(shifted.data, x->n);
    for (size_t i = 0; i < x->n; i++) {
        const float v = x->data[i];
        const double want = (double)a->want((long double)v);
        /* relative to x: the factor between 0 and 1 is good to about two units */
        if (isfinite(want) ? !(fabs((double)y.data[i] - want) <= 3e-7 * fabs((double)v) + 0x1p-149)
                           : !(isnan(want) ? isnan(y.data[i]) : (double)y.data[i] == want)) {
            check_fail(a->entry, t->name, "f(%.9g) is %.9g, expected %.9g", (double)v, (double)y.data[i], want);
            break;
        }
    }
    if (memcmp(y.data, shifted.data, x->n * sizeof(float)) != 0) {
        check_fail(a->entry, t->name, "the result depends on the address (n %zu)", x->n);
    }
    if (!guard_intact(&y) || !guard_intact(&shifted) || !guard_is_blank(shifted.data[x->n])) {
        check_fail(a->entry, t->name, "wrote outside x (n %zu)", x->n);
    }
    guard_free(&y);
    guard_free(&shifted);
}

static void check_activation(const activation_check *a, const check_tables *tables)
{
    sd_rng rng;
    sd_rng_seed(&rng, 3);
    for (int i = 0; i < SHORT_ROWS + LONG_ROWS; i++) {
        guard x = guard_new((size_t)length_of(i));
        for (int v = 0; v <= VALUES_KINDS; v++) {
            check_fill(x.data, x.n, v < VALUES_KINDS ? (check_values)v : VALUES_NORMAL, &rng);
            for (size_t j = 0; j < x.n && v == VALUES_KINDS; j++) { /* the range where something happens */
                x.data[j] *= 12;
            }
            for (int l = 0; l < tables->n; l++) {
                check_activation_values(a, tables->table[l], &x);
            }
        }
        guard_free(&x);
    }
    static const float special[] = {
        0.0f, -0.0f, 0x1p-149f, -0x1p-149f, 0x1p-126f, -0x1p-126f, 1e30f, -1e30f, 3e38f, -3e38f, INFINITY, NAN,
        1, -1, 13, -13, 14.5f, -14.5f, 88, -88, 104, -104};
    guard x = guard_new(sizeof special / sizeof *special);
    memcpy(x.data, special, sizeof special);
    for (int l = 0; l < tables->n; l++) {
        check_activation_values(a, tables->table[l], &x);
    }
    guard_free(&x);
}

void check_gelu(const check_tables *tables)
{
    check_activation(&(activation_check){"gelu", gelu_want, false}, tables);
}

void check_gelu_tanh(const check_tables *tables)
{
    check_activation(&(activation_check){"gelu_tanh", gelu_tanh_want, true}, tables);
}

/* ---- argmax ---- */

static int argmax_want(const float *x, int n)
{
    int best = -1;
    for (int i = 0; i < n; i++) {
        if (!isnan(x[i]) && (best < 0 || x[i] > x[best])) {
            best = i;
        }
    }
    return best < 0 ? 0 : best;
}

static void expect_argmax(const check_tables *tables, const guard *x, const char *what)
{
    const int n = (int)x->n, want = argmax_want(x->data, n);
    for (int l = 0; l < tables->n; l++) {
        const int got = tables->table[l]->argmax(x->data, n);
        if (got != want) {
            check_fail("argmax", tables->table[l]->name, "%d, expected %d (%s, n %d)", got, want, what, n);
        }
    }
}

static void check_argmax_length(const check_tables *tables, int n, sd_rng *rng)
{
    guard x = guard_new((size_t)n);
    expect_argmax(tables, &x, "all NaN");
    for (int v = 0; v < VALUES_KINDS; v++) {
        check_fill(x.data, x.n, (check_values)v, rng);
        expect_argmax(tables, &x, "values");
    }
    check_fill(x.data, x.n, VALUES_NORMAL, rng);
    const int step = n <= SHORT_ROWS ? 1 : n / 17;
    for (int i = 0; i < n; i += step) {
        const float kept = x.data[i], end = x.data[n - 1];
        x.data[i] = 2;
        expect_argmax(tables, &x, "each place");
        x.data[n - 1] = 2;
        expect_argmax(tables, &x, "tie");
        x.data[n - 1] = NAN;
        expect_argmax(tables, &x, "NaN at the end");
        x.data[n - 1] = end;
        x.data[0] = NAN;
        x.data[i] = INFINITY;
        expect_argmax(tables, &x, "NaN in front");
        x.data[i] = kept;
        x.data[0] = 0;
    }
    for (int i = 0; i < n; i++) {
        x.data[i] = i % 3 == 1 ? -INFINITY : NAN;
    }
    expect_argmax(tables, &x, "NaN is smaller than minus infinity");
    for (int i = 0; i < n; i++) {
        x.data[i] = i % 2 ? 0.0f : -0.0f;
    }
    expect_argmax(tables, &x, "zeros of both signs are equal");
    guard_free(&x);
}

void check_argmax(const check_tables *tables)
{
    sd_rng rng;
    sd_rng_seed(&rng, 4);
    for (int i = 0; i < SHORT_ROWS + LONG_ROWS; i++) {
        check_argmax_length(tables, length_of(i), &rng);
    }
}
