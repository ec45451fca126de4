/* SPDX-License-Identifier: MIT
 *
 * The products. What is right is computed in double from the weights as they are stored; the allowance is relative
 * to the sum of |x w|, as any summation's error is. Then the promise that the engine rests on, bit for bit: a row
 * gives the same alone, in any batch, at any address, and however the panels are split into calls. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/half.h"
#include "tests/kernels/check.h"

enum { RESIDUAL_NONE, RESIDUAL_OTHER, RESIDUAL_Y /* the same array as y */, RESIDUAL_KINDS };

typedef struct gemm_case {
    sd_wtype type;
    int n, k, rows;
    int x_gap, y_gap; /* stride - width, floats */
    bool bias;
    int residual; /* RESIDUAL_* */
    sd_activation act;
    check_values values;
} gemm_case;

typedef struct gemm_data { /* inputs, and what is right */
    size_t x_stride, y_stride, packed_stride;
    guard w, x, bias, residual;
    sd_matrix matrix;
    float *plain;  /* [n, k] the weights as they are stored */
    guard packed;  /* the rows of x in the form that the table at hand multiplies; empty if that is f32 */
    float *used;   /* [rows, k] what they are then */
    double *want, *scale; /* [rows, n]: the value, and the sum of the magnitudes that went into it */
} gemm_data;

static const char *const entry_names[SD_W_TYPES] = {"gemm_f32", "gemm_bf16", "gemm_q8", "gemm_q4"};

static void *allocate(size_t count, size_t size)
{
    void *block = calloc(count, size);
    if (!block) {
        perror("checkkernels");
        exit(2);
    }
    return block;
}

static const char *describe(const gemm_case *c)
{
    static char text[256];
    (void)snprintf(text, sizeof text, "n %d, k %d, rows %d, gaps %d %d, bias %d, residual %d, relu %d, values %d", c->n,
                   c->k, c->rows, c->x_gap, c->y_gap, c->bias, c->residual, c->act, c->values);
    return text;
}

static bool is_quantised(sd_wtype type) { return type == SD_W_Q8 || type == SD_W_Q4; }

/* Scales are f16: weights of 1e15 are out of their range. Denormal weights and inputs are zeros to some levels. */
static check_values weight_values(const gemm_case *c)
{
    const bool large = is_quantised(c->type) && c->values == VALUES_LARGE;
    return c->values == VALUES_DENORMAL || large ? VALUES_NORMAL : c->values;
}

static check_values input_values(const gemm_case *c)
{
    return c->values == VALUES_DENORMAL && c->type != SD_W_F32 ? VALUES_NORMAL : c->values;
}

/* The weights in the precision in which they are stored; the packed form with NaN in the lanes past n. */
static void make_weights(gemm_data *d, const gemm_case *c, sd_rng *rng)
{
    const size_t n = (size_t)c->n, k = (size_t)c->k;
    check_fill(d->plain, n * k, weight_values(c), rng);
    for (size_t i = 0; i < n * k && c->type == SD_W_Q4; i++) {
        d->plain[i] *= 0.25f; /* the largest mixed ones are then just within what f16 scales reach */
    }
    d->w = guard_new(sd_matrix_bytes(c->type, c->n, c->k) / sizeof(float));
    d->matrix = (sd_matrix){.type = c->type, .n = c->n, .k = c->k, .data = d->w.data};
    sd_matrix_pack_rows(&d->matrix, 0, c->n, d->plain);
    for (size_t o = 0; o < n && is_quantised(c->type); o++) {
        sd_matrix_unpack_row(&d->matrix, (int)o, d->plain + o * k);
    }
    for (size_t i = 0; i < n * k && c->type == SD_W_BF16; i++) {
        d->plain[i] = sd_bf16_to_f32(sd_f32_to_bf16(d->plain[i]));
    }
}

/* Packs the rows of x as the table wants them, and unpacks them again for what is right. */
static void make_inputs(gemm_data *d, const gemm_case *c, const sd_kernels *t)
{
    const size_t k = (size_t)c->k;
    guard_free(&d->packed);
    d->packed = (guard){0};
    if (t->pack_input[c->type]) {
        d->packed_stride = sd_input_bytes(c->type, c->k);
        d->packed = guard_new((size_t)c->rows * d->packed_stride / sizeof(float));
    }
    for (size_t r = 0; r < (size_t)c->rows; r++) {
        const float *x = d->x.data + r * d->x_stride;
        char *row = (char *)d->packed.data + r * d->packed_stride;
        if (!t->pack_input[c->type]) {
            memcpy(d->used + r * k, x, k * sizeof *x);
            continue;
        }
        t->pack_input[c->type](row, x, c->k);
        const sd_q8_input q = sd_q8_input_at(row, c->k);
        for (size_t i = 0; i < k; i++) {
            const uint16_t *half = (const uint16_t *)(const void *)row;
            d->used[r * k + i] = c->type == SD_W_BF16 ? sd_bf16_to_f32(half[i])
                                                      : (float)q.q[i] * q.scale[i / SD_BLOCK];
        }
    }
}

