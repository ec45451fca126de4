/* SPDX-License-Identifier: MIT
 *
 * Kernels with a fault built in: they call the sound ones and then spoil something. A check that does not notice them
 * checks nothing. */
#include <math.h>
#include <string.h>

#include "tests/kernels/check.h"

const char *const check_faults[] = {
    "gemm_f32", "gemm_bf16", "gemm_q8", "gemm_q4", "pack_input", "quantise", "layernorm", "gelu", "gelu_tanh",
    "attention", "attention_f16", "to_f16", "argmax",
    "gemm_f32:rows", "gemm_bf16:rows", "gemm_q8:rows", "gemm_q4:rows",
    "gemm_f32:write", "gemm_bf16:write", "gemm_q8:write", "gemm_q4:write", "layernorm:write", "gelu:write",
    "gelu_tanh:write", "attention:write", "attention_f16:write", NULL,
};

typedef enum fault_kind { FAULT_VALUE, FAULT_ROWS, FAULT_WRITE } fault_kind;

static const sd_kernels *sound;
static fault_kind kind;

/* out: the first of n outputs, one of which is spoiled */
static void spoil(float *out, size_t n)
{
    if (kind == FAULT_WRITE) {
        out[-1] = 0;
    } else {
        out[n - 1] *= 1.001f;
    }
}

static void gemm(const sd_gemm *g, int first_panel, int last_panel)
{
    sound->gemm[g->w->type](g, first_panel, last_panel);
    const int end = last_panel * SD_PANEL < g->w->n ? last_panel * SD_PANEL : g->w->n;
    float *last = g->y + (size_t)(g->rows - 1) * g->y_stride + (size_t)end - 1;
    if (kind != FAULT_ROWS) {
        spoil(kind == FAULT_WRITE ? g->y : last, 1);
    } else if (g->rows > 1) {
        *last = nextafterf(*last, INFINITY);
    }
}

static void layernorm(float *y, const float *x, const float *gain, const float *bias, int n, float eps)
{
    sound->layernorm(y, x, gain, bias, n, eps);
    spoil(y, (size_t)n);
}

static void gelu(float *x, size_t n)
{
    sound->gelu(x, n);
    spoil(x, n);
}

static void gelu_tanh(float *x, size_t n)
{
    sound->gelu_tanh(x, n);
    spoil(x, n);
}

static void attention(float *out, const float *q, const float *k, const float *v, float *scores, int n, int hd,
                      float scale)
{
    sound->attention(out, q, k, v, scores, n, hd, scale);
    spoil(out, (size_t)hd);
}

static void attention_f16(float *out, const float *q, const uint16_t *k, const uint16_t *v, float *scores, int n,
                          int hd, float scale)
{
    sound->attention_f16(out, q, k, v, scores, n, hd, scale);
    spoil(out, (size_t)hd);
}

static void pack_input(void *dst, const float *x, int k)
{
    sound->pack_input[SD_W_Q8](dst, x, k);
    ((int8_t *)dst)[k - 1] ^= 1;
}

/* The first output, one step off in its last input. */
static void quantise(void *panel, int lane, int rows, const float *src, int k)
{
    sound->quantise[SD_W_Q4](panel, lane, rows, src, k);
    sd_q4_block *last = (sd_q4_block *)panel + sd_blocks(k) - 1;
    last->q[(k - 1) % SD_BLOCK / 8][lane][(k - 1) % 4] ^= (k - 1) % 8 < 4 ? 1 : 16;
}

static void to_f16(uint16_t *dst, const float *src, size_t n)
{
    sound->to_f16(dst, src, n);
    dst[n - 1] ^= 1;
}

/* The highest index on a tie. */
static int argmax(const float *x, int n)
{
    const int first = sound->argmax(x, n);
    for (int i = n - 1; i > first; i--) {
        if (x[i] == x[first]) {
            return i;
        }
    }
    return first;
}

const sd_kernels *check_break(const sd_kernels *table, const char *fault)
{
    static sd_kernels broken;
    const char *const *name = check_faults;
    while (*name && strcmp(*name, fault) != 0) {
        name++;
    }
    if (!*name) {
        return NULL;
    }
    sound = table;
    broken = *table;
    kind = strstr(fault, ":rows") ? FAULT_ROWS : strstr(fault, ":write") ? FAULT_WRITE : FAULT_VALUE;
    if (strncmp(fault, "gemm_f32", 8) == 0) {
        broken.gemm[SD_W_F32] = gemm;
    } else if (strncmp(fault, "gemm_bf16", 9) == 0) {
        broken.gemm[SD_W_BF16] = gemm;
    } else if (strncmp(fault, "gemm_q8", 7) == 0) {
        broken.gemm[SD_W_Q8] = gemm;
    } else if (strncmp(fault, "gemm_q4", 7) == 0) {
        broken.gemm[SD_W_Q4] = gemm;
    } else if (strcmp(fault, "pack_input") == 0) {
        broken.pack_input[SD_W_Q8] = pack_input;
    } else if (strcmp(fault, "quantise") == 0) {
        broken.quantise[SD_W_Q4] = quantise;
    } else if (strcmp(fault, "to_f16") == 0) {
        broken.to_f16 = to_f16;
    } else if (strncmp(fault, "attention_f16", 13) == 0) {
        broken.attention_f16 = attention_f16;
    } else if (strncmp(fault, "layernorm", 9) == 0) {
        broken.layernorm = layernorm;
    } else if (strncmp(fault, "gelu_tanh", 9) == 0) {
        broken.gelu_tanh = gelu_tanh;
    } else if (strncmp(fault, "gelu", 4) == 0) {
        broken.gelu = gelu;
    } else if (strncmp(fault, "attention", 9) == 0) {
        broken.attention = attention;
    } else {
        broken.argmax = argmax;
    }
    return &broken;
}
