/* SPDX-License-Identifier: MIT */
#include "src/train/net_math.h"

#include <dnnl.h>
#include <math.h>
#include <string.h>

#include "src/train/net_loops.h"

/* ---- the pool ---- */

static _Thread_local sd_pool *pool;

void sd_math_use(sd_pool *use) { pool = use; }

typedef struct sd_split {
    const void *loop;
    sd_range_fn fn;
    int n, per_task;
} sd_split;

static void split_task(void *context, int task, int worker)
{
    const sd_split *s = context;
    const int first = task * s->per_task, last = first + s->per_task;
    s->fn(s->loop, first, last < s->n ? last : s->n, worker);
}

/* Parts of equal size but for the last, a multiple of `grain`, `parts` for each thread. */
void sd_math_split(int n, int grain, int parts, sd_range_fn fn, const void *loop)
{
    if (n <= 0) {
        return;
    }
    const int tasks = parts * sd_pool_size(pool);
    int per_task = (n + tasks - 1) / tasks;
    per_task = (per_task + grain - 1) / grain * grain;
    sd_split split = {.loop = loop, .fn = fn, .n = n, .per_task = per_task};
    sd_pool_run(pool, (n + per_task - 1) / per_task, split_task, &split);
}

/* ---- products. Each thread computes some rows of the result, by a call of its own that is to use no others. Sizes and
 * pointers are right by construction: oneDNN has nothing to refuse. ---- */

enum { PRODUCT_ROWS = 16 };

/* Of the OpenMP that oneDNN was built with, where it was: the declaration is all of it that is needed here. */
extern void omp_set_num_threads(int n) __attribute__((weak));

typedef struct sd_product {
    char transpose_a, transpose_b;
    int n, k, lda, ldb;
    size_t a_step; /* from a row of the result to the next, in a */
    const float *a, *b;
    float beta, *c; /* [rows, n] */
} sd_product;

static void product_range(const void *loop, int first, int last, int worker)
{
    (void)worker;
    const sd_product *p = loop;
    if (omp_set_num_threads) {
        omp_set_num_threads(1); /* for calls from this thread */
    }
    (void)dnnl_sgemm(p->transpose_a, p->transpose_b, last - first, p->n, p->k, 1.0f, p->a + (size_t)first * p->a_step,
                     p->lda, p->b, p->ldb, p->beta, p->c + (size_t)first * (size_t)p->n, p->n);
}

void sd_math_product(float *y, const float *x, const float *w, int rows, int n, int k)
{
    const sd_product p = {.transpose_a = 'N', .transpose_b = 'T', .n = n, .k = k, .lda = k, .ldb = k,
                          .a_step = (size_t)k, .a = x, .b = w, .c = y};
    sd_math_split(rows, PRODUCT_ROWS, 1, product_range, &p);
}

void sd_math_product_inputs(float *dx, const float *dy, const float *w, int rows, int n, int k, bool add)
{
    const sd_product p = {.transpose_a = 'N', .transpose_b = 'N', .n = k, .k = n, .lda = n, .ldb = k,
                          .a_step = (size_t)n, .a = dy, .b = w, .beta = add ? 1.0f : 0.0f, .c = dx};
    sd_math_split(rows, PRODUCT_ROWS, 1, product_range, &p);
}

void sd_math_product_weights(float *dw, const float *dy, const float *x, int rows, int n, int k)
{
    const sd_product p = {.transpose_a = 'T', .transpose_b = 'N', .n = k, .k = rows, .lda = n, .ldb = k, .a_step = 1,
                          .a = dy, .b = x, .beta = 1.0f, .c = dw};
    if (rows > 0) {
        sd_math_split(n, PRODUCT_ROWS, 1, product_range, &p);
    }
}

/* What the loops below are about; each names what it uses. */
typedef struct sd_loop {
    float *y, *z;
    const float *x, *a, *b, *stats;
    int rows, n;
    float eps;
    bool flag;
    const sd_dropout *dropout;
} sd_loop;

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

static void bias_range(const void *loop, int first, int last, int worker)
{
    (void)worker;
    const sd_loop *l = loop;
    for (int r = first; r < last; r++) {
        bias_row(l->y + (size_t)r * (size_t)l->n, l->b, l->n, l->flag);
    }
}

