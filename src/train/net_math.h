/* SPDX-License-Identifier: MIT
 *
 * The arithmetic of training on plain arrays, row-major f32: products through oneDNN, the rest as loops, both split over
 * the project's pool. (oneDNN's own threads, OpenMP's, spin between calls: with anything else on the machine they wait
 * for cores that the ones they wait for would need.) Each element is summed in one order, whatever the threads. */
#ifndef SD_TRAIN_NET_MATH_H
#define SD_TRAIN_NET_MATH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/model/model.h"

/* The pool of this room's calls from the calling thread; before any other call. */
void sd_math_use(sd_pool *pool);

/* fn over parts of 0 .. n-1, which are multiples of grain but for the last, about `parts` for each thread. */
typedef void (*sd_range_fn)(const void *loop, int first, int last, int worker);
void sd_math_split(int n, int grain, int parts, sd_range_fn fn, const void *loop);

/* y [rows, n] = x [rows, k] times w [n, k] transposed. */
void sd_math_product(float *y, const float *x, const float *w, int rows, int n, int k);
/* dx [rows, k] = dy [rows, n] times w [n, k]; add: += */
void sd_math_product_inputs(float *dx, const float *dy, const float *w, int rows, int n, int k, bool add);
/* dw [n, k] += dy [rows, n] transposed times x [rows, k]. */
void sd_math_product_weights(float *dw, const float *dy, const float *x, int rows, int n, int k);

/* y [rows, n] += bias [n], and no less than 0 with relu. bias NULL: none. */
void sd_math_bias(float *y, const float *bias, int rows, int n, bool relu);
/* dbias [n] += the sums of dy's columns. dbias NULL: nothing. */
void sd_math_bias_gradient(float *dbias, const float *dy, int rows, int n);

/* y = the norm of x, [rows, n]. gain, bias: [n] or NULL. stats: [rows, 2] mean and 1 / deviation, for the gradient. */
void sd_math_norm(float *y, float *stats, const float *x, const float *gain, const float *bias, int rows, int n,
                  float eps);
/* y again, from stats. */
void sd_math_norm_again(float *y, const float *stats, const float *x, const float *gain, const float *bias, int rows,
                        int n);
/* dx [rows, n] = (add: +=) the gradient through the norm; dgain, dbias [n] += theirs, NULL where there are none. dx may
 * be dy unless it adds. */
void sd_math_norm_gradient(float *dx, float *dgain, float *dbias, const float *dy, const float *x, const float *stats,
                           const float *gain, int rows, int n, bool add);

/* Dropout: element i of row r is kept or not by a hash of (seed, keys[r], i), so it needs no memory. Kept ones are
 * divided by the share that is kept. rate 0 keeps all. */
typedef struct sd_dropout {
    float rate;
    uint32_t seed;
    const uint32_t *keys; /* [rows] */
} sd_dropout;
/* y [rows, n] = residual + dropout(x + bias). bias may be NULL. */
void sd_math_add_dropped(float *y, const float *residual, const float *x, const float *bias, int rows, int n,
                         const sd_dropout *dropout);
/* dx [rows, n] = the gradient through dropout of dy. */
void sd_math_drop(float *dx, const float *dy, int rows, int n, const sd_dropout *dropout);

/* The activation function and its gradient, n elements. For ReLU y may take the place of x. dx may be dy. */
void sd_math_activate(float *y, const float *x, size_t n, sd_mlp_activation activation);
void sd_math_activate_gradient(float *dx, const float *dy, const float *x, size_t n, sd_mlp_activation activation);

/* Rows of logits [rows, n] to log-probabilities of targets and, in place, the gradient of -ln p(target) times scale.
 * nll: [rows]. teacher: [rows, n] logits of another model or NULL; the gradient is then that of
 * (1 - share) * -ln p(target) + share * KL(teacher || model). teacher is overwritten. */
void sd_math_cross_entropy(double *nll, float *logits, const int32_t *targets, float *teacher, float share, int rows,
                           int n, float scale, bool gradient);

/* ---- causal attention of rows whose tokens stand anywhere in a batch ---- */

typedef struct sd_attention_row {
    const int32_t *token; /* [n] where the row's tokens are in the batch, by position */
    int n;
} sd_attention_row;

typedef struct sd_attention_shape {
    int n_rows, heads, head_dim;
    float scale;
    float *scratch;         /* [threads, sd_math_attention_scratch] */
    size_t scratch_stride;
} sd_attention_shape;

/* f32 values of scratch that one thread needs for rows of at most n tokens. */
size_t sd_math_attention_scratch(int n, int head_dim);

/* out [tokens, heads * head_dim] from qkv [tokens, 3 * heads * head_dim]; sums: [tokens, heads] the logarithms of the
 * softmax's sums, for the gradient. */
void sd_math_attention(float *out, float *sums, const float *qkv, const sd_attention_row *rows,
                       const sd_attention_shape *shape);
void sd_math_attention_gradient(float *dqkv, const float *dout, const float *out, const float *sums, const float *qkv,
                                const sd_attention_row *rows, const sd_attention_shape *shape);

/* ---- the optimiser ---- */

typedef struct sd_adamw_numbers {
    float beta1, beta2, step_size, scale_v, epsilon, keep; /* keep: 1 - lr * decay; scale_v: 1 / sqrt(1 - beta2^t) */
    float scale;                                           /* of the gradient */
} sd_adamw_numbers;
void sd_math_adamw(float *w, float *m, float *v, const float *g, size_t n, const sd_adamw_numbers *numbers);

double sd_math_sum_of_squares(const float *x, size_t n);

#endif
