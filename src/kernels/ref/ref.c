/* SPDX-License-Identifier: MIT
 *
 * The kernels in plain C: what every other level is measured against. The products add in f32 in the order of the
 * inputs, as all levels do; the small functions compute in double, so that what differs from them is the other
 * level's error. */
#include <math.h>

#include "src/base/half.h"
#include "src/kernels/kernels.h"

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

static void gemm(const sd_gemm *g, int first_panel, int last_panel)
{
    const size_t k = (size_t)g->w->k, pairs = (k + 1) / 2;
    for (int panel = first_panel; panel < last_panel; panel++) {
        const int first = panel * SD_PANEL;
        const int n = g->w->n - first < SD_PANEL ? g->w->n - first : SD_PANEL;
        for (int r = 0; r < g->rows; r++) {
            const float *x = g->x + (size_t)r * g->x_stride;
            const size_t at = (size_t)r * g->y_stride + (size_t)first;
            float sums[SD_PANEL] = {0};
            if (g->w->type == SD_W_F32) {
                panel_f32(sums, x, (const float *)g->w->data + (size_t)panel * k * SD_PANEL, g->w->k);
            } else {
                panel_bf16(sums, x, (const uint32_t *)g->w->data + (size_t)panel * pairs * SD_PANEL, g->w->k);
            }
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

static void attention(float *out, const float *q, const float *k, const float *v, float *scores, int n, int hd,
                      float scale)
{
    float max = -INFINITY;
    for (int p = 0; p < n; p++) {
        double dot = 0;
        for (int d = 0; d < hd; d++) {
            dot += (double)q[d] * (double)k[(size_t)p * (size_t)hd + (size_t)d];
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
            total += (double)scores[p] * (double)v[(size_t)p * (size_t)hd + (size_t)d];
        }
        out[d] = (float)(total / sum);
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
        .gemm = {[SD_W_F32] = gemm, [SD_W_BF16] = gemm},
        .layernorm = layernorm,
        .gelu = gelu,
        .gelu_tanh = gelu_tanh,
        .attention = attention,
        .argmax = argmax,
    };
}
