/* SPDX-License-Identifier: MIT
 *
 * Causal attention, forward and backward, one head of one row at a time. The row's tokens stand anywhere in the batch,
 * so its queries, keys and values are gathered first; keys and values also lie transposed, so that the products with
 * one query run over positions. The backward pass makes the probabilities again from the saved sums. */
#include <math.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include "src/train/net_loops.h"
#include "src/train/net_math.h"

/* Scratch of one head: q, k, v, do as [n, d]; k, v as [d, n]; dq, dk, dv as [n, d]; two rows of n. */
enum { ARRAYS = 9, ALIGN = 16 };

static size_t padded(int n) { return ((size_t)n + ALIGN - 1) / ALIGN * ALIGN; }

size_t sd_math_attention_scratch(int n, int head_dim)
{
    return ARRAYS * padded(n) * padded(head_dim) + 2 * padded(n);
}

typedef struct sd_head {
    int n, d;
    size_t stride_n, stride_d; /* of transposed arrays, and of the others */
    float *q, *k, *v, *dout, *kt, *vt, *dq, *dk, *dv, *p, *dp;
} sd_head;

static sd_head head_at(float *scratch, int n, int d)
{
    const size_t block = padded(n) * padded(d);
    return (sd_head){.n = n, .d = d, .stride_n = padded(n), .stride_d = padded(d), .q = scratch, .k = scratch + block,
                     .v = scratch + 2 * block, .dout = scratch + 3 * block, .kt = scratch + 4 * block,
                     .vt = scratch + 5 * block, .dq = scratch + 6 * block, .dk = scratch + 7 * block,
                     .dv = scratch + 8 * block, .p = scratch + 9 * block, .dp = scratch + 9 * block + padded(n)};
}

static void gather(float *dst, const float *src, const sd_attention_row *row, size_t src_stride, const sd_head *h)
{
    for (int i = 0; i < row->n; i++) {
        memcpy(dst + (size_t)i * h->stride_d, src + (size_t)row->token[i] * src_stride, (size_t)h->d * sizeof *dst);
    }
}

static void transpose(float *dst, const float *src, const sd_head *h)
{
    for (int i = 0; i < h->n; i++) {
        for (int j = 0; j < h->d; j++) {
            dst[(size_t)j * h->stride_n + (size_t)i] = src[(size_t)i * h->stride_d + (size_t)j];
        }
    }
}

/* y[0 .. n) = sum over j of x[j] * columns[j][0 .. n) */
static inline __attribute__((always_inline)) void combine(float *restrict y, const float *restrict x,
                                                          const float *restrict columns, size_t stride, int n, int d)
{
    for (int i = 0; i < n; i++) {
        y[i] = x[0] * columns[i];
    }
    int j = 1;
    for (; j + 3 < d; j += 4) {
        const float *c = columns + (size_t)j * stride;
        const float a = x[j], b = x[j + 1], e = x[j + 2], f = x[j + 3];
        for (int i = 0; i < n; i++) {
            y[i] += a * c[i] + b * c[stride + (size_t)i] + e * c[2 * stride + (size_t)i] + f * c[3 * stride + (size_t)i];
        }
    }
    for (; j < d; j++) {
        const float *c = columns + (size_t)j * stride;
        for (int i = 0; i < n; i++) {
            y[i] += x[j] * c[i];
        }
    }
}

static inline __attribute__((always_inline)) void add_scaled(float *restrict y, const float *restrict x, float by, int n)
{
    for (int i = 0; i < n; i++) {
        y[i] += by * x[i];
    }
}

/* p: [n] scores to probabilities; returns the logarithm of their sum before. */
static inline __attribute__((always_inline)) float soften(float *p, int n, float scale)
{
    float top = p[0], sum = 0.0f;
#pragma omp simd reduction(max : top)
    for (int i = 0; i < n; i++) {
        top = p[i] > top ? p[i] : top;
    }
#pragma omp simd reduction(+ : sum)
    for (int i = 0; i < n; i++) {
        p[i] = sd_loop_exp((p[i] - top) * scale);
        sum += p[i];
    }
    const float inverse = 1.0f / sum;
    for (int i = 0; i < n; i++) {
        p[i] *= inverse;
    }
    return top * scale + logf(sum);
}

SD_CLONES static void forward_head(const sd_head *h, float *out, size_t out_stride, float *sums, size_t sums_stride,
                                   const int32_t *token, float scale)
{
    for (int i = 0; i < h->n; i++) {
        combine(h->p, h->q + (size_t)i * h->stride_d, h->kt, h->stride_n, i + 1, h->d);
        sums[(size_t)token[i] * sums_stride] = soften(h->p, i + 1, scale);
        float *y = out + (size_t)token[i] * out_stride;
        combine(y, h->p, h->v, h->stride_d, h->d, i + 1);
    }
}

