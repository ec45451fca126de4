/* SPDX-License-Identifier: MIT */
#include "src/train/net_math.h"

#include <dnnl.h>
#include <math.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include "src/train/net_loops.h"

void sd_math_threads(int threads)
{
#ifdef _OPENMP
    omp_set_num_threads(threads);
#else
    (void)threads;
#endif
}

/* ---- products. Sizes and pointers are right by construction, and a product of no rows is none: they cannot fail. ---- */

void sd_math_product(float *y, const float *x, const float *w, int rows, int n, int k)
{
    if (rows > 0) {
        (void)dnnl_sgemm('N', 'T', rows, n, k, 1.0f, x, k, w, k, 0.0f, y, n);
    }
}

void sd_math_product_inputs(float *dx, const float *dy, const float *w, int rows, int n, int k, bool add)
{
    if (rows > 0) {
        (void)dnnl_sgemm('N', 'N', rows, k, n, 1.0f, dy, n, w, k, add ? 1.0f : 0.0f, dx, k);
    }
}

void sd_math_product_weights(float *dw, const float *dy, const float *x, int rows, int n, int k)
{
    if (rows > 0) {
        (void)dnnl_sgemm('T', 'N', n, k, rows, 1.0f, dy, n, x, k, 1.0f, dw, k);
    }
}

/* ---- biases ---- */

SD_CLONES static void bias_row(float *restrict y, const float *restrict bias, int n, bool relu)
{
    if (bias) {
        for (int i = 0; i < n; i++) {
            y[i] += bias[i];
        }
    }
    if (relu) {
        for (int i = 0; i < n; i++) {
            y[i] = y[i] > 0.0f ? y[i] : 0.0f;
        }
    }
}

void sd_math_bias(float *y, const float *bias, int rows, int n, bool relu)
{
    if (!bias && !relu) {
        return;
    }
#pragma omp parallel for schedule(static)
    for (int r = 0; r < rows; r++) {
        bias_row(y + (size_t)r * (size_t)n, bias, n, relu);
    }
}

/* Columns are summed in strips, each by one thread, from the first row to the last. */
enum { STRIP = 64 };

SD_CLONES static void sum_strip(float *restrict sums, const float *restrict dy, int rows, size_t stride, int width)
{
    float sum[STRIP] = {0};
    for (int r = 0; r < rows; r++, dy += stride) {
        for (int i = 0; i < width; i++) {
            sum[i] += dy[i];
        }
    }
    for (int i = 0; i < width; i++) {
        sums[i] += sum[i];
    }
}

void sd_math_bias_gradient(float *dbias, const float *dy, int rows, int n)
{
    if (!dbias) {
        return;
    }
#pragma omp parallel for schedule(static)
    for (int at = 0; at < n; at += STRIP) {
        sum_strip(dbias + at, dy + at, rows, (size_t)n, n - at < STRIP ? n - at : STRIP);
    }
}

/* ---- norms ---- */

SD_CLONES static void norm_row(float *y, float *stats, const float *x, const float *gain, const float *bias, int n,
                               float eps)
{
    float mean = 0.0f, variance = 0.0f;
#pragma omp simd reduction(+ : mean)
    for (int i = 0; i < n; i++) {
        mean += x[i];
    }
    mean /= (float)n;
#pragma omp simd reduction(+ : variance)
    for (int i = 0; i < n; i++) {
        variance += (x[i] - mean) * (x[i] - mean);
    }
    const float inverse = 1.0f / sqrtf(variance / (float)n + eps);
    stats[0] = mean;
    stats[1] = inverse;
    sd_loop_norm_apply(y, x, mean, inverse, gain, bias, n);
}

void sd_math_norm(float *y, float *stats, const float *x, const float *gain, const float *bias, int rows, int n,
                  float eps)
{
#pragma omp parallel for schedule(static)
    for (int r = 0; r < rows; r++) {
        norm_row(y + (size_t)r * (size_t)n, stats + 2 * (size_t)r, x + (size_t)r * (size_t)n, gain, bias, n, eps);
    }
}

SD_CLONES static void norm_again_row(float *y, const float *stats, const float *x, const float *gain, const float *bias,
                                     int n)
{
    sd_loop_norm_apply(y, x, stats[0], stats[1], gain, bias, n);
}

void sd_math_norm_again(float *y, const float *stats, const float *x, const float *gain, const float *bias, int rows,
                        int n)
{
#pragma omp parallel for schedule(static)
    for (int r = 0; r < rows; r++) {
        norm_again_row(y + (size_t)r * (size_t)n, stats + 2 * (size_t)r, x + (size_t)r * (size_t)n, gain, bias, n);
    }
}

