/* SPDX-License-Identifier: MIT
 *
 * A micro-batch through the layers and back. Pre-norm: x + out(attn(norm(x))), then x + fc2(act(fc1(norm(x)))).
 * Post-norm (opt-350m): norm(x + ...) twice. What a norm or an activation made is computed again on the way back rather
 * than kept. */
#include <math.h>
#include <string.h>

#include "src/train/net_internal.h"

typedef struct sd_layer_params {
    const float *gain1, *bias1, *qkv, *qkv_bias, *out, *out_bias, *gain2, *bias2, *fc1, *fc1_bias, *fc2, *fc2_bias;
} sd_layer_params;

static sd_layer_params layer_params(const sd_params *p, int l)
{
    float *v = p->values;
    return (sd_layer_params){
        .gain1 = sd_param_in(p, v, SD_SLOT_ATTN_NORM_GAIN, l), .bias1 = sd_param_in(p, v, SD_SLOT_ATTN_NORM_BIAS, l),
        .qkv = sd_param_in(p, v, SD_SLOT_Q, l), .qkv_bias = sd_param_in(p, v, SD_SLOT_Q_BIAS, l),
        .out = sd_param_in(p, v, SD_SLOT_OUT, l), .out_bias = sd_param_in(p, v, SD_SLOT_OUT_BIAS, l),
        .gain2 = sd_param_in(p, v, SD_SLOT_FFN_NORM_GAIN, l), .bias2 = sd_param_in(p, v, SD_SLOT_FFN_NORM_BIAS, l),
        .fc1 = sd_param_in(p, v, SD_SLOT_FC1, l), .fc1_bias = sd_param_in(p, v, SD_SLOT_FC1_BIAS, l),
        .fc2 = sd_param_in(p, v, SD_SLOT_FC2, l), .fc2_bias = sd_param_in(p, v, SD_SLOT_FC2_BIAS, l),
    };
}

/* How many tokens run a layer of this rank: a prefix of the batch, and of every row. */
static int select_tokens(sd_pass *p, int rank)
{
    int n = p->tokens;
    while (n > 0 && p->budget[n - 1] <= rank) {
        n--;
    }
    for (int r = 0; r < p->n_rows; r++) {
        int length = p->row_length[r];
        while (length > 0 && p->rows[r].token[length - 1] >= n) {
            length--;
        }
        p->rows[r].n = length;
    }
    return n;
}

static sd_attention_shape attention_shape(const sd_pass *p)
{
    const sd_config *c = &p->params->config;
    return (sd_attention_shape){.n_rows = p->n_rows, .heads = c->n_heads, .head_dim = c->head_dim,
                                .scale = 1.0f / sqrtf((float)c->head_dim), .scratch = p->attention_scratch,
                                .scratch_stride = p->attention_stride};
}

static sd_dropout dropout_at(const sd_pass *p, float rate, uint64_t noise, int site)
{
    const uint64_t mixed = (noise + (uint64_t)site * UINT64_C(0x9E3779B97F4A7C15)) * UINT64_C(0xBF58476D1CE4E5B9);
    return (sd_dropout){.rate = rate, .seed = (uint32_t)(mixed >> 32), .keys = p->key};
}

/* ---- forward ---- */

static void embed(sd_pass *p)
{
    const sd_params *q = p->params;
    const sd_config *c = &q->config;
    const size_t hidden = (size_t)c->hidden, width = (size_t)c->embed;
    const float *table = sd_param_in(q, q->values, SD_SLOT_EMBED, 0);
    const float *positions = sd_param_in(q, q->values, SD_SLOT_POSITIONS, 0);
    float *dst = p->narrow ? p->narrow : p->x;
    for (int t = 0; t < p->tokens; t++) {
        memcpy(dst + (size_t)t * width, table + (size_t)p->id[t] * width, width * sizeof *dst);
    }
    if (p->narrow) {
        sd_math_product(p->x, p->narrow, sd_param_in(q, q->values, SD_SLOT_PROJECT_IN, 0), p->tokens, c->hidden,
                        c->embed);
    }
    for (int t = 0; t < p->tokens; t++) {
        const float *row = positions + (size_t)(p->position[t] + c->position_offset) * hidden;
        for (size_t i = 0; i < hidden; i++) {
            p->x[(size_t)t * hidden + i] += row[i];
        }
    }
}

static const float *feed_forward(sd_pass *p, const sd_layer_params *w, sd_layer_kept *k, const float *in)
{
    const sd_config *c = &p->params->config;
    const bool relu = c->activation == SD_MLP_RELU;
    sd_math_product(k->ffn, in, w->fc1, k->n, c->ffn, c->hidden);
    sd_math_bias(k->ffn, w->fc1_bias, k->n, c->ffn, relu);
    if (relu) {
        return k->ffn;
    }
    sd_math_activate(p->wide, k->ffn, (size_t)k->n * (size_t)c->ffn, c->activation);
    return p->wide;
}

