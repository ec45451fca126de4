/* SPDX-License-Identifier: MIT
 *
 * The kernels in plain C: what every other level is measured against. The products add in f32 in the order of the
 * inputs, as all levels do; the small functions compute in double, so that what differs from them is the other
 * level's error. */
#include <math.h>
#include <stdbool.h>

#include "src/base/half.h"
#include "src/kernels/kernels.h"
#include "src/kernels/ref/ref.h"

/* One row of x times one panel: sums[o] = sum_i x[i] * W[o][i]. */
static void panel_f32(float sums[SD_PANEL], const float *x, const float *w, int k)
{
    for (int i = 0; i < k; i++) {
        for (int o = 0; o < SD_PANEL; o++) {
            sums[o] += x[i] * w[(size_t)i * SD_PANEL + (size_t)o];
        }
    }
}

/* The same; a word of w holds inputs 2i (low half) and 2i + 1 of one output. */
static void panel_bf16(float sums[SD_PANEL], const float *x, const uint32_t *w, int k)
{
    for (int i = 0; i < k; i++) {
        for (int o = 0; o < SD_PANEL; o++) {
            const uint32_t pair = w[(size_t)(i / 2) * SD_PANEL + (size_t)o];
            sums[o] += x[i] * sd_bf16_to_f32((uint16_t)(i % 2 ? pair >> 16 : pair));
        }
    }
}

/* One block of one row, exact in integers; then the sum of the blocks in f32, in their order. The offset of the weights
 * (128 or 8) has added itself once for every input, which the sum of the inputs takes off again. */
static void panel_q8(float sums[SD_PANEL], const sd_q8_input *x, const sd_q8_block *w, int blocks)
{
    for (int b = 0; b < blocks; b++, w++) {
        for (int o = 0; o < SD_PANEL; o++) {
            int32_t sum = -128 * x->sum[b];
            for (int i = 0; i < SD_BLOCK; i++) {
                sum += w->q[i / 4][o][i % 4] * x->q[b * SD_BLOCK + i];
            }
            sums[o] += (float)sum * (sd_f16_to_f32(w->scale[o]) * x->scale[b]);
        }
    }
}

static void panel_q4(float sums[SD_PANEL], const sd_q8_input *x, const sd_q4_block *w, int blocks)
{
    for (int b = 0; b < blocks; b++, w++) {
        for (int o = 0; o < SD_PANEL; o++) {
            int32_t sum = -8 * x->sum[b];
            for (int i = 0; i < SD_BLOCK; i++) {
                const int byte = w->q[i / 8][o][i % 4];
                sum += (i / 4 % 2 ? byte >> 4 : byte & 15) * x->q[b * SD_BLOCK + i];
            }
            sums[o] += (float)sum * (sd_f16_to_f32(w->scale[o]) * x->scale[b]);
        }
    }
}

static void panel_sums(float sums[SD_PANEL], const sd_gemm *g, int panel, int row)
{
    const int k = g->w->k;
    const char *w = (const char *)g->w->data + (size_t)panel * sd_matrix_bytes(g->w->type, 1, k);
    if (g->w->type == SD_W_F32 || g->w->type == SD_W_BF16) {
        const float *x = g->x + (size_t)row * g->x_stride;
        g->w->type == SD_W_F32 ? panel_f32(sums, x, (const void *)w, k) : panel_bf16(sums, x, (const void *)w, k);
        return;
    }
    const sd_q8_input x = sd_q8_input_at((const char *)g->packed_x + (size_t)row * g->packed_stride, k);
    g->w->type == SD_W_Q8 ? panel_q8(sums, &x, (const void *)w, sd_blocks(k))
                          : panel_q4(sums, &x, (const void *)w, sd_blocks(k));
}

static void gemm(const sd_gemm *g, int first_panel, int last_panel)
{
    for (int panel = first_panel; panel < last_panel; panel++) {
        const int first = panel * SD_PANEL;
        const int n = g->w->n - first < SD_PANEL ? g->w->n - first : SD_PANEL;
        for (int r = 0; r < g->rows; r++) {
            const size_t at = (size_t)r * g->y_stride + (size_t)first;
            float sums[SD_PANEL] = {0};
            panel_sums(sums, g, panel, r);
            for (int o = 0; o < n; o++) {
                float y = sums[o] + (g->bias ? g->bias[first + o] : 0.0f);
                if (g->act == SD_ACT_RELU && y < 0.0f) { /* NaN stays NaN */
                    y = 0.0f;
                }
                g->y[at + (size_t)o] = y + (g->residual ? g->residual[at + (size_t)o] : 0.0f);
            }
        }
    }
}