SD_CLONES static void norm_gradient_row(float *dx, const float *dy, const float *x, const float *stats,
                                        const float *gain, int n, bool add)
{
    const float mean = stats[0], inverse = stats[1];
    float sum = 0.0f, sum_x = 0.0f;
#pragma omp simd reduction(+ : sum, sum_x)
    for (int i = 0; i < n; i++) {
        const float d = gain ? dy[i] * gain[i] : dy[i];
        sum += d;
        sum_x += d * (x[i] - mean) * inverse;
    }
    sum /= (float)n;
    sum_x /= (float)n;
    for (int i = 0; i < n; i++) {
        const float d = gain ? dy[i] * gain[i] : dy[i];
        const float value = inverse * (d - sum - (x[i] - mean) * inverse * sum_x);
        dx[i] = add ? dx[i] + value : value;
    }
}

SD_CLONES static void norm_strip(float *dgain, float *dbias, const float *dy, const float *x, const float *stats,
                                 int rows, size_t stride, int width)
{
    float gain[STRIP] = {0}, bias[STRIP] = {0};
    for (int r = 0; r < rows; r++, dy += stride, x += stride, stats += 2) {
        for (int i = 0; i < width; i++) {
            gain[i] += dy[i] * ((x[i] - stats[0]) * stats[1]);
            bias[i] += dy[i];
        }
    }
    for (int i = 0; i < width; i++) {
        dgain[i] += gain[i];
        dbias[i] += bias[i];
    }
}

void sd_math_norm_gradient(float *dx, float *dgain, float *dbias, const float *dy, const float *x, const float *stats,
                           const float *gain, int rows, int n, bool add)
{
    const size_t stride = (size_t)n;
    if (dgain) {
#pragma omp parallel for schedule(static)
        for (int at = 0; at < n; at += STRIP) {
            norm_strip(dgain + at, dbias + at, dy + at, x + at, stats, rows, stride, n - at < STRIP ? n - at : STRIP);
        }
    }
#pragma omp parallel for schedule(static)
    for (int r = 0; r < rows; r++) {
        const size_t at = (size_t)r * stride;
        norm_gradient_row(dx + at, dy + at, x + at, stats + 2 * (size_t)r, gain, n, add);
    }
}

/* ---- dropout ---- */

SD_CLONES static void add_dropped_row(float *y, const float *residual, const float *x, const float *bias, int n,
                                      uint32_t key, uint32_t limit, float keep)
{
    for (int i = 0; i < n; i++) {
        const float value = bias ? x[i] + bias[i] : x[i];
        y[i] = residual[i] + sd_loop_dropped(value, key, (uint32_t)i, limit, keep);
    }
}

SD_CLONES static void drop_row(float *dx, const float *dy, int n, uint32_t key, uint32_t limit, float keep)
{
    for (int i = 0; i < n; i++) {
        dx[i] = sd_loop_dropped(dy[i], key, (uint32_t)i, limit, keep);
    }
}

static uint32_t drop_limit(const sd_dropout *d) { return (uint32_t)((double)d->rate * 4294967296.0); }

static uint32_t row_key(const sd_dropout *d, int row)
{
    return d->rate > 0.0f ? sd_loop_mix(d->seed ^ sd_loop_mix(d->keys[row])) : 0;
}

void sd_math_add_dropped(float *y, const float *residual, const float *x, const float *bias, int rows, int n,
                         const sd_dropout *d)
{
    const uint32_t limit = drop_limit(d);
    const float keep = 1.0f / (1.0f - d->rate);
#pragma omp parallel for schedule(static)
    for (int r = 0; r < rows; r++) {
        const size_t at = (size_t)r * (size_t)n;
        add_dropped_row(y + at, residual + at, x + at, bias, n, row_key(d, r), limit, keep);
    }
}

void sd_math_drop(float *dx, const float *dy, int rows, int n, const sd_dropout *d)
{
    const uint32_t limit = drop_limit(d);
    const float keep = 1.0f / (1.0f - d->rate);
#pragma omp parallel for schedule(static)
    for (int r = 0; r < rows; r++) {
        const size_t at = (size_t)r * (size_t)n;
        drop_row(dx + at, dy + at, n, row_key(d, r), limit, keep);
    }
}

/* ---- activations ---- */

static float activate(float x, sd_mlp_activation activation)
{
    if (activation == SD_MLP_RELU) {
        return x > 0.0f ? x : 0.0f;
    }
    if (activation == SD_MLP_GELU) {
        return 0.5f * x * (1.0f + erff(x * 0.70710678f));
    }
    return 0.5f * x * (1.0f + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
}

static float activate_slope(float x, sd_mlp_activation activation)
{
    if (activation == SD_MLP_GELU) {
        return 0.5f * (1.0f + erff(x * 0.70710678f)) + x * 0.39894228f * expf(-0.5f * x * x);
    }
    const float t = tanhf(0.79788456f * (x + 0.044715f * x * x * x));
    return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * 0.79788456f * (1.0f + 0.134145f * x * x);
}

SD_CLONES static void relu_gradient(float *dx, const float *dy, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        dx[i] = x[i] > 0.0f ? dy[i] : 0.0f;
    }
}

