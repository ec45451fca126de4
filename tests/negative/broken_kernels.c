/* SPDX-License-Identifier: MIT
 *
 * Kernels that are wrong on purpose. Linked into the kernel tests with --wrap, this file stands between a level's init
 * function and the table it fills, and plants the fault that SKIPDECODE_BREAK="level:fault" names; without the variable
 * nothing changes. tests/negative/run.sh demands that the tests notice every fault at every level. What only a guard
 * band or an exact tie shows is planted by checkkernels --self-test instead. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/kernels/kernels.h"

/* The level's own entries. One fault at one level is planted in a run, so one copy is enough. */
static sd_kernels sound;

static float *output(const sd_gemm *g, int row, int o) { return g->y + (size_t)row * g->y_stride + o; }

static void sound_gemm(const sd_gemm *g, int first_panel, int last_panel)
{
    sound.gemm[g->w->type](g, first_panel, last_panel);
}

/* The last output of the last row is 1 % too large: a tail that is handled wrongly. */
static void gemm_last(const sd_gemm *g, int first_panel, int last_panel)
{
    sound_gemm(g, first_panel, last_panel);
    if (last_panel == sd_matrix_panels(g->w->n)) {
        float *y = output(g, g->rows - 1, g->w->n - 1);
        *y += 0.01f * (fabsf(*y) + 1.0f);
    }
}

/* One NaN, which a comparison written as "difference > tolerance" lets pass. */
static void gemm_nan(const sd_gemm *g, int first_panel, int last_panel)
{
    sound_gemm(g, first_panel, last_panel);
    *output(g, g->rows - 1, first_panel * SD_PANEL) = NAN;
}

/* In a batch, one output of row 0 is the next f32: within every tolerance, but no longer what the row alone gives. */
static void gemm_batch(const sd_gemm *g, int first_panel, int last_panel)
{
    sound_gemm(g, first_panel, last_panel);
    if (g->rows > 1) {
        float *y = output(g, 0, first_panel * SD_PANEL);
        *y = nextafterf(*y, INFINITY);
    }
}

static void gemm_no_activation(const sd_gemm *g, int first_panel, int last_panel)
{
    sd_gemm linear = *g;
    linear.act = SD_ACT_NONE;
    sound_gemm(&linear, first_panel, last_panel);
}

static void gemm_no_bias(const sd_gemm *g, int first_panel, int last_panel)
{
    sd_gemm unbiased = *g;
    unbiased.bias = NULL;
    sound_gemm(&unbiased, first_panel, last_panel);
}

static void layernorm_eps(float *y, const float *x, const float *gain, const float *bias, int n, float eps)
{
    sound.layernorm(y, x, gain, bias, n, 1000.0f * eps);
}

static void layernorm_last(float *y, const float *x, const float *gain, const float *bias, int n, float eps)
{
    sound.layernorm(y, x, gain, bias, n, eps);
    y[n - 1] += 0.001f;
}

static void gelu_last(float *x, size_t n)
{
    if (n > 0) {
        float last = x[n - 1];
        sound.gelu(x, n);
        x[n - 1] = last;
    }
}

static void attention_forgets_last(float *out, const float *q, const float *k, const float *v, float *scores, int n,
                                   int hd, float scale)
{
    sound.attention(out, q, k, v, scores, n > 1 ? n - 1 : n, hd, scale);
}

static void attention_scale(float *out, const float *q, const float *k, const float *v, float *scores, int n, int hd,
                            float scale)
{
    sound.attention(out, q, k, v, scores, n, hd, scale * 1.01f);
}

static void gelu_tanh_as_gelu(float *x, size_t n) { sound.gelu(x, n); } /* at most 5e-4 apart */

/* The entries of `with` that are not NULL replace the level's own. run.sh reads the names from these lines. */
static const struct {
    const char *name;
    sd_kernels with;
} faults[] = {
    {"gemm_f32_last", {.gemm[SD_W_F32] = gemm_last}},
    {"gemm_bf16_last", {.gemm[SD_W_BF16] = gemm_last}},
    {"gemm_f32_batch", {.gemm[SD_W_F32] = gemm_batch}},
    {"gemm_bf16_batch", {.gemm[SD_W_BF16] = gemm_batch}},
    {"gemm_nan", {.gemm[SD_W_F32] = gemm_nan}},
    {"gemm_no_activation", {.gemm[SD_W_F32] = gemm_no_activation}},
    {"gemm_no_bias", {.gemm[SD_W_F32] = gemm_no_bias}},
    {"layernorm_eps", {.layernorm = layernorm_eps}},
    {"layernorm_last", {.layernorm = layernorm_last}},
    {"gelu_last", {.gelu = gelu_last}},
    {"gelu_tanh_as_gelu", {.gelu_tanh = gelu_tanh_as_gelu}},
    {"attention_forgets_last", {.attention = attention_forgets_last}},
    {"attention_scale", {.attention = attention_scale}},
};

static void plant(sd_kernels *table, const sd_kernels *with)
{
    for (int type = 0; type < SD_W_TYPES; type++) {
        if (with->gemm[type]) {
            table->gemm[type] = with->gemm[type];
        }
    }
    table->layernorm = with->layernorm ? with->layernorm : table->layernorm;
    table->gelu = with->gelu ? with->gelu : table->gelu;
    table->gelu_tanh = with->gelu_tanh ? with->gelu_tanh : table->gelu_tanh;
    table->attention = with->attention ? with->attention : table->attention;
}

static void break_level(sd_kernels *table, const char *level)
{
    const char *wish = getenv("SKIPDECODE_BREAK");
    const size_t n = strlen(level);
    if (!wish || strncmp(wish, level, n) != 0 || wish[n] != ':') {
        return;
    }
    sound = *table;
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        if (strcmp(wish + n + 1, faults[i].name) == 0) {
            plant(table, &faults[i].with);
            fprintf(stderr, "broken on purpose: %s\n", wish); /* run.sh wants to see it */
        }
    }
}

/* The names are the linker's: --wrap=f sends calls of f to __wrap_f, and __real_f is the function itself. */
void __real_sd_kernels_init_ref(sd_kernels *table);
void __wrap_sd_kernels_init_ref(sd_kernels *table);
void __wrap_sd_kernels_init_ref(sd_kernels *table)
{
    __real_sd_kernels_init_ref(table);
    break_level(table, "ref");
}

#if defined(__x86_64__)
void __real_sd_kernels_init_avx2(sd_kernels *table);
void __wrap_sd_kernels_init_avx2(sd_kernels *table);
void __wrap_sd_kernels_init_avx2(sd_kernels *table)
{
    __real_sd_kernels_init_avx2(table);
    break_level(table, "avx2");
}

void __real_sd_kernels_init_avx512(sd_kernels *table);
void __wrap_sd_kernels_init_avx512(sd_kernels *table);
void __wrap_sd_kernels_init_avx512(sd_kernels *table)
{
    __real_sd_kernels_init_avx512(table);
    break_level(table, "avx512");
}
#endif
