/* SPDX-License-Identifier: MIT
 *
 * Kernels that are wrong on purpose. Linked into the kernel tests with --wrap, this file stands between a level's init
 * function and the table it fills, and plants the fault that SKIPDECODE_BREAK="level:fault" names; without the variable
 * nothing changes. tests/negative/run.sh demands that the tests notice every fault at every level. What only a guard
 * band or an exact tie shows is planted by checkkernels --self-test instead. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/half.h"
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

/* The product of the rows with one part of each changed: packed inputs are copied, what is done to them is up to
 * `change`. */
static void gemm_with(const sd_gemm *g, int first_panel, int last_panel,
                      void (*change)(const sd_q8_input *in, int blocks))
{
    sd_gemm changed = *g;
    char *copy = malloc((size_t)g->rows * g->packed_stride + 1);
    if (!copy) {
        abort();
    }
    memcpy(copy, g->packed_x, (size_t)g->rows * g->packed_stride);
    for (int r = 0; r < g->rows; r++) {
        const sd_q8_input in = sd_q8_input_at(copy + (size_t)r * g->packed_stride, g->w->k);
        change(&in, sd_blocks(g->w->k));
    }
    changed.packed_x = copy;
    sound_gemm(&changed, first_panel, last_panel);
    free(copy);
}

static void forget_sums(const sd_q8_input *in, int blocks)
{
    memset((void *)(uintptr_t)in->sum, 0, (size_t)blocks * sizeof *in->sum);
}

static void forget_scales(const sd_q8_input *in, int blocks)
{
    for (int b = 1; b < blocks; b++) {
        ((float *)(uintptr_t)in->scale)[b] = in->scale[0];
    }
}

/* What the offset of the weights adds is not taken off. */
static void gemm_offset(const sd_gemm *g, int first_panel, int last_panel)
{
    gemm_with(g, first_panel, last_panel, forget_sums);
}

/* Every block of the inputs with the scale of the first. */
static void gemm_scale(const sd_gemm *g, int first_panel, int last_panel)
{
    gemm_with(g, first_panel, last_panel, forget_scales);
}

/* The last input is lost. */
static void pack_input_last(const sd_kernels *table, sd_wtype type, void *dst, const float *x, int k)
{
    float *copy = malloc((size_t)k * sizeof *copy);
    if (!copy) {
        abort();
    }
    memcpy(copy, x, (size_t)k * sizeof *copy);
    copy[k - 1] = 0;
    table->pack_input[type](dst, copy, k);
    free(copy);
}

static void pack_input_q8_last(void *dst, const float *x, int k) { pack_input_last(&sound, SD_W_Q8, dst, x, k); }
static void pack_input_q4_last(void *dst, const float *x, int k) { pack_input_last(&sound, SD_W_Q4, dst, x, k); }
static void pack_input_bf16_last(void *dst, const float *x, int k) { pack_input_last(&sound, SD_W_BF16, dst, x, k); }

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

static void attention_f16_forgets_last(float *out, const float *q, const uint16_t *k, const uint16_t *v, float *scores,
                                       int n, int hd, float scale)
{
    sound.attention_f16(out, q, k, v, scores, n > 1 ? n - 1 : n, hd, scale);
}

static void to_f16_truncates(uint16_t *dst, const float *src, size_t n)
{
    sound.to_f16(dst, src, n);
    for (size_t i = 0; i < n; i++) {
        dst[i] = (uint16_t)(dst[i] - (fabsf(sd_f16_to_f32(dst[i])) > fabsf(src[i])));
    }
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
    {"gemm_q8_last", {.gemm[SD_W_Q8] = gemm_last}},
    {"gemm_q4_last", {.gemm[SD_W_Q4] = gemm_last}},
    {"gemm_q8_batch", {.gemm[SD_W_Q8] = gemm_batch}},
    {"gemm_q4_batch", {.gemm[SD_W_Q4] = gemm_batch}},
    {"gemm_q8_offset", {.gemm[SD_W_Q8] = gemm_offset}},
    {"gemm_q4_offset", {.gemm[SD_W_Q4] = gemm_offset}},
    {"gemm_q8_scale", {.gemm[SD_W_Q8] = gemm_scale}},
    {"gemm_q4_scale", {.gemm[SD_W_Q4] = gemm_scale}},
    {"pack_input_q8_last", {.pack_input[SD_W_Q8] = pack_input_q8_last}},
    {"pack_input_q4_last", {.pack_input[SD_W_Q4] = pack_input_q4_last}},
    {"pack_input_bf16_last", {.pack_input[SD_W_BF16] = pack_input_bf16_last}},
    {"gemm_nan", {.gemm[SD_W_F32] = gemm_nan}},
    {"gemm_no_activation", {.gemm[SD_W_F32] = gemm_no_activation}},
    {"gemm_no_bias", {.gemm[SD_W_F32] = gemm_no_bias}},
    {"layernorm_eps", {.layernorm = layernorm_eps}},
    {"layernorm_last", {.layernorm = layernorm_last}},
    {"gelu_last", {.gelu = gelu_last}},
    {"gelu_tanh_as_gelu", {.gelu_tanh = gelu_tanh_as_gelu}},
    {"attention_forgets_last", {.attention = attention_forgets_last}},
    {"attention_scale", {.attention = attention_scale}},
    {"attention_f16_forgets_last", {.attention_f16 = attention_f16_forgets_last}},
    {"to_f16_truncates", {.to_f16 = to_f16_truncates}},
};

/* False: the level has no such entry. */
static bool plant(sd_kernels *table, const sd_kernels *with)
{
    for (int type = 0; type < SD_W_TYPES; type++) {
        if (with->pack_input[type] && !table->pack_input[type]) {
            return false;
        }
        table->gemm[type] = with->gemm[type] ? with->gemm[type] : table->gemm[type];
        table->pack_input[type] = with->pack_input[type] ? with->pack_input[type] : table->pack_input[type];
    }
    table->layernorm = with->layernorm ? with->layernorm : table->layernorm;
    table->gelu = with->gelu ? with->gelu : table->gelu;
    table->gelu_tanh = with->gelu_tanh ? with->gelu_tanh : table->gelu_tanh;
    table->attention = with->attention ? with->attention : table->attention;
    table->attention_f16 = with->attention_f16 ? with->attention_f16 : table->attention_f16;
    table->to_f16 = with->to_f16 ? with->to_f16 : table->to_f16;
    return true;
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
            const bool planted = plant(table, &faults[i].with);
            fprintf(stderr, "%s: %s\n", planted ? "broken on purpose" : "nothing to break", wish); /* for run.sh */
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

void __real_sd_kernels_init_avx512vnni(sd_kernels *table);
void __wrap_sd_kernels_init_avx512vnni(sd_kernels *table);
void __wrap_sd_kernels_init_avx512vnni(sd_kernels *table)
{
    __real_sd_kernels_init_avx512vnni(table);
    break_level(table, "avx512vnni");
}

void __real_sd_kernels_init_avx512bf16(sd_kernels *table);
void __wrap_sd_kernels_init_avx512bf16(sd_kernels *table);
void __wrap_sd_kernels_init_avx512bf16(sd_kernels *table)
{
    __real_sd_kernels_init_avx512bf16(table);
    break_level(table, "avx512bf16");
}
#endif
