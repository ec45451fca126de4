/* SPDX-License-Identifier: MIT
 *
 * The memory of a pass, and the order of its tokens: by budget, the largest first, so that those which run a layer are
 * a prefix and every operation of the layer is one over rows 0 .. n-1. */
#include <assert.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/schedule/schedule.h"
#include "src/train/net_internal.h"

enum { ALIGN = 64, LOGITS = 1 << 21, LEAST_LOGIT_ROWS = 16 };

/* ---- memory: the same walk counts bytes and hands them out ---- */

typedef struct sd_carver {
    char *base; /* NULL: counts only */
    size_t used;
    bool overflow;
} sd_carver;

static void *carve(sd_carver *c, size_t count, size_t width, size_t size)
{
    size_t bytes = 0;
    if (!sd_mul_size(count, width, &bytes) || !sd_mul_size(bytes, size, &bytes) || bytes > SIZE_MAX / 2 ||
        c->used > SIZE_MAX / 2) {
        c->overflow = true;
        return NULL;
    }
    void *at = c->base ? c->base + c->used : NULL;
    c->used += (bytes + ALIGN - 1) / ALIGN * ALIGN;
    return at;
}

static void carve_layer(sd_carver *c, sd_layer_kept *k, const sd_config *config, size_t tokens)
{
    const size_t hidden = (size_t)config->hidden, f32 = sizeof(float);
    *k = (sd_layer_kept){0};
    k->x = carve(c, tokens, hidden, f32);
    k->qkv = carve(c, tokens, 3 * hidden, f32);
    k->attn = carve(c, tokens, hidden, f32);
    k->sums = carve(c, tokens, (size_t)config->n_heads, f32);
    k->mid = carve(c, tokens, hidden, f32);
    k->ffn = carve(c, tokens, (size_t)config->ffn, f32);
    k->out = config->pre_norm ? NULL : carve(c, tokens, hidden, f32);
    k->stats1 = carve(c, tokens, 2, f32);
    k->stats2 = carve(c, tokens, 2, f32);
}

static void carve_tokens(sd_carver *c, sd_pass *p, size_t tokens)
{
    p->id = carve(c, tokens, 1, sizeof *p->id);
    p->position = carve(c, tokens, 1, sizeof *p->position);
    p->row = carve(c, tokens, 1, sizeof *p->row);
    p->budget = carve(c, tokens, 1, sizeof *p->budget);
    p->key = carve(c, tokens, 1, sizeof *p->key);
    p->place = carve(c, tokens, 1, sizeof *p->place);
    p->rows = carve(c, tokens, 1, sizeof *p->rows);
    p->row_length = carve(c, tokens, 1, sizeof *p->row_length);
    p->output = carve(c, tokens, 1, sizeof *p->output);
    p->target = carve(c, tokens, 1, sizeof *p->target);
}

static void carve_head(sd_carver *c, sd_pass *p, const sd_config *config, size_t tokens, bool gradients)
{
    const size_t hidden = (size_t)config->hidden, embed = (size_t)config->embed, f32 = sizeof(float);
    const size_t vocab = (size_t)config->vocab;
    size_t rows = LOGITS / vocab > LEAST_LOGIT_ROWS ? LOGITS / vocab : LEAST_LOGIT_ROWS;
    rows = rows < tokens ? rows : tokens;
    p->logit_rows = (int)rows;
    p->last = carve(c, tokens, hidden, f32);
    p->last_stats = carve(c, tokens, 2, f32);
    p->last_normed = config->final_norm ? carve(c, tokens, hidden, f32) : p->last;
    p->last_narrow = embed != hidden ? carve(c, tokens, embed, f32) : p->last_normed;
    p->logits = carve(c, rows, vocab, f32);
    p->nll = carve(c, rows, 1, sizeof *p->nll);
    p->dlast = gradients ? carve(c, tokens, embed, f32) : NULL;
}

static void carve_all(sd_carver *c, sd_pass *p, const sd_config *config, size_t tokens, bool gradients, int threads)
{
    const size_t hidden = (size_t)config->hidden, ffn = (size_t)config->ffn, f32 = sizeof(float);
    const size_t wide = ffn > 3 * hidden ? ffn : 3 * hidden;
    carve_tokens(c, p, tokens);
    p->n_kept = gradients ? config->n_layers : 1;
    p->kept = carve(c, (size_t)p->n_kept, 1, sizeof *p->kept);
    for (int l = 0; l < p->n_kept; l++) {
        sd_layer_kept counted;
        carve_layer(c, p->kept ? &p->kept[l] : &counted, config, tokens);
    }
    p->x = carve(c, tokens, hidden, f32);
    p->normed = carve(c, tokens, hidden, f32);
    p->wide = carve(c, tokens, wide, f32);
    const bool projected = config->embed != config->hidden; /* not by the pointers: there are none when it counts */
    p->narrow = projected ? carve(c, tokens, (size_t)config->embed, f32) : NULL;
    carve_head(c, p, config, tokens, gradients);
    if (gradients) {
        p->dx = carve(c, tokens, hidden, f32);
        p->dh = carve(c, tokens, hidden, f32);
        p->dnarrow = projected ? carve(c, tokens, (size_t)config->embed, f32) : NULL;
    }
    const size_t longest = tokens < (size_t)config->max_positions ? tokens : (size_t)config->max_positions;
    p->attention_stride = sd_math_attention_scratch((int)longest, config->head_dim);
    p->attention_scratch = carve(c, (size_t)threads, p->attention_stride, f32);
}