void sd_math_bias(float *y, const float *bias, int rows, int n, bool relu)
{
    if (bias || relu) {
        sd_math_split(rows, 1, 1, bias_range, &(sd_loop){.y = y, .b = bias, .n = n, .flag = relu});
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

static void bias_gradient_range(const void *loop, int first, int last, int worker)
{
    (void)worker;
    const sd_loop *l = loop;
    for (int at = first; at < last; at += STRIP) {
        sum_strip(l->y + at, l->x + at, l->rows, (size_t)l->n, last - at < STRIP ? last - at : STRIP);
    }
}

void sd_math_bias_gradient(float *dbias, const float *dy, int rows, int n)
{
    if (dbias) {
        sd_math_split(n, STRIP, 1, bias_gradient_range, &(sd_loop){.y = dbias, .x = dy, .rows = rows, .n = n});
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

static void norm_range(const void *loop, int first, int last, int worker)
{
    (void)worker;
    const sd_loop *l = loop;
    for (int r = first; r < last; r++) {
        const size_t at = (size_t)r * (size_t)l->n;
        norm_row(l->y + at, l->z + 2 * (size_t)r, l->x + at, l->a, l->b, l->n, l->eps);
    }
}

void sd_math_norm(float *y, float *stats, const float *x, const float *gain, const float *bias, int rows, int n,
                  float eps)
{
    sd_math_split(rows, 1, 1, norm_range,
                  &(sd_loop){.y = y, .z = stats, .x = x, .a = gain, .b = bias, .n = n, .eps = eps});
}

SD_CLONES static void norm_again_row(float *y, const float *stats, const float *x, const float *gain, const float *bias,
                                     int n)
{
    sd_loop_norm_apply(y, x, stats[0], stats[1], gain, bias, n);
}

static void norm_again_range(const void *loop, int first, int last, int worker)
{
    (void)worker;
    const sd_loop *l = loop;
    for (int r = first; r < last; r++) {
        const size_t at = (size_t)r * (size_t)l->n;
        norm_again_row(l->y + at, l->stats + 2 * (size_t)r, l->x + at, l->a, l->b, l->n);
    }
}

void sd_math_norm_again(float *y, const float *stats, const float *x, const float *gain, const float *bias, int rows,
                        int n)
{
    sd_math_split(rows, 1, 1, norm_again_range,
                  &(sd_loop){.y = y, .stats = stats, .x = x, .a = gain, .b = bias, .n = n});
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

/* y, z: the gradients of gain and bias; a: dy */
static void norm_strip_range(const void *loop, int first, int last, int worker)
{
    (void)worker;
    const sd_loop *l = loop;
    for (int at = first; at < last; at += STRIP) {
        norm_strip(l->y + at, l->z + at, l->a + at, l->x + at, l->stats, l->rows, (size_t)l->n,
                   last - at < STRIP ? last - at : STRIP);
    }
}

/* y: dx; a: dy; b: gain */
static void norm_gradient_range(const void *loop, int first, int last, int worker)
{
    (void)worker;
    const sd_loop *l = loop;
    for (int r = first; r < last; r++) {
        const size_t at = (size_t)r * (size_t)l->n;
        norm_gradient_row(l->y + at, l->a + at, l->x + at, l->stats + 2 * (size_t)r, l->b, l->n, l->flag);
    }
}

void sd_math_norm_gradient(float *dx, float *dgain, float *dbias, const float *dy, const float *x, const float *stats,
                           const float *gain, int rows, int n, bool add)
{
    if (dgain) {
        sd_math_split(n, STRIP, 1, norm_strip_range,
                      &(sd_loop){.y = dgain, .z = dbias, .a = dy, .x = x, .stats = stats, .rows = rows, .n = n});
    }
    sd_math_split(rows, 1, 1, norm_gradient_range,
                  &(sd_loop){.y = dx, .a = dy, .x = x, .stats = stats, .b = gain, .n = n, .flag = add});
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

/* a: the residual; b: the bias */
static void add_dropped_range(const void *loop, int first, int last, int worker)
{
    (void)worker;
    const sd_loop *l = loop;
    const float keep = 1.0f / (1.0f - l->dropout->rate);
    for (int r = first; r < last; r++) {
        const size_t at = (size_t)r * (size_t)l->n;
        add_dropped_row(l->y + at, l->a + at, l->x + at, l->b, l->n, row_key(l->dropout, r), drop_limit(l->dropout), keep);
    }
}

void sd_math_add_dropped(float *y, const float *residual, const float *x, const float *bias, int rows, int n,
                         const sd_dropout *dropout)
{
    sd_math_split(rows, 1, 1, add_dropped_range,
                  &(sd_loop){.y = y, .a = residual, .x = x, .b = bias, .n = n, .dropout = dropout});
}

static void drop_range(const void *loop, int first, int last, int worker)
{
    (void)worker;
    const sd_loop *l = loop;
    const float keep = 1.0f / (1.0f - l->dropout->rate);
    for (int r = first; r < last; r++) {
        const size_t at = (size_t)r * (size_t)l->n;
        drop_row(l->y + at, l->x + at, l->n, row_key(l->dropout, r), drop_limit(l->dropout), keep);
    }
}

void sd_math_drop(float *dx, const float *dy, int rows, int n, const sd_dropout *dropout)
{
    sd_math_split(rows, 1, 1, drop_range, &(sd_loop){.y = dx, .x = dy, .n = n, .dropout = dropout});
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

/* Long arrays go by chunks, so that an int counts them. */
enum { CHUNK = 1 << 12 };

static int chunks(size_t n) { return (int)((n + CHUNK - 1) / CHUNK); }

typedef struct sd_long_loop {
    float *y, *m, *v;
    const float *x, *dy;
    size_t n;
    sd_mlp_activation activation;
    const sd_adamw_numbers *numbers;
} sd_long_loop;

/* From the first element of chunk `first` to the last of chunk last-1, or of all. */
static size_t chunk_end(const sd_long_loop *l, int last)
{
    const size_t end = (size_t)last * CHUNK;
    return end < l->n ? end : l->n;
}

static void activate_range(const void *loop, int first, int last, int worker)
{
    (void)worker;
    const sd_long_loop *l = loop;
    for (size_t i = (size_t)first * CHUNK; i < chunk_end(l, last); i++) {
        l->y[i] = activate(l->x[i], l->activation);
    }
}

void sd_math_activate(float *y, const float *x, size_t n, sd_mlp_activation activation)
{
    sd_math_split(chunks(n), 1, 1, activate_range, &(sd_long_loop){.y = y, .x = x, .n = n, .activation = activation});
}

static void activate_gradient_range(const void *loop, int first, int last, int worker)
{
    (void)worker;
    const sd_long_loop *l = loop;
    const size_t at = (size_t)first * CHUNK, end = chunk_end(l, last);
    if (l->activation == SD_MLP_RELU) {
        relu_gradient(l->y + at, l->dy + at, l->x + at, end - at);
        return;
    }
    for (size_t i = at; i < end; i++) {
        l->y[i] = l->dy[i] * activate_slope(l->x[i], l->activation);
    }
}

void sd_math_activate_gradient(float *dx, const float *dy, const float *x, size_t n, sd_mlp_activation activation)
{
    sd_math_split(chunks(n), 1, 1, activate_gradient_range,
                  &(sd_long_loop){.y = dx, .dy = dy, .x = x, .n = n, .activation = activation});
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

typedef struct sd_entropy_loop {
    double *nll;
    float *logits, *teacher;
    const int32_t *targets;
    float share, scale;
    int n;
    bool gradient;
} sd_entropy_loop;

static void entropy_range(const void *loop, int first, int last, int worker)
{
    (void)worker;
    const sd_entropy_loop *l = loop;
    for (int r = first; r < last; r++) {
        const size_t at = (size_t)r * (size_t)l->n;
        l->nll[r] = cross_entropy_row(l->logits + at, l->targets[r], l->teacher ? l->teacher + at : NULL, l->share, l->n,
                                      l->scale, l->gradient);
    }
}

void sd_math_cross_entropy(double *nll, float *logits, const int32_t *targets, float *teacher, float share, int rows,
                           int n, float scale, bool gradient)
{
    sd_math_split(rows, 1, 1, entropy_range,
                  &(sd_entropy_loop){.nll = nll, .logits = logits, .teacher = teacher, .targets = targets, .share = share,
                                     .scale = scale, .n = n, .gradient = gradient});
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

static void adamw_range(const void *loop, int first, int last, int worker)
{
    (void)worker;
    const sd_long_loop *l = loop;
    const size_t at = (size_t)first * CHUNK;
    adamw_chunk(l->y + at, l->m + at, l->v + at, l->x + at, chunk_end(l, last) - at, l->numbers);
}

void sd_math_adamw(float *w, float *m, float *v, const float *g, size_t n, const sd_adamw_numbers *numbers)
{
    sd_math_split(chunks(n), 1, 1, adamw_range,
                  &(sd_long_loop){.y = w, .m = m, .v = v, .x = g, .n = n, .numbers = numbers});
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
