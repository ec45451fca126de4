/* SPDX-License-Identifier: MIT
 *
 * Causal attention, forward and backward, one head of one row at a time. The row's tokens stand anywhere in the batch,
 * so its queries, keys and values are gathered first; keys and values also lie transposed, so that the products with
 * one query run over positions. The backward pass makes the probabilities again from the saved sums. */
#include <math.h>
#include <string.h>

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

typedef struct sd_attention_loop {
    float *out, *sums_out;       /* forward */
    float *dqkv;                 /* backward */
    const float *dout, *kept, *sums, *qkv;
    const sd_attention_row *rows;
    const sd_attention_shape *shape;
} sd_attention_loop;

static sd_head prepare(const sd_attention_shape *s, const sd_attention_row *row, const float *qkv, int head,
                       int worker)
{
    const size_t hidden = (size_t)s->heads * (size_t)s->head_dim, column = (size_t)head * (size_t)s->head_dim;
    sd_head h = head_at(s->scratch + (size_t)worker * s->scratch_stride, row->n, s->head_dim);
    gather(h.q, qkv + column, row, 3 * hidden, &h);
    gather(h.k, qkv + hidden + column, row, 3 * hidden, &h);
    gather(h.v, qkv + 2 * hidden + column, row, 3 * hidden, &h);
    transpose(h.kt, h.k, &h);
    return h;
}

static void forward_range(const void *loop, int first, int last, int worker)
{
    const sd_attention_loop *l = loop;
    const sd_attention_shape *s = l->shape;
    const size_t hidden = (size_t)s->heads * (size_t)s->head_dim;
    for (int task = first; task < last; task++) {
        const sd_attention_row *row = &l->rows[task / s->heads];
        const int head = task % s->heads;
        if (row->n > 0) {
            const sd_head h = prepare(s, row, l->qkv, head, worker);
            forward_head(&h, l->out + (size_t)head * (size_t)s->head_dim, hidden, l->sums_out + head, (size_t)s->heads,
                         row->token, s->scale);
        }
    }
}

enum { PARTS = 8 }; /* for each thread: rows are of different lengths */

void sd_math_attention(float *out, float *sums, const float *qkv, const sd_attention_row *rows,
                       const sd_attention_shape *s)
{
    sd_math_split(s->n_rows * s->heads, 1, PARTS, forward_range,
                  &(sd_attention_loop){.out = out, .sums_out = sums, .qkv = qkv, .rows = rows, .shape = s});
}

static void scatter(float *dst, const float *src, const sd_attention_row *row, size_t dst_stride, const sd_head *h)
{
    for (int i = 0; i < row->n; i++) {
        memcpy(dst + (size_t)row->token[i] * dst_stride, src + (size_t)i * h->stride_d, (size_t)h->d * sizeof *dst);
    }
}

/* The sum over the keys of p * dp is that over the head of dout * out. */
static void weigh(float *weights, const sd_head *h, const float *out, size_t stride, const int32_t *token)
{
    for (int i = 0; i < h->n; i++) {
        const float *y = out + (size_t)token[i] * stride, *d = h->dout + (size_t)i * h->stride_d;
        float sum = 0.0f;
        for (int j = 0; j < h->d; j++) {
            sum += d[j] * y[j];
        }
        weights[i] = sum;
    }
}

static void backward_range(const void *loop, int first, int last, int worker)
{
    const sd_attention_loop *l = loop;
    const sd_attention_shape *s = l->shape;
    const size_t hidden = (size_t)s->heads * (size_t)s->head_dim;
    for (int task = first; task < last; task++) {
        const sd_attention_row *row = &l->rows[task / s->heads];
        const int head = task % s->heads;
        const size_t column = (size_t)head * (size_t)s->head_dim;
        if (row->n == 0) {
            continue;
        }
        const sd_head h = prepare(s, row, l->qkv, head, worker);
        gather(h.dout, l->dout + column, row, hidden, &h);
        transpose(h.vt, h.v, &h);
        memset(h.dk, 0, (size_t)(h.dv - h.dk) * 2 * sizeof(float));
        weigh(h.v, &h, l->kept + column, hidden, row->token); /* v lies transposed now */
        backward_head(&h, l->sums + head, (size_t)s->heads, row->token, h.v, s->scale);
        scatter(l->dqkv + column, h.dq, row, 3 * hidden, &h);
        scatter(l->dqkv + hidden + column, h.dk, row, 3 * hidden, &h);
        scatter(l->dqkv + 2 * hidden + column, h.dv, row, 3 * hidden, &h);
    }
}

void sd_math_attention_gradient(float *dqkv, const float *dout, const float *out, const float *sums, const float *qkv,
                                const sd_attention_row *rows, const sd_attention_shape *s)
{
    sd_math_split(s->n_rows * s->heads, 1, PARTS, backward_range,
                  &(sd_attention_loop){.dqkv = dqkv, .dout = dout, .kept = out, .sums = sums, .qkv = qkv, .rows = rows,
                                       .shape = s});
}
