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
 *     q8  :  data[panel][block] { f16 scale[64]; u8 q[8][64][4]; }     blocks of 32 inputs
 *            element (o, i) is scale[o % 64] * (q[i % 32 / 4][o % 64][i % 4] - 128), q in 1 .. 255
 *     q4  :  data[panel][block] { f16 scale[64]; u8 q[4][64][4]; }     blocks of 32 inputs, two a byte
 *            element (o, i) is scale[o % 64] * (nibble - 8): the low nibble of q[j][o % 64][c] is input 8j + c of the
 *            block, the high one input 8j + 4 + c
 * with blocks = ceil(k / 32). Outputs past n are zeros, scales of zero; inputs past k have the value zero. (bf16 pairs
 * and 8-bit fours are the operand layouts of the dot-product instructions, and as cheap to widen as any other. The
 * offsets 128 and 8 make the weights the unsigned operand; what they add is taken off with the sum of the inputs.
 * A pair is written and read as one 32-bit word, input 2j in its low half.) */

enum { SD_PANEL = 64, SD_BLOCK = 32 };

typedef enum sd_wtype { SD_W_F32, SD_W_BF16, SD_W_Q8, SD_W_Q4, SD_W_TYPES } sd_wtype;

const char *sd_wtype_name(sd_wtype type); /* "f32", "bf16", "q8", "q4" */

typedef struct sd_q8_block { /* one block of one panel */
    uint16_t scale[SD_PANEL];
    uint8_t q[SD_BLOCK / 4][SD_PANEL][4];
} sd_q8_block;

typedef struct sd_q4_block {
    uint16_t scale[SD_PANEL];
    uint8_t q[SD_BLOCK / 8][SD_PANEL][4];
} sd_q4_block;

_Static_assert(sizeof(sd_q8_block) == 34 * 64 && sizeof(sd_q4_block) == 18 * 64, "blocks are whole cache lines");

static inline int sd_blocks(int k) { return k / SD_BLOCK + (k % SD_BLOCK > 0); }

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
 * been zeroed. q8: scale = max |w| / 127, rounded to f16 before the weights are divided by it. q4: the scale that
 * leaves the smallest squared error of several that are tried. A block that holds NaN or infinity, or values beyond
 * what f16 scales reach, gets a scale that is not finite, so that products with it are not numbers either. */
void sd_matrix_pack_rows(sd_matrix *m, int first, int rows, const float *src);

/* The same from bf16 values, of any alignment, into a bf16 matrix: the bits as they are. */
void sd_matrix_pack_rows_bf16(sd_matrix *m, int first, int rows, const void *src);

/* Output row o of m as f32: dst [k]. For embeddings that share the head's matrix. */
void sd_matrix_unpack_row(const sd_matrix *m, int o, float *dst);

/* ---- the table ---------------------------------------------------------------------------------------------- */

typedef enum sd_activation { SD_ACT_NONE, SD_ACT_RELU } sd_activation;

/* ---- inputs of the products ----
 * Quantised weights are multiplied with quantised inputs, and a level may multiply bf16 weights with bf16 inputs. A row
 * of inputs is then brought into that form once (`pack_input`), before the product. Like everything, a row's packed
 * form depends on that row alone.
 *
 *     q8, q4:  { i8 q[blocks * 32]; f32 scale[blocks]; i32 sum[blocks]; }    scale = max |x| / 127 of the block,
 *              q = x / scale rounded to nearest even, sum the sum of the block's q; zeros where the largest |x| is
 *              below SD_SMALLEST_INPUT, whose inverse would overflow; a scale of NaN where one x is no number
 *     bf16  :  u16 x[2 * ceil(k / 2)], rounded to nearest even; only at levels whose pack_input is not NULL
 */
#define SD_SMALLEST_INPUT 0x1p-100f

typedef struct sd_q8_input {
    const int8_t *q;
    const float *scale;
    const int32_t *sum;
} sd_q8_input;

/* Bytes of a packed row of k inputs, a multiple of 64; 0 for f32, which is never packed. */
size_t sd_input_bytes(sd_wtype type, int k);

