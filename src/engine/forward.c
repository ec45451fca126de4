/* SPDX-License-Identifier: MIT
 *
 * The forward pass. Tokens stand in order of their budget, the largest first, so that the tokens running layer l are a
 * prefix: every operation of a layer is one dense product over rows 0 .. active-1, and a bypassed token's hidden state
 * simply is not touched. A prompt chunk, a decode step and a batch of rows at different steps are all the same pass. */
#include <string.h>

#include "src/engine/session.h"

/* Below about this many multiply-adds, waking the pool costs more than it saves. */
enum { SERIAL_WORK = 1 << 15, TASK_WORK = 1 << 16 };

/* ---- one dense product, split over panels of outputs ---- */

typedef struct sd_gemm_job {
    const sd_gemm *gemm;
    void (*kernel)(const sd_gemm *g, int first_panel, int last_panel);
    int panels, panels_per_task;
} sd_gemm_job;

static void gemm_task(void *context, int task, int worker)
{
    (void)worker;
    const sd_gemm_job *job = context;
    int first = task * job->panels_per_task, last = first + job->panels_per_task;
    job->kernel(job->gemm, first, last < job->panels ? last : job->panels);
}

/* ---- row by row operations ---- */

typedef struct sd_rows_job {
    const sd_model *model;
    const sd_scratch *scratch;
    const sd_norm *norm;
    float *dst;
    const float *src;
    int rows, width, per_task;
    sd_wtype type;
    void (*row)(const struct sd_rows_job *job, int row, int worker);
} sd_rows_job;

static void rows_task(void *context, int task, int worker)
{
    const sd_rows_job *job = context;
    int last = (task + 1) * job->per_task < job->rows ? (task + 1) * job->per_task : job->rows;
    for (int r = task * job->per_task; r < last; r++) {
        job->row(job, r, worker);
    }
}

static void run_rows(sd_rows_job *job)
{
    if (job->rows == 0) {
        return;
    }
    int workers = sd_pool_size(job->model->pool);
    bool serial = (int64_t)job->rows * job->width * 4 <= SERIAL_WORK;
    job->per_task = serial ? job->rows : (job->rows + workers - 1) / workers;
    sd_pool_run(job->model->pool, (job->rows + job->per_task - 1) / job->per_task, rows_task, job);
}

/* ---- the product of all rows, its inputs brought into the form of the weights first ---- */

static void pack_row(const sd_rows_job *job, int row, int worker)
{
    (void)worker;
    const size_t width = (size_t)job->width, stride = sd_packed_stride(job->type, job->width);
    job->model->kernels->pack_input[job->type](job->scratch->packed + (size_t)row * stride,
                                               job->src + (size_t)row * width, job->width);
}

static void run_gemm(const sd_model *m, const sd_scratch *w, sd_gemm *g)
{
    const sd_wtype type = g->w->type;
    if (m->kernels->pack_input[type]) {
        run_rows(&(sd_rows_job){.model = m, .scratch = w, .src = g->x, .rows = g->rows, .width = g->w->k, .type = type,
                                .row = pack_row});
        g->packed_x = w->packed;
        g->packed_stride = sd_packed_stride(type, g->w->k);
    }
    sd_gemm_job job = {.gemm = g, .kernel = m->kernels->gemm[type], .panels = sd_matrix_panels(g->w->n)};
    int64_t per_panel = (int64_t)g->rows * g->w->k * SD_PANEL;
    if (sd_pool_size(m->pool) == 1 || per_panel * job.panels <= SERIAL_WORK) {
        job.kernel(g, 0, job.panels);
        return;
    }
    /* at least TASK_WORK each, and about eight tasks a worker, so that the last ones even out */
    int64_t most = per_panel * job.panels / TASK_WORK + 1, wanted = 8 * (int64_t)sd_pool_size(m->pool);
    int64_t tasks = most < wanted ? most : wanted;
    tasks = tasks < job.panels ? tasks : job.panels;
    job.panels_per_task = (int)((job.panels + tasks - 1) / tasks);
    sd_pool_run(m->pool, (job.panels + job.panels_per_task - 1) / job.panels_per_task, gemm_task, &job);
}

static void linear(const sd_model *m, const sd_scratch *w, const sd_linear *l, const float *x, float *y,
                   const float *residual, int rows, sd_activation act)
{
    run_gemm(m, w, &(sd_gemm){.w = &l->w, .x = x, .x_stride = (size_t)l->w.k, .y = y, .y_stride = (size_t)l->w.n,
                              .rows = rows, .bias = l->bias, .residual = residual, .act = act});
}