enum { CHUNK = 1 << 14 };

void sd_math_activate(float *y, const float *x, size_t n, sd_mlp_activation activation)
{
#pragma omp parallel for schedule(static)
    for (size_t at = 0; at < n; at += CHUNK) {
        for (size_t i = at; i < n && i < at + CHUNK; i++) {
            y[i] = activate(x[i], activation);
        }
    }
}

void sd_math_activate_gradient(float *dx, const float *dy, const float *x, size_t n, sd_mlp_activation activation)
{
#pragma omp parallel for schedule(static)
    for (size_t at = 0; at < n; at += CHUNK) {
        const size_t count = n - at < CHUNK ? n - at : CHUNK;
        if (activation == SD_MLP_RELU) {
            relu_gradient(dx + at, dy + at, x + at, count);
            continue;
        }
        for (size_t i = at; i < at + count; i++) {
            dx[i] = dy[i] * activate_slope(x[i], activation);
        }
    }
}

/* ---- loss ---- */

/* x becomes exp(x - its maximum); returns the sum, and the maximum in *top. */
SD_CLONES static float exponentials(float *x, int n, float *top)
{
    float most = x[0], sum = 0.0f;
#pragma omp simd reduction(max : most)
    for (int i = 0; i < n; i++) {
        most = x[i] > most ? x[i] : most;
    }
#pragma omp simd reduction(+ : sum)
    for (int i = 0; i < n; i++) {
        x[i] = sd_loop_exp(x[i] - most);
        sum += x[i];
    }
    *top = most;
    return sum;
}

SD_CLONES static void scale_row(float *x, float by, int n)
{
    for (int i = 0; i < n; i++) {
        x[i] *= by;
    }
}

SD_CLONES static void subtract_scaled(float *x, const float *y, float by, int n)
{
    for (int i = 0; i < n; i++) {
        x[i] -= by * y[i];
    }
}

static double cross_entropy_row(float *logits, int32_t target, float *teacher, float share, int n, float scale,
                                bool gradient)
{
    const float wanted = logits[target];
    float top = 0.0f;
    const float sum = exponentials(logits, n, &top);
    const double nll = log((double)sum) + (double)top - (double)wanted;
    if (!gradient) {
        return nll;
    }
    scale_row(logits, scale / sum, n);
    if (teacher) {
        float ignored = 0.0f;
        const float teacher_sum = exponentials(teacher, n, &ignored);
        subtract_scaled(logits, teacher, share * scale / teacher_sum, n);
    }
    logits[target] -= teacher ? scale * (1.0f - share) : scale;
    return nll;
}

void sd_math_cross_entropy(double *nll, float *logits, const int32_t *targets, float *teacher, float share, int rows,
                           int n, float scale, bool gradient)
{
#pragma omp parallel for schedule(static)
    for (int r = 0; r < rows; r++) {
        const size_t at = (size_t)r * (size_t)n;
        nll[r] = cross_entropy_row(logits + at, targets[r], teacher ? teacher + at : NULL, share, n, scale, gradient);
    }
}

/* ---- the optimiser ---- */

SD_CLONES static void adamw_chunk(float *restrict w, float *restrict m, float *restrict v, const float *restrict g,
                                  size_t n, const sd_adamw_numbers *a)
{
    for (size_t i = 0; i < n; i++) {
        const float gradient = g[i] * a->scale;
        m[i] += (1.0f - a->beta1) * (gradient - m[i]);
        v[i] += (1.0f - a->beta2) * (gradient * gradient - v[i]);
        w[i] = w[i] * a->keep - a->step_size * (m[i] / (sqrtf(v[i]) * a->scale_v + a->epsilon));
    }
}

void sd_math_adamw(float *w, float *m, float *v, const float *g, size_t n, const sd_adamw_numbers *numbers)
{
#pragma omp parallel for schedule(static)
    for (size_t at = 0; at < n; at += CHUNK) {
        adamw_chunk(w + at, m + at, v + at, g + at, n - at < CHUNK ? n - at : CHUNK, numbers);
    }
}

SD_CLONES static double squares(const float *x, size_t n)
{
    double sum = 0.0;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < n; i++) {
        sum += (double)x[i] * (double)x[i];
    }
    return sum;
}

double sd_math_sum_of_squares(const float *x, size_t n)
{
    double sum = 0.0; /* chunk by chunk, in order */
    for (size_t at = 0; at < n; at += CHUNK) {
        sum += squares(x + at, n - at < CHUNK ? n - at : CHUNK);
    }
    return sum;
}

SD_CLONES static void add_chunk(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        y[i] += x[i];
    }
}

void sd_math_add(float *y, const float *x, size_t n)
{
#pragma omp parallel for schedule(static)
    for (size_t at = 0; at < n; at += CHUNK) {
        add_chunk(y + at, x + at, n - at < CHUNK ? n - at : CHUNK);
    }
}