/* normed is free for the caller before and after; dh or wide take what products make. */
static void forward_layer(sd_pass *p, int l, sd_layer_kept *k, float rate, uint64_t noise)
{
    const sd_config *c = &p->params->config;
    const sd_layer_params w = layer_params(p->params, l);
    const sd_attention_shape shape = attention_shape(p);
    const sd_dropout first = dropout_at(p, rate, noise, 2 * l), second = dropout_at(p, rate, noise, 2 * l + 1);
    const int n = k->n, hidden = c->hidden;
    memcpy(k->x, p->x, (size_t)n * (size_t)hidden * sizeof *k->x);
    const float *in = k->x;
    if (c->pre_norm) {
        sd_math_norm(p->normed, k->stats1, k->x, w.gain1, w.bias1, n, hidden, c->norm_eps);
        in = p->normed;
    }
    sd_math_product(k->qkv, in, w.qkv, n, 3 * hidden, hidden);
    sd_math_bias(k->qkv, w.qkv_bias, n, 3 * hidden, false);
    sd_math_attention(k->attn, k->sums, k->qkv, p->rows, &shape);
    sd_math_product(p->normed, k->attn, w.out, n, hidden, hidden);
    sd_math_add_dropped(k->mid, k->x, p->normed, w.out_bias, n, hidden, &first);
    if (c->pre_norm) {
        sd_math_norm(p->normed, k->stats2, k->mid, w.gain2, w.bias2, n, hidden, c->norm_eps);
        const float *act = feed_forward(p, &w, k, p->normed);
        sd_math_product(p->normed, act, w.fc2, n, hidden, c->ffn);
        sd_math_add_dropped(p->x, k->mid, p->normed, w.fc2_bias, n, hidden, &second);
    } else {
        sd_math_norm(p->x, k->stats1, k->mid, w.gain1, w.bias1, n, hidden, c->norm_eps);
        const float *act = feed_forward(p, &w, k, p->x);
        sd_math_product(p->normed, act, w.fc2, n, hidden, c->ffn);
        sd_math_add_dropped(k->out, p->x, p->normed, w.fc2_bias, n, hidden, &second);
        sd_math_norm(p->x, k->stats2, k->out, w.gain2, w.bias2, n, hidden, c->norm_eps);
    }
}

static void head_input(sd_pass *p)
{
    const sd_params *q = p->params;
    const sd_config *c = &q->config;
    const size_t hidden = (size_t)c->hidden;
    for (int i = 0; i < p->outputs; i++) {
        memcpy(p->last + (size_t)i * hidden, p->x + (size_t)p->output[i] * hidden, hidden * sizeof *p->last);
    }
    if (c->final_norm) {
        sd_math_norm(p->last_normed, p->last_stats, p->last, sd_param_in(q, q->values, SD_SLOT_FINAL_NORM_GAIN, 0),
                     sd_param_in(q, q->values, SD_SLOT_FINAL_NORM_BIAS, 0), p->outputs, c->hidden, c->norm_eps);
    }
    if (p->last_narrow != p->last_normed) {
        sd_math_product(p->last_narrow, p->last_normed, sd_param_in(q, q->values, SD_SLOT_PROJECT_OUT, 0), p->outputs,
                        c->embed, c->hidden);
    }
}

void sd_pass_forward(sd_pass *p, const int *ranks, float rate, uint64_t noise, bool keep)
{
    embed(p);
    for (int l = 0; l < p->params->config.n_layers; l++) {
        sd_layer_kept *k = &p->kept[keep ? l : 0];
        k->n = select_tokens(p, ranks ? ranks[l] : 0);
        if (k->n > 0) {
            forward_layer(p, l, k, rate, noise);
        }
    }
    head_input(p);
}

float *sd_pass_head_input(const sd_pass *p) { return p->last_narrow; }

const float *sd_pass_head(const sd_pass *p)
{
    const sd_params *q = p->params;
    return sd_param_in(q, q->values, q->config.tied ? SD_SLOT_EMBED : SD_SLOT_HEAD, 0);
}

/* ---- backward: dx holds the gradient of the hidden states, those of a layer's output before it and of its input
 * after ---- */