size_t sd_pass_bytes(const sd_config *config, int max_tokens, bool gradients, int threads)
{
    sd_pass pass = {0};
    sd_carver carver = {0};
    carve_all(&carver, &pass, config, (size_t)max_tokens, gradients, threads);
    return carver.overflow ? SIZE_MAX : carver.used;
}

int sd_pass_create(sd_pass *p, const sd_params *params, int max_tokens, bool gradients, int threads, sd_error *err)
{
    *p = (sd_pass){.params = params, .max_tokens = max_tokens};
    p->bytes = sd_pass_bytes(&params->config, max_tokens, gradients, threads);
    p->block = p->bytes == SIZE_MAX ? NULL : sd_malloc_aligned(p->bytes, 1);
    if (!p->block) {
        return sd_fail_memory(err, p->bytes, "the states of a micro-batch (fewer tokens in it need less)");
    }
    sd_carver carver = {.base = p->block};
    carve_all(&carver, p, &params->config, (size_t)max_tokens, gradients, threads);
    assert(carver.used == p->bytes);
    return SD_OK;
}

void sd_pass_clear(sd_pass *p)
{
    sd_free_aligned(p->block);
    *p = (sd_pass){0};
}

/* ---- tokens ---- */

static int check_ids(const sd_config *c, const char *what, int row, const int32_t *ids, int n, sd_error *err)
{
    for (int i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= c->vocab) {
            return sd_fail(err, SD_ERR_ARG, "row %d: token %d of the %s is %d; the model has tokens 0 to %d", row, i,
                           what, ids[i], c->vocab - 1);
        }
    }
    return SD_OK;
}

static int check_rows(const sd_pass *p, const sd_net_row *rows, int n_rows, sd_error *err)
{
    const sd_config *c = &p->params->config;
    const sd_schedule *first = NULL;
    int64_t tokens = 0;
    for (int r = 0; r < n_rows; r++) {
        const sd_net_row *row = &rows[r];
        if (row->n_prompt < 1 || row->n_response < 1) {
            return sd_fail(err, SD_ERR_ARG, "row %d has %d prompt and %d response tokens; at least one of each is "
                           "needed", r, row->n_prompt, row->n_response);
        }
        const int64_t fed = (int64_t)row->n_prompt + row->n_response - 1;
        if (fed > c->max_positions) {
            return sd_fail(err, SD_ERR_ARG, "row %d needs %lld positions; the model has %d", r, (long long)fed,
                           c->max_positions);
        }
        tokens += fed;
        int rc = check_ids(c, "prompt", r, row->prompt, row->n_prompt, err);
        rc = rc == SD_OK ? check_ids(c, "response", r, row->response, row->n_response, err) : rc;
        if (rc != SD_OK) {
            return rc;
        }
        if (row->schedule && sd_schedule_n_layers(row->schedule) != c->n_layers) {
            return sd_fail(err, SD_ERR_ARG, "row %d has a schedule for %d layers; the model has %d", r,
                           sd_schedule_n_layers(row->schedule), c->n_layers);
        }
        if (!row->schedule || sd_schedule_is_full(row->schedule)) {
            continue;
        }
        first = first ? first : row->schedule;
        if (!sd_schedule_same_ranking(first, row->schedule)) {
            return sd_fail(err, SD_ERR_ARG, "row %d gives layers up in another order than the rows before it", r);
        }
    }
    if (tokens > p->max_tokens) {
        return sd_fail(err, SD_ERR_ARG, "%lld tokens in one micro-batch; there is room for %d", (long long)tokens,
                       p->max_tokens);
    }
    return SD_OK;
}

static int token_budget(const sd_net_row *row, int position, int n_layers, bool full)
{
    if (full || !row->schedule) {
        return n_layers;
    }
    return position < row->n_prompt ? sd_schedule_prompt_budget(row->schedule)
                                    : sd_schedule_budget(row->schedule, position - row->n_prompt);
}

/* The next place of every budget, by counting: more than one budget's tokens keep the order of rows and positions. */
static void order_tokens(sd_pass *p, const sd_net_row *rows, int n_rows, bool full)
{
    const int n_layers = p->params->config.n_layers;
    int place = 0;
    for (int budget = n_layers; budget >= 0; budget--) {
        int at = 0;
        for (int r = 0; r < n_rows; r++) {
            const int length = rows[r].n_prompt + rows[r].n_response - 1;
            for (int i = 0; i < length; i++, at++) {
                if (token_budget(&rows[r], i, n_layers, full) == budget) {
                    p->place[at] = place;
                    p->budget[place++] = budget;
                }
            }
        }
    }
    p->tokens = place;
}

int sd_pass_set(sd_pass *p, const sd_net_row *rows, int n_rows, bool full, sd_error *err)
{
    const int rc = check_rows(p, rows, n_rows, err);
    if (rc != SD_OK) {
        return rc;
    }
    order_tokens(p, rows, n_rows, full);
    p->n_rows = n_rows;
    p->outputs = 0;
    int at = 0;
    for (int r = 0; r < n_rows; r++) {
        const sd_net_row *row = &rows[r];
        const int length = row->n_prompt + row->n_response - 1;
        p->rows[r] = (sd_attention_row){.token = p->place + at};
        p->row_length[r] = length;
        for (int i = 0; i < length; i++, at++) {
            const int place = p->place[at];
            p->id[place] = i < row->n_prompt ? row->prompt[i] : row->response[i - row->n_prompt];
            p->position[place] = i;
            p->row[place] = r;
            p->key[place] = (uint32_t)r * 0x01000193u + (uint32_t)i;
            if (i >= row->n_prompt - 1) {
                p->output[p->outputs] = place;
                p->target[p->outputs++] = row->response[i - row->n_prompt + 1];
            }
        }
    }
    return SD_OK;
}