static void make_want(gemm_data *d, const gemm_case *c)
{
    const size_t n = (size_t)c->n, k = (size_t)c->k;
    for (size_t r = 0; r < (size_t)c->rows; r++) {
        for (size_t o = 0; o < n; o++) {
            double sum = 0, magnitude = 0;
            for (size_t i = 0; i < k; i++) {
                const double product = (double)d->used[r * k + i] * (double)d->plain[o * k + i];
                sum += product;
                magnitude += fabs(product);
            }
            if (c->bias) {
                sum += (double)d->bias.data[o];
                magnitude += fabs((double)d->bias.data[o]);
            }
            sum = c->act == SD_ACT_RELU && sum < 0 ? 0 : sum;
            if (c->residual != RESIDUAL_NONE) {
                sum += (double)d->residual.data[r * d->y_stride + o];
                magnitude += fabs((double)d->residual.data[r * d->y_stride + o]);
            }
            d->want[r * n + o] = sum;
            d->scale[r * n + o] = magnitude;
        }
    }
}

static gemm_data make_data(const gemm_case *c, sd_rng *rng)
{
    const size_t n = (size_t)c->n, k = (size_t)c->k, rows = (size_t)c->rows;
    gemm_data d = {.x_stride = k + (size_t)c->x_gap, .y_stride = n + (size_t)c->y_gap};
    d.plain = allocate(n * k, sizeof *d.plain);
    d.used = allocate(rows * k, sizeof *d.used);
    make_weights(&d, c, rng);
    /* The last row has no gap after it: reading past its end is out of the array. Gaps stay NaN. */
    d.x = guard_new((rows - 1) * d.x_stride + k);
    d.residual = guard_new((rows - 1) * d.y_stride + n);
    for (size_t r = 0; r < rows; r++) {
        check_fill(d.x.data + r * d.x_stride, k, input_values(c), rng);
        check_fill(d.residual.data + r * d.y_stride, n, c->values, rng);
    }
    d.bias = guard_new(n);
    check_fill(d.bias.data, n, c->values, rng);
    d.want = allocate(rows * n, sizeof *d.want);
    d.scale = allocate(rows * n, sizeof *d.scale);
    return d;
}

static void free_data(gemm_data *d)
{
    guard_free(&d->w);
    guard_free(&d->x);
    guard_free(&d->bias);
    guard_free(&d->residual);
    guard_free(&d->packed);
    free(d->plain);
    free(d->used);
    free(d->want);
    free(d->scale);
}

/* Rows first .. first+rows-1 of the case into a new array, in calls of `panels` panels. */
static guard run_rows(const sd_kernels *t, const gemm_case *c, const gemm_data *d, int first, int rows, int panels)
{
    const size_t row = (size_t)first;
    guard y = guard_new((size_t)(rows - 1) * d->y_stride + (size_t)c->n);
    const float *residual = d->residual.data + row * d->y_stride;
    sd_gemm g = {
        .w = &d->matrix,
        .x = d->x.data + row * d->x_stride,
        .x_stride = d->x_stride,
        .packed_x = d->packed.data ? (const char *)d->packed.data + row * d->packed_stride : NULL,
        .packed_stride = d->packed_stride,
        .y = y.data,
        .y_stride = d->y_stride,
        .rows = rows,
        .bias = c->bias ? d->bias.data : NULL,
        .residual = c->residual == RESIDUAL_NONE ? NULL : c->residual == RESIDUAL_Y ? y.data : residual,
        .act = c->act,
    };
    for (int r = 0; r < rows && c->residual == RESIDUAL_Y; r++) {
        memcpy(y.data + (size_t)r * d->y_stride, residual + (size_t)r * d->y_stride, (size_t)c->n * sizeof(float));
    }
    const int all = sd_matrix_panels(c->n);
    for (int p = 0; p < all; p += panels) {
        t->gemm[c->type](&g, p, p + panels < all ? p + panels : all);
    }
    if (!guard_intact(&y)) {
        check_fail(entry_names[c->type], t->name, "wrote in front of y (%s)", describe(c));
    }
    return y;
}