static void pack_input_q8(void *dst, const float *x, int k)
{
    const int blocks = sd_blocks(k);
    const sd_q8_input at = sd_q8_input_at(dst, k);
    int8_t *q = (int8_t *)(uintptr_t)at.q;
    float *scale = (float *)(uintptr_t)at.scale;
    int32_t *sum = (int32_t *)(uintptr_t)at.sum;
    for (int b = 0; b < blocks; b++) {
        const float *from = x + b * SD_BLOCK;
        const int n = k - b * SD_BLOCK < SD_BLOCK ? k - b * SD_BLOCK : SD_BLOCK;
        float max = 0;
        bool finite = true;
        for (int i = 0; i < n; i++) {
            max = fabsf(from[i]) > max ? fabsf(from[i]) : max;
            finite = finite && isfinite(from[i]);
        }
        max = max < SD_SMALLEST_INPUT ? 0 : max;
        scale[b] = finite ? max / 127 : NAN; /* what is not a number must not come out as one */
        const float inverse = finite && max > 0 ? 127 / max : 0;
        sum[b] = 0;
        for (int i = 0; i < SD_BLOCK; i++) {
            q[b * SD_BLOCK + i] = (int8_t)(i < n && finite ? rintf(from[i] * inverse) : 0);
            sum[b] += q[b * SD_BLOCK + i];
        }
    }
}

static void layernorm(float *y, const float *x, const float *gain, const float *bias, int n, float eps)
{
    double sum = 0, squares = 0;
    for (int i = 0; i < n; i++) {
        sum += (double)x[i];
    }
    const double mean = sum / n;
    for (int i = 0; i < n; i++) {
        const double d = (double)x[i] - mean;
        squares += d * d;
    }
    const double scale = 1.0 / sqrt(squares / n + (double)eps);
    for (int i = 0; i < n; i++) {
        const float normal = (float)(((double)x[i] - mean) * scale);
        y[i] = normal * (gain ? gain[i] : 1.0f) + (bias ? bias[i] : 0.0f);
    }
}

static void gelu(float *x, size_t n)
{
    const double sqrt_half = 0.70710678118654752440;
    for (size_t i = 0; i < n; i++) {
        const double v = (double)x[i];
        x[i] = (float)(0.5 * v * erfc(-v * sqrt_half)); /* 1 + erf(v), without its cancellation for negative v */
    }
}

static void gelu_tanh(float *x, size_t n)
{
    const double sqrt_2_over_pi = 0.79788456080286535588;
    for (size_t i = 0; i < n; i++) {
        const double v = (double)x[i];
        x[i] = (float)(0.5 * v * (1.0 + tanh(sqrt_2_over_pi * (v + 0.044715 * v * v * v))));
    }
}

static double element(const void *cache, bool half, int position, int hd, int d)
{
    const size_t at = (size_t)position * (size_t)hd + (size_t)d;
    return (double)(half ? sd_f16_to_f32(((const uint16_t *)cache)[at]) : ((const float *)cache)[at]);
}

/* half: keys and values are f16, else f32. */
static void attend(float *out, const float *q, const void *k, const void *v, bool half, float *scores, int n, int hd,
                   float scale)
{
    float max = -INFINITY;
    for (int p = 0; p < n; p++) {
        double dot = 0;
        for (int d = 0; d < hd; d++) {
            dot += (double)q[d] * element(k, half, p, hd, d);
        }
        scores[p] = (float)dot * scale;
        max = scores[p] > max ? scores[p] : max;
    }
    double sum = 0;
    for (int p = 0; p < n; p++) {
        const double e = exp((double)scores[p] - (double)max);
        scores[p] = (float)e;
        sum += e;
    }
    for (int d = 0; d < hd; d++) {
        double total = 0;
        for (int p = 0; p < n; p++) {
            total += (double)scores[p] * element(v, half, p, hd, d);
        }
        out[d] = (float)(total / sum);
    }
}

static void attention(float *out, const float *q, const float *k, const float *v, float *scores, int n, int hd,
                      float scale)
{
    attend(out, q, k, v, false, scores, n, hd, scale);
}

static void attention_f16(float *out, const float *q, const uint16_t *k, const uint16_t *v, float *scores, int n,
                          int hd, float scale)
{
    attend(out, q, k, v, true, scores, n, hd, scale);
}

static void to_f16(uint16_t *dst, const float *src, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        dst[i] = sd_f32_to_f16(src[i]);
    }
}

static int argmax(const float *x, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++) {
        if (x[i] > x[best] || (isnan(x[best]) && !isnan(x[i]))) {
            best = i;
        }
    }
    return best;
}

void sd_kernels_init_ref(sd_kernels *table)
{
    *table = (sd_kernels){
        .name = "ref",
        .gemm = {[SD_W_F32] = gemm, [SD_W_BF16] = gemm, [SD_W_Q8] = gemm, [SD_W_Q4] = gemm},
        .pack_input = {[SD_W_Q8] = pack_input_q8, [SD_W_Q4] = pack_input_q8},
        .quantise = {[SD_W_Q8] = sd_ref_quantise_q8, [SD_W_Q4] = sd_ref_quantise_q4},
        .layernorm = layernorm,
        .gelu = gelu,
        .gelu_tanh = gelu_tanh,
        .attention = attention,
        .attention_f16 = attention_f16,
        .to_f16 = to_f16,
        .argmax = argmax,
    };
}