static void backward_head_input(sd_pass *p, float *g)
{
    const sd_params *q = p->params;
    const sd_config *c = &q->config;
    const size_t hidden = (size_t)c->hidden;
    float *d = p->dlast;
    if (p->last_narrow != p->last_normed) {
        sd_math_product_weights(sd_param_in(q, g, SD_SLOT_PROJECT_OUT, 0), p->dlast, p->last_normed, p->outputs,
                                c->embed, c->hidden);
        sd_math_product_inputs(p->dh, p->dlast, sd_param_in(q, q->values, SD_SLOT_PROJECT_OUT, 0), p->outputs,
                               c->embed, c->hidden, false);
        d = p->dh;
    }
    if (c->final_norm) {
        sd_math_norm_gradient(d, sd_param_in(q, g, SD_SLOT_FINAL_NORM_GAIN, 0),
                              sd_param_in(q, g, SD_SLOT_FINAL_NORM_BIAS, 0), d, p->last, p->last_stats,
                              sd_param_in(q, q->values, SD_SLOT_FINAL_NORM_GAIN, 0), p->outputs, c->hidden, false);
    }
    memset(p->dx, 0, (size_t)p->tokens * hidden * sizeof *p->dx);
    for (int i = 0; i < p->outputs; i++) {
        memcpy(p->dx + (size_t)p->output[i] * hidden, d + (size_t)i * hidden, hidden * sizeof *d);
    }
}

/* From dh, the gradient of fc2's output, to dwide, that of fc1's; in: fc1's input. */
static void backward_feed_forward(sd_pass *p, float *g, int l, const sd_layer_params *w, const sd_layer_kept *k,
                                  const float *in)
{
    const sd_params *q = p->params;
    const sd_config *c = &q->config;
    const size_t values = (size_t)k->n * (size_t)c->ffn;
    const float *act = k->ffn;
    if (c->activation != SD_MLP_RELU) {
        sd_math_activate(p->wide, k->ffn, values, c->activation);
        act = p->wide;
    }
    sd_math_bias_gradient(sd_param_in(q, g, SD_SLOT_FC2_BIAS, l), p->dh, k->n, c->hidden);
    sd_math_product_weights(sd_param_in(q, g, SD_SLOT_FC2, l), p->dh, act, k->n, c->hidden, c->ffn);
    sd_math_product_inputs(p->wide, p->dh, w->fc2, k->n, c->hidden, c->ffn, false);
    sd_math_activate_gradient(p->wide, p->wide, k->ffn, values, c->activation);
    sd_math_bias_gradient(sd_param_in(q, g, SD_SLOT_FC1_BIAS, l), p->wide, k->n, c->ffn);
    sd_math_product_weights(sd_param_in(q, g, SD_SLOT_FC1, l), p->wide, in, k->n, c->ffn, c->hidden);
}

/* From dh, the gradient of the attention block's output before dropout, to wide, that of qkv; in: qkv's input. */
static void backward_attention(sd_pass *p, float *g, int l, const sd_layer_params *w, const sd_layer_kept *k)
{
    const sd_params *q = p->params;
    const sd_config *c = &q->config;
    const sd_attention_shape shape = attention_shape(p);
    sd_math_bias_gradient(sd_param_in(q, g, SD_SLOT_OUT_BIAS, l), p->dh, k->n, c->hidden);
    sd_math_product_weights(sd_param_in(q, g, SD_SLOT_OUT, l), p->dh, k->attn, k->n, c->hidden, c->hidden);
    sd_math_product_inputs(p->normed, p->dh, w->out, k->n, c->hidden, c->hidden, false);
    sd_math_attention_gradient(p->wide, p->normed, k->attn, k->sums, k->qkv, p->rows, &shape);
    sd_math_bias_gradient(sd_param_in(q, g, SD_SLOT_Q_BIAS, l), p->wide, k->n, 3 * c->hidden);
}

static void backward_pre_norm(sd_pass *p, float *g, int l, const sd_layer_kept *k, const sd_dropout drop[2])
{
    const sd_params *q = p->params;
    const sd_config *c = &q->config;
    const sd_layer_params w = layer_params(q, l);
    const int n = k->n, hidden = c->hidden;
    sd_math_drop(p->dh, p->dx, n, hidden, &drop[1]);
    sd_math_norm_again(p->normed, k->stats2, k->mid, w.gain2, w.bias2, n, hidden);
    backward_feed_forward(p, g, l, &w, k, p->normed);
    sd_math_product_inputs(p->dh, p->wide, w.fc1, n, c->ffn, hidden, false);
    sd_math_norm_gradient(p->dx, sd_param_in(q, g, SD_SLOT_FFN_NORM_GAIN, l),
                          sd_param_in(q, g, SD_SLOT_FFN_NORM_BIAS, l), p->dh,
                          k->mid, k->stats2, w.gain2, n, hidden, true);
    sd_math_drop(p->dh, p->dx, n, hidden, &drop[0]);
    backward_attention(p, g, l, &w, k);
    sd_math_norm_again(p->normed, k->stats1, k->x, w.gain1, w.bias1, n, hidden);
    sd_math_product_weights(sd_param_in(q, g, SD_SLOT_Q, l), p->wide, p->normed, n, 3 * hidden, hidden);
    sd_math_product_inputs(p->dh, p->wide, w.qkv, n, 3 * hidden, hidden, false);
    sd_math_norm_gradient(p->dx, sd_param_in(q, g, SD_SLOT_ATTN_NORM_GAIN, l),
                          sd_param_in(q, g, SD_SLOT_ATTN_NORM_BIAS, l), p->dh, k->x, k->stats1, w.gain1, n, hidden,
                          true);
}