static void compare_want(const sd_kernels *t, const gemm_case *c, const gemm_data *d, const guard *y)
{
    /* A sum of k rounded terms is off by at most k half-units of the magnitudes; where the roundings go both ways,
     * by about the root of that, but nearly equal terms may all round the same way. Products below the smallest
     * denormal may vanish. */
    const double terms = c->values == VALUES_OFFSET ? c->k : 2 * sqrt((double)c->k);
    const double unit = 0x1p-24 * (6 + terms), tiny = 0x1p-149 * (c->k + 2);
    const size_t n = (size_t)c->n;
    for (size_t r = 0; r < (size_t)c->rows; r++) {
        const float *row = y->data + r * d->y_stride;
        for (size_t o = 0; o < n; o++) {
            const double error = fabs((double)row[o] - d->want[r * n + o]), allowed = unit * d->scale[r * n + o] + tiny;
            if (!(error <= allowed)) { /* NaN fails */
                check_fail(entry_names[c->type], t->name, "y[%zu][%zu] is %.9g, expected %.9g, error %.3g of %.3g (%s)",
                           r, o, (double)row[o], d->want[r * n + o], error, allowed, describe(c));
                return;
            }
        }
        for (size_t o = n; o < d->y_stride && r + 1 < (size_t)c->rows; o++) {
            if (!guard_is_blank(row[o])) {
                check_fail(entry_names[c->type], t->name, "wrote past row %zu of y (%s)", r, describe(c));
                return;
            }
        }
    }
}

/* y holds the whole case; the same rows computed in another way must be the same bits. */
static void compare_bits(const sd_kernels *t, const gemm_case *c, const gemm_data *d, const guard *y, int first,
                         int rows, int panels, const char *how)
{
    guard other = run_rows(t, c, d, first, rows, panels);
    for (int r = 0; r < rows; r++) {
        const float *a = y->data + (size_t)(first + r) * d->y_stride, *b = other.data + (size_t)r * d->y_stride;
        if (memcmp(a, b, (size_t)c->n * sizeof(float)) != 0) {
            check_fail(entry_names[c->type], t->name, "row %d of %d differs from the same row %s (%s)", first + r,
                       c->rows, how, describe(c));
            break;
        }
    }
    guard_free(&other);
}

static void check_case(const check_tables *tables, const gemm_case *c, sd_rng *rng)
{
    gemm_data d = make_data(c, rng);
    const int all = sd_matrix_panels(c->n);
    for (int l = 0; l < tables->n; l++) {
        const sd_kernels *t = tables->table[l];
        if (l == 0 || t->pack_input[c->type] != tables->table[l - 1]->pack_input[c->type]) {
            make_inputs(&d, c, t);
            make_want(&d, c);
        }
        guard y = run_rows(t, c, &d, 0, c->rows, all);
        compare_want(t, c, &d, &y);
        if (all > 1) {
            compare_bits(t, c, &d, &y, 0, c->rows, 1, "computed panel by panel");
        }
        /* Every row of a small batch alone, three of a large one; and the batch without its first row, where each row
         * finds itself at another place of a tile. */
        const int step = c->rows <= 16 ? 1 : (c->rows - 1) / 2;
        for (int r = 0; r < c->rows && c->rows > 1; r += step) {
            compare_bits(t, c, &d, &y, r, 1, all, "alone");
        }
        if (c->rows > 2) {
            compare_bits(t, c, &d, &y, 1, c->rows - 1, all, "in a smaller batch");
        }
        guard_free(&y);
    }
    free_data(&d);
}

/* A row that holds NaN gives NaN; the rows around it do not notice. */
static void check_nan_row(const check_tables *tables, sd_wtype type, sd_rng *rng)
{
    const gemm_case c = {.type = type, .n = 70, .k = 35, .rows = 9, .x_gap = 1, .y_gap = 3, .bias = true,
                         .act = SD_ACT_RELU};
    gemm_data d = make_data(&c, rng);
    for (int l = 0; l < tables->n; l++) {
        const sd_kernels *t = tables->table[l];
        make_inputs(&d, &c, t);
        guard before = run_rows(t, &c, &d, 0, c.rows, 2);
        float *spoiled = d.x.data + 4 * d.x_stride + 17, kept = *spoiled;
        *spoiled = NAN;
        make_inputs(&d, &c, t);
        guard after = run_rows(t, &c, &d, 0, c.rows, 2);
        *spoiled = kept;
        for (size_t r = 0; r < (size_t)c.rows; r++) {
            const float *a = after.data + r * d.y_stride;
            for (size_t o = 0; o < (size_t)c.n; o++) {
                if (r == 4 ? !isnan(a[o]) : memcmp(&a[o], &before.data[r * d.y_stride + o], sizeof *a) != 0) {
                    check_fail(entry_names[type], t->name, "a NaN in row 4 made y[%zu][%zu] %g", r, o, (double)a[o]);
                    break;
                }
            }
        }
        guard_free(&before);
        guard_free(&after);
    }
    free_data(&d);
}