static void norm_row(const sd_rows_job *job, int row, int worker)
{
    (void)worker;
    size_t at = (size_t)row * (size_t)job->width;
    job->model->kernels->layernorm(job->dst + at, job->src + at, job->norm->gain, job->norm->bias, job->width,
                                   job->model->config.norm_eps);
}

static void layernorm(const sd_model *m, const sd_norm *norm, float *dst, const float *src, int rows)
{
    run_rows(&(sd_rows_job){.model = m, .norm = norm, .dst = dst, .src = src, .rows = rows, .width = m->config.hidden,
                            .row = norm_row});
}

static void activate_row(const sd_rows_job *job, int row, int worker)
{
    (void)worker;
    const sd_kernels *k = job->model->kernels;
    float *x = job->dst + (size_t)row * (size_t)job->width;
    (job->model->config.activation == SD_MLP_GELU ? k->gelu : k->gelu_tanh)(x, (size_t)job->width);
}

static void embed_row(const sd_rows_job *job, int row, int worker)
{
    (void)worker;
    sd_matrix_unpack_row(&job->model->embed, job->scratch->token_id[row], job->dst + (size_t)row * (size_t)job->width);
}

static void add_position_row(const sd_rows_job *job, int row, int worker)
{
    (void)worker;
    const sd_config *c = &job->model->config;
    float *x = job->dst + (size_t)row * (size_t)job->width;
    const float *p = job->model->positions +
                     (size_t)(job->scratch->token_pos[row] + c->position_offset) * (size_t)c->hidden;
    for (int i = 0; i < job->width; i++) {
        x[i] += p[i];
    }
}

static void embed(const sd_model *m, const sd_scratch *w, int tokens)
{
    bool projected = m->project_in.w.data != NULL;
    sd_rows_job job = {.model = m, .scratch = w, .dst = projected ? w->embed : w->x, .rows = tokens,
                       .width = m->config.embed, .row = embed_row};
    run_rows(&job);
    if (projected) {
        linear(m, w, &m->project_in, w->embed, w->x, NULL, tokens, SD_ACT_NONE);
    }
    job = (sd_rows_job){.model = m, .scratch = w, .dst = w->x, .rows = tokens, .width = m->config.hidden,
                        .row = add_position_row};
    run_rows(&job);
}

/* ---- attention: one task is one head of one piece, which stores its K/V and then attends token by token ---- */

typedef struct sd_attention_job {
    const sd_model *model;
    const sd_scratch *scratch;
    int layer;
} sd_attention_job;

static void attention_task(void *context, int task, int worker)
{
    const sd_attention_job *job = context;
    const sd_config *c = &job->model->config;
    const sd_scratch *w = job->scratch;
    const sd_piece *piece = &w->piece[task / c->n_heads];
    int head = task % c->n_heads;
    size_t hd = (size_t)c->head_dim, hidden = (size_t)c->hidden, column = (size_t)head * hd;
    void *keys = sd_kv_keys(&piece->row->kv, job->layer, head);
    void *values = sd_kv_values(&piece->row->kv, job->layer, head);
    float *scores = w->scores + (size_t)worker * (size_t)c->max_positions;
    const sd_kernels *k = job->model->kernels;
    const float scale = job->model->attention_scale;
    for (int i = 0; i < piece->n; i++) {
        const float *qkv = w->qkv + (size_t)(piece->first + i) * 3 * hidden + column;
        float *out = w->attn + (size_t)(piece->first + i) * hidden + column;
        const int n = piece->start + i + 1;
        const size_t at = (size_t)(n - 1) * hd;
        if (job->model->kv == SD_KV_F16) {
            k->to_f16((uint16_t *)keys + at, qkv + hidden, hd);
            k->to_f16((uint16_t *)values + at, qkv + 2 * hidden, hd);
            k->attention_f16(out, qkv, keys, values, scores, n, c->head_dim, scale);
        } else {
            memcpy((float *)keys + at, qkv + hidden, hd * sizeof(float));
            memcpy((float *)values + at, qkv + 2 * hidden, hd * sizeof(float));
            k->attention(out, qkv, keys, values, scores, n, c->head_dim, scale);
        }
    }
}

