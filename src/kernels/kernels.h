/* SPDX-License-Identifier: MIT
 *
 * Math on raw arrays: a table of function pointers, filled with plain C (kernels/ref, the specification) and then
 * overwritten entry by entry up to the CPU's level. Callers never know which level runs.
 *
 * One rule above all: a row's result depends on that row alone. Whatever the number of rows in a call and whoever
 * computes them, each output is accumulated over k = 0, 1, 2, ... in one fixed order per level, so that results are
 * bit-identical alone, in a batch, and for any chunking of a prompt. */
#ifndef SD_KERNELS_KERNELS_H
#define SD_KERNELS_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "src/base/cpu.h"

/* ---- packed matrices ------------------------------------------------------------------------------------------------
 * A weight W [n outputs, k inputs] is stored in panels of SD_PANEL outputs, k-major inside a panel, so that the product
 * streams memory front to back and keeps 64 sums in registers:
 *     f32 :  data[panel][k][64]           element (o, i) at ((o / 64) * k + i) * 64 + o % 64
 *     bf16:  data[panel][k2][64][2]       element (o, i) at (((o / 64) * k2 + i / 2) * 64 + o % 64) * 2 + i % 2
 *                                         with k2 = ceil(k / 2)
 * Outputs past n and, for bf16, the odd input past k are zeros. (bf16 pairs inputs because that is the operand
 * layout of the bf16 dot-product instructions, and is as cheap to widen as any other. A pair is written and read as
 * one 32-bit word, input 2j in its low half.) */

enum { SD_PANEL = 64 };

typedef enum sd_wtype { SD_W_F32, SD_W_BF16, SD_W_TYPES } sd_wtype;

typedef struct sd_matrix {
    sd_wtype type;
    int n, k;    /* outputs, inputs */
    void *data;  /* packed, 64-byte aligned; owned by whoever made the struct */
} sd_matrix;

static inline int sd_matrix_panels(int n) { return n / SD_PANEL + (n % SD_PANEL > 0); }

/* Bytes of `data`; SIZE_MAX, which no allocation grants, for a negative size or one that does not fit. */
size_t sd_matrix_bytes(sd_wtype type, int n, int k);

/* Packs `rows` rows of f32 values (src [rows, k], row-major) as outputs first .. first+rows-1 of m. Rows may be
 * packed in any order and by several threads, as long as no two share a panel at the same time. Padding must have
 * been zeroed. */
void sd_matrix_pack_rows(sd_matrix *m, int first, int rows, const float *src);

/* Output row o of m as f32: dst [k]. For embeddings that share the head's matrix. */
void sd_matrix_unpack_row(const sd_matrix *m, int o, float *dst);

/* ---- the table ---------------------------------------------------------------------------------------------- */

typedef enum sd_activation { SD_ACT_NONE, SD_ACT_RELU } sd_activation;

/* y[r][o] = act(sum_i x[r][i] * W[o][i] + bias[o]) + residual[r][o], r = 0 .. rows-1, for the outputs of the panels
 * first_panel .. last_panel-1 of w. No output past w->n is written. */
typedef struct sd_gemm {
    const sd_matrix *w;
    const float *x;        /* [rows, k], row stride x_stride >= k (floats) */
    size_t x_stride;
    float *y;              /* [rows, n], row stride y_stride; may be the same array as residual */
    size_t y_stride;
    int rows;
    const float *bias;     /* [n] or NULL */
    const float *residual; /* [rows, n], row stride y_stride, or NULL */
    sd_activation act;
} sd_gemm;

typedef struct sd_kernels {
    const char *name; /* "ref", "avx2", "avx512" */

    void (*gemm[SD_W_TYPES])(const sd_gemm *g, int first_panel, int last_panel);

    /* y[i] = (x[i] - mean) / sqrt(variance + eps) * gain[i] + bias[i]; variance is the biased one, computed from the
     * differences to the mean. gain, bias: [n], either may be NULL (1 and 0). y may be x. */
    void (*layernorm)(float *y, const float *x, const float *gain, const float *bias, int n, float eps);

    void (*gelu)(float *x, size_t n);      /* in place, exact: x/2 (1 + erf(x / sqrt 2)) */
    void (*gelu_tanh)(float *x, size_t n); /* in place, the tanh approximation ("gelu_new", "gelu_pytorch_tanh") */

    /* One query of one head over n cached positions: out[d] = sum_p softmax_p(scale * q . k[p]) * v[p][d].
     * q, out: [hd]; k, v: [n, hd] contiguous; scores: scratch [n]. n >= 1. The maximum is subtracted before exp. */
    void (*attention)(float *out, const float *q, const float *k, const float *v, float *scores, int n, int hd,
                      float scale);

    /* Index of the largest value, the lowest one on a tie; NaN counts as the smallest. n >= 1. */
    int (*argmax)(const float *x, int n);
} sd_kernels;

/* The table for a level: each entry the best implementation at or below it. Level must be supported by the machine. */
const sd_kernels *sd_kernels_get(sd_cpu_level_id level);

/* Per level, implemented in kernels/<isa>/: overwrite what the level does better. */
void sd_kernels_init_ref(sd_kernels *table);
void sd_kernels_init_avx2(sd_kernels *table);
void sd_kernels_init_avx512(sd_kernels *table);

#endif