static void check_gemm(const check_tables *tables, sd_wtype type)
{
    sd_rng rng;
    sd_rng_seed(&rng, 1);
    for (int n = 1; n <= 67; n++) { /* every remainder of n and k, with row counts and options walking along */
        for (int k = 1; k <= 67; k++) {
            const int turn = n * 67 + k;
            const gemm_case c = {.type = type, .n = n, .k = k, .rows = 1 + turn * 31 % 67, .x_gap = turn % 5,
                                 .y_gap = turn % 4, .bias = turn % 3 > 0, .residual = turn % 7 % RESIDUAL_KINDS,
                                 .act = turn % 2 ? SD_ACT_RELU : SD_ACT_NONE,
                                 .values = (check_values)(turn % 11 % VALUES_KINDS)};
            check_case(tables, &c, &rng);
        }
    }
    static const int large[][3] = {/* n, k, rows; a slice is 256 inputs in f32, 512 in bf16; a block is 96 rows */
        {130, 257, 67}, {257, 130, 96}, {64, 256, 97}, {1, 512, 193}, {192, 511, 7}, {65, 513, 6}, {3, 1025, 5},
        {2048, 129, 2}, {67, 2048, 13}, {129, 2049, 1}, {64, 8192, 3}, {1, 8193, 12}};
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        for (int v = 0; v < VALUES_KINDS; v++) {
            const gemm_case c = {.type = type, .n = large[i][0], .k = large[i][1], .rows = large[i][2], .x_gap = v,
                                 .y_gap = v % 2, .bias = v % 2 == 0, .residual = v % RESIDUAL_KINDS,
                                 .act = v % 2 ? SD_ACT_NONE : SD_ACT_RELU, .values = (check_values)v};
            check_case(tables, &c, &rng);
        }
    }
    check_nan_row(tables, type, &rng);
}

void check_gemm_f32(const check_tables *tables) { check_gemm(tables, SD_W_F32); }
void check_gemm_bf16(const check_tables *tables) { check_gemm(tables, SD_W_BF16); }
void check_gemm_q8(const check_tables *tables) { check_gemm(tables, SD_W_Q8); }
void check_gemm_q4(const check_tables *tables) { check_gemm(tables, SD_W_Q4); }

/* ---- inputs: every level makes what the lowest level makes, byte for byte ---- */

static void check_input(const check_tables *tables, sd_wtype type, int k, check_values values, sd_rng *rng)
{
    const size_t bytes = sd_input_bytes(type, k), payload = type == SD_W_BF16 ? (size_t)(k + k % 2) * 2
                                                                             : (size_t)sd_blocks(k) * (SD_BLOCK + 8);
    guard x = guard_new((size_t)k);
    check_fill(x.data, x.n, values, rng);
    if (k % 5 == 3) {
        x.data[k / 2] = k % 2 ? NAN : -INFINITY;
    }
    guard want = guard_new(bytes / sizeof(float));
    if (type == SD_W_BF16) {
        uint16_t *w = (uint16_t *)(void *)want.data;
        for (int i = 0; i < k + k % 2; i++) {
            w[i] = i < k ? sd_f32_to_bf16(x.data[i]) : 0;
        }
    } else {
        sd_kernels_get(SD_CPU_REF)->pack_input[type](want.data, x.data, k);
    }
    for (int l = 0; l < tables->n; l++) {
        const sd_kernels *t = tables->table[l];
        if (!t->pack_input[type]) {
            continue;
        }
        guard got = guard_new(bytes / sizeof(float));
        t->pack_input[type](got.data, x.data, k);
        if (!guard_intact(&got)) {
            check_fail("pack_input", t->name, "wrote in front of the packed row (%s, k %d)", sd_wtype_name(type), k);
        }
        if (memcmp(got.data, want.data, payload) != 0) {
            check_fail("pack_input", t->name, "packs another row than plain C (%s, k %d, values %d)",
                       sd_wtype_name(type), k, values);
        }
        guard_free(&got);
    }
    guard_free(&x);
    guard_free(&want);
}

void check_pack_input(const check_tables *tables)
{
    sd_rng rng;
    sd_rng_seed(&rng, 6);
    static const int large[] = {128, 511, 2048, 2049, 8192};
    for (int v = 0; v < VALUES_KINDS; v++) {
        for (int k = 1; k <= 67 + 5; k++) {
            const int size = k <= 67 ? k : large[k - 68];
            check_input(tables, SD_W_Q8, size, (check_values)v, &rng);
            check_input(tables, SD_W_Q4, size, (check_values)v, &rng);
            /* the instruction takes denormals for zeros, as the product does */
            check_input(tables, SD_W_BF16, size, v == VALUES_DENORMAL ? VALUES_NORMAL : (check_values)v, &rng);
        }
    }
}