static void backward_post_norm(sd_pass *p, float *g, int l, const sd_layer_kept *k, const sd_dropout drop[2])
{
    const sd_params *q = p->params;
    const sd_config *c = &q->config;
    const sd_layer_params w = layer_params(q, l);
    const int n = k->n, hidden = c->hidden;
    sd_math_norm_gradient(p->dx, sd_param_in(q, g, SD_SLOT_FFN_NORM_GAIN, l),
                          sd_param_in(q, g, SD_SLOT_FFN_NORM_BIAS, l), p->dx,
                          k->out, k->stats2, w.gain2, n, hidden, false);
    sd_math_drop(p->dh, p->dx, n, hidden, &drop[1]);
    sd_math_norm_again(p->normed, k->stats1, k->mid, w.gain1, w.bias1, n, hidden);
    backward_feed_forward(p, g, l, &w, k, p->normed);
    sd_math_product_inputs(p->dx, p->wide, w.fc1, n, c->ffn, hidden, true);
    sd_math_norm_gradient(p->dx, sd_param_in(q, g, SD_SLOT_ATTN_NORM_GAIN, l),
                          sd_param_in(q, g, SD_SLOT_ATTN_NORM_BIAS, l), p->dx, k->mid, k->stats1, w.gain1, n, hidden,
                          false);
    sd_math_drop(p->dh, p->dx, n, hidden, &drop[0]);
    backward_attention(p, g, l, &w, k);
    sd_math_product_weights(sd_param_in(q, g, SD_SLOT_Q, l), p->wide, k->x, n, 3 * hidden, hidden);
    sd_math_product_inputs(p->dx, p->wide, w.qkv, n, 3 * hidden, hidden, true);
}

static void backward_embed(sd_pass *p, float *g)
{
    const sd_params *q = p->params;
    const sd_config *c = &q->config;
    const size_t hidden = (size_t)c->hidden, width = (size_t)c->embed;
    float *table = sd_param_in(q, g, SD_SLOT_EMBED, 0), *positions = sd_param_in(q, g, SD_SLOT_POSITIONS, 0);
    for (int t = 0; t < p->tokens; t++) {
        float *row = positions + (size_t)(p->position[t] + c->position_offset) * hidden;
        for (size_t i = 0; i < hidden; i++) {
            row[i] += p->dx[(size_t)t * hidden + i];
        }
    }
    const float *d = p->dx;
    if (p->narrow) {
        sd_math_product_weights(sd_param_in(q, g, SD_SLOT_PROJECT_IN, 0), p->dx, p->narrow, p->tokens, c->hidden,
                                c->embed);
        sd_math_product_inputs(p->dnarrow, p->dx, sd_param_in(q, q->values, SD_SLOT_PROJECT_IN, 0), p->tokens,
                               c->hidden, c->embed, false);
        d = p->dnarrow;
    }
    for (int t = 0; t < p->tokens; t++) {
        if (p->id[t] == c->pad_id) {
            continue; /* as in PyTorch's Embedding(padding_idx): its row is not trained by the input side */
        }
        float *row = table + (size_t)p->id[t] * width;
        for (size_t i = 0; i < width; i++) {
            row[i] += d[(size_t)t * width + i];
        }
    }
}

void sd_pass_backward(sd_pass *p, float *g, const int *ranks, float rate, uint64_t noise)
{
    backward_head_input(p, g);
    for (int l = p->params->config.n_layers - 1; l >= 0; l--) {
        const sd_layer_kept *k = &p->kept[l];
        if (select_tokens(p, ranks ? ranks[l] : 0) == 0) {
            continue;
        }
        const sd_dropout drop[2] = {dropout_at(p, rate, noise, 2 * l), dropout_at(p, rate, noise, 2 * l + 1)};
        if (p->params->config.pre_norm) {
            backward_pre_norm(p, g, l, k, drop);
        } else {
            backward_post_norm(p, g, l, k, drop);
        }
    }
    backward_embed(p, g);
}