static void attention(const sd_model *m, const sd_scratch *w, int layer, int pieces, int tokens)
{
    sd_attention_job job = {.model = m, .scratch = w, .layer = layer};
    int tasks = pieces * m->config.n_heads;
    int64_t work = 0;
    for (int p = 0; p < pieces; p++) {
        work += (int64_t)w->piece[p].n * (w->piece[p].start + w->piece[p].n);
    }
    if (work * m->config.hidden * 2 <= SERIAL_WORK || tokens == 0) {
        for (int t = 0; t < tasks; t++) {
            attention_task(&job, t, 0);
        }
    } else {
        sd_pool_run(m->pool, tasks, attention_task, &job);
    }
    for (int p = 0; p < pieces; p++) {
        w->piece[p].row->kv.layers[layer].len += w->piece[p].n;
    }
}

/* ---- one decoder layer over the first `pieces` pieces, `tokens` tokens ---- */

static void feed_forward(const sd_model *m, const sd_layer *layer, const sd_scratch *w, const float *in, int tokens)
{
    bool relu = m->config.activation == SD_MLP_RELU;
    linear(m, w, &layer->fc1, in, w->ffn, NULL, tokens, relu ? SD_ACT_RELU : SD_ACT_NONE);
    if (!relu) {
        run_rows(&(sd_rows_job){.model = m, .dst = w->ffn, .rows = tokens, .width = m->config.ffn,
                                .row = activate_row});
    }
    linear(m, w, &layer->fc2, w->ffn, w->x, w->x, tokens, SD_ACT_NONE);
}

static void run_layer(const sd_model *m, const sd_scratch *w, int l, int pieces, int tokens)
{
    const sd_layer *layer = &m->layers[l];
    const float *in = w->x;
    if (m->config.pre_norm) {
        layernorm(m, &layer->attn_norm, w->norm, w->x, tokens);
        in = w->norm;
    }
    linear(m, w, &layer->qkv, in, w->qkv, NULL, tokens, SD_ACT_NONE);
    attention(m, w, l, pieces, tokens);
    linear(m, w, &layer->out, w->attn, w->x, w->x, tokens, SD_ACT_NONE);
    if (m->config.pre_norm) {
        layernorm(m, &layer->ffn_norm, w->norm, w->x, tokens);
        feed_forward(m, layer, w, w->norm, tokens);
    } else {
        layernorm(m, &layer->attn_norm, w->x, w->x, tokens);
        feed_forward(m, layer, w, w->x, tokens);
        layernorm(m, &layer->ffn_norm, w->x, w->x, tokens);
    }
}

/* ---- the head, for the tokens whose logits were asked for ---- */

static void head(const sd_model *m, const sd_scratch *w, int n_pieces, int outputs)
{
    size_t hidden = (size_t)m->config.hidden;
    for (int p = 0; p < n_pieces; p++) {
        const sd_piece *piece = &w->piece[p];
        int output = w->output_of[piece->feed];
        if (output >= 0) {
            memcpy(w->last + (size_t)output * hidden, w->x + (size_t)(piece->first + piece->n - 1) * hidden,
                   hidden * sizeof(float));
        }
    }
    if (m->config.final_norm) {
        layernorm(m, &m->final_norm, w->last, w->last, outputs);
    }
    const float *in = w->last;
    if (m->project_out.w.data) {
        linear(m, w, &m->project_out, w->last, w->narrow, NULL, outputs, SD_ACT_NONE);
        in = w->narrow;
    }
    run_gemm(m, w, &(sd_gemm){.w = &m->head, .x = in, .x_stride = (size_t)m->config.embed, .y = w->logits,
                              .y_stride = (size_t)m->config.vocab, .rows = outputs});
}

void sd_forward(sd_session *s, int n_pieces, int tokens, int outputs)
{
    const sd_model *m = s->model;
    const sd_scratch *w = &s->scratch;
    const int *rank = s->ranking ? sd_schedule_ranks(s->ranking) : NULL;
    embed(m, w, tokens);
    for (int l = 0; l < m->config.n_layers; l++) {
        int pieces = n_pieces, active = tokens;
        while (rank && pieces > 0 && w->piece[pieces - 1].budget <= rank[l]) {
            active -= w->piece[--pieces].n;
        }
        if (pieces > 0) {
            run_layer(m, w, l, pieces, active);
        }
    }
    if (outputs > 0) {
        head(m, w, n_pieces, outputs);
    }
}