SD_CLONES static void backward_head(const sd_head *h, const float *sums, size_t sums_stride, const int32_t *token,
                                    const float *weights, float scale)
{
    for (int i = 0; i < h->n; i++) {
        const float *q = h->q + (size_t)i * h->stride_d, *dout = h->dout + (size_t)i * h->stride_d;
        const float sum = sums[(size_t)token[i] * sums_stride], weight = weights[i];
        float *dq = h->dq + (size_t)i * h->stride_d;
        combine(h->p, q, h->kt, h->stride_n, i + 1, h->d);
        combine(h->dp, dout, h->vt, h->stride_n, i + 1, h->d);
        for (int j = 0; j <= i; j++) {
            h->p[j] = sd_loop_exp(h->p[j] * scale - sum);
            h->dp[j] = h->p[j] * (h->dp[j] - weight) * scale;
        }
        combine(dq, h->dp, h->k, h->stride_d, h->d, i + 1);
        for (int j = 0; j <= i; j++) {
            add_scaled(h->dv + (size_t)j * h->stride_d, dout, h->p[j], h->d);
            add_scaled(h->dk + (size_t)j * h->stride_d, q, h->dp[j], h->d);
        }
    }
}

static int thread_number(void)
{
#ifdef _OPENMP
    return omp_get_thread_num();
#else
    return 0;
#endif
}

static sd_head prepare(const sd_attention_shape *s, const sd_attention_row *row, const float *qkv, int head)
{
    const size_t hidden = (size_t)s->heads * (size_t)s->head_dim, column = (size_t)head * (size_t)s->head_dim;
    sd_head h = head_at(s->scratch + (size_t)thread_number() * s->scratch_stride, row->n, s->head_dim);
    gather(h.q, qkv + column, row, 3 * hidden, &h);
    gather(h.k, qkv + hidden + column, row, 3 * hidden, &h);
    gather(h.v, qkv + 2 * hidden + column, row, 3 * hidden, &h);
    transpose(h.kt, h.k, &h);
    return h;
}

void sd_math_attention(float *out, float *sums, const float *qkv, const sd_attention_row *rows,
                       const sd_attention_shape *s)
{
    const size_t hidden = (size_t)s->heads * (size_t)s->head_dim;
#pragma omp parallel for schedule(dynamic, 4)
    for (int task = 0; task < s->n_rows * s->heads; task++) {
        const sd_attention_row *row = &rows[task / s->heads];
        const int head = task % s->heads;
        if (row->n == 0) {
            continue;
        }
        const sd_head h = prepare(s, row, qkv, head);
        forward_head(&h, out + (size_t)head * (size_t)s->head_dim, hidden, sums + head, (size_t)s->heads, row->token,
                     s->scale);
    }
}

static void scatter(float *dst, const float *src, const sd_attention_row *row, size_t dst_stride, const sd_head *h)
{
    for (int i = 0; i < row->n; i++) {
        memcpy(dst + (size_t)row->token[i] * dst_stride, src + (size_t)i * h->stride_d, (size_t)h->d * sizeof *dst);
    }
}

void sd_math_attention_gradient(float *dqkv, const float *dout, const float *out, const float *sums, const float *qkv,
                                const sd_attention_row *rows, const sd_attention_shape *s)
{
    const size_t hidden = (size_t)s->heads * (size_t)s->head_dim;
#pragma omp parallel for schedule(dynamic, 4)
    for (int task = 0; task < s->n_rows * s->heads; task++) {
        const sd_attention_row *row = &rows[task / s->heads];
        const int head = task % s->heads;
        const size_t column = (size_t)head * (size_t)s->head_dim;
        if (row->n == 0) {
            continue;
        }
        const sd_head h = prepare(s, row, qkv, head);
        gather(h.dout, dout + column, row, hidden, &h);
        transpose(h.vt, h.v, &h);
        memset(h.dk, 0, (size_t)(h.dv - h.dk) * 2 * sizeof(float));
        /* the sum over the keys of p * dp is that over the head of dout * out; it takes the place of v, now transposed */
        for (int i = 0; i < row->n; i++) {
            const float *y = out + (size_t)row->token[i] * hidden + column, *d = h.dout + (size_t)i * h.stride_d;
            float sum = 0.0f;
            for (int j = 0; j < h.d; j++) {
                sum += d[j] * y[j];
            }
            h.v[i] = sum;
        }
        backward_head(&h, sums + head, (size_t)s->heads, row->token, h.v, s->scale);
        scatter(dqkv + column, h.dq, row, 3 * hidden, &h);
        scatter(dqkv + hidden + column, h.dk, row, 3 * hidden, &h);
        scatter(dqkv + 2 * hidden + column, h.dv, row, 3 * hidden, &h);
    }
}