static inline sd_q8_input sd_q8_input_at(const void *packed, int k)
{
    const char *at = packed;
    const size_t blocks = (size_t)sd_blocks(k);
    return (sd_q8_input){(const int8_t *)at, (const float *)(const void *)(at + blocks * SD_BLOCK),
                         (const int32_t *)(const void *)(at + blocks * (SD_BLOCK + sizeof(float)))};
}

/* y[r][o] = act(sum_i x[r][i] * W[o][i] + bias[o]) + residual[r][o], r = 0 .. rows-1, for the outputs of the panels
 * first_panel .. last_panel-1 of w. No output past w->n is written. */
typedef struct sd_gemm {
    const sd_matrix *w;
    const float *x;        /* [rows, k], row stride x_stride >= k (floats) */
    size_t x_stride;
    const void *packed_x;  /* rows made by pack_input, where the table has one for the type of w; x is then not read */
    size_t packed_stride;  /* bytes, >= sd_input_bytes */
    float *y;              /* [rows, n], row stride y_stride; may be the same array as residual */
    size_t y_stride;
    int rows;
    const float *bias;     /* [n] or NULL */
    const float *residual; /* [rows, n], row stride y_stride, or NULL */
    sd_activation act;
} sd_gemm;

typedef struct sd_kernels {
    const char *name; /* as sd_cpu_level_name */

    void (*gemm[SD_W_TYPES])(const sd_gemm *g, int first_panel, int last_panel);

    /* One row, x [k], into dst [sd_input_bytes(type, k)], 64-byte aligned. NULL: the product reads f32. */
    void (*pack_input[SD_W_TYPES])(void *dst, const float *x, int k);

    /* `rows` rows (src [rows, k], row-major) into the blocks of one panel, as its outputs lane .. lane+rows-1, of which
     * there are SD_PANEL. Every level writes the same bytes. q8 and q4; else NULL. */
    void (*quantise[SD_W_TYPES])(void *panel, int lane, int rows, const float *src, int k);

    /* y[i] = (x[i] - mean) / sqrt(variance + eps) * gain[i] + bias[i]; variance is the biased one, computed from the
     * differences to the mean. gain, bias: [n], either may be NULL (1 and 0). y may be x. */
    void (*layernorm)(float *y, const float *x, const float *gain, const float *bias, int n, float eps);

    void (*gelu)(float *x, size_t n);      /* in place, exact: x/2 (1 + erf(x / sqrt 2)) */
    void (*gelu_tanh)(float *x, size_t n); /* in place, the tanh approximation ("gelu_new", "gelu_pytorch_tanh") */

    /* One query of one head over n cached positions: out[d] = sum_p softmax_p(scale * q . k[p]) * v[p][d].
     * q, out: [hd]; k, v: [n, hd] contiguous; scores: scratch [n]. n >= 1. The maximum is subtracted before exp. */
    void (*attention)(float *out, const float *q, const float *k, const float *v, float *scores, int n, int hd,
                      float scale);

    /* The same over keys and values held as f16; what is computed is f32. */
    void (*attention_f16)(float *out, const float *q, const uint16_t *k, const uint16_t *v, float *scores, int n,
                          int hd, float scale);

    void (*to_f16)(uint16_t *dst, const float *src, size_t n); /* nearest, ties to even */

    /* Index of the largest value, the lowest one on a tie; NaN counts as the smallest. n >= 1. */
    int (*argmax)(const float *x, int n);
} sd_kernels;

/* The table for a level: each entry the best implementation at or below it. Level must be supported by the machine. */
const sd_kernels *sd_kernels_get(sd_cpu_level_id level);

/* The table of the level that sd_cpu_select chose when it was first asked for; plain C where that failed. For what is
 * the same bytes at every level. */
const sd_kernels *sd_kernels_selected(void);

/* Per level, implemented in kernels/<isa>/: overwrite what the level does better. */
void sd_kernels_init_ref(sd_kernels *table);
void sd_kernels_init_avx2(sd_kernels *table);
void sd_kernels_init_avx512(sd_kernels *table);
void sd_kernels_init_avx512vnni(sd_kernels *table);
void sd_kernels_init_avx512bf16(sd_kernels *table);

#endif
