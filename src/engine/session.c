/* SPDX-License-Identifier: MIT */
#include "src/engine/session.h"

#include <string.h>

#include "src/base/alloc.h"

int sd_session_create(sd_session **out, const sd_model *model, int max_rows, sd_error *err)
{
    *out = NULL;
    if (max_rows < 1 || max_rows > 1 << 16) {
        return sd_fail(err, SD_ERR_ARG, "session of %d rows; expected 1 .. %d", max_rows, 1 << 16);
    }
    sd_session *s = sd_calloc(1, sizeof *s);
    sd_row *rows = sd_calloc((size_t)max_rows, sizeof *rows);
    if (!s || !rows) {
        sd_free(s);
        sd_free(rows);
        return sd_fail_memory(err, sizeof *s + (size_t)max_rows * sizeof *rows, "a session");
    }
    *s = (sd_session){.model = model, .max_rows = max_rows, .rows = rows};
    *out = s;
    return SD_OK;
}

void sd_session_free(sd_session *s)
{
    if (s) {
        for (int r = 0; r < s->max_rows; r++) {
            sd_kv_clear(&s->rows[r].kv);
        }
        sd_free(s->rows);
        sd_scratch_clear(&s->scratch);
        sd_free(s);
    }
}

sd_kv_shape sd_model_kv_shape(const sd_model *m)
{
    const sd_config *c = &m->config;
    return (sd_kv_shape){.n_layers = c->n_layers, .n_heads = c->n_heads, .head_dim = c->head_dim, .type = m->kv};
}

static int check_row(const sd_session *s, int n_prompt, int max_tokens, const sd_schedule *schedule, sd_error *err)
{
    const sd_config *c = &s->model->config;
    if (n_prompt < 1) {
        return sd_fail(err, SD_ERR_ARG, "the prompt is empty; expected at least one token");
    }
    if (max_tokens < 1) {
        return sd_fail(err, SD_ERR_ARG, "max_tokens is %d; expected at least 1", max_tokens);
    }
    /* the last token generated is not fed, so it needs no position */
    if (n_prompt > c->max_positions || max_tokens - 1 > c->max_positions - n_prompt) {
        return sd_fail(err, SD_ERR_LIMIT,
                       "%d prompt tokens and %d to generate do not fit the model's %d positions: at most %d can be "
                       "generated after this prompt",
                       n_prompt, max_tokens, c->max_positions,
                       n_prompt > c->max_positions ? 0 : c->max_positions - n_prompt + 1);
    }
    if (schedule && sd_schedule_n_layers(schedule) != c->n_layers) {
        return sd_fail(err, SD_ERR_ARG, "the schedule is for %d layers, the model has %d",
                       sd_schedule_n_layers(schedule), c->n_layers);
    }
    if (schedule && s->ranking && !sd_schedule_same_ranking(schedule, s->ranking)) {
        return sd_fail(err, SD_ERR_ARG,
                       "the schedule gives layers up in another order than the session's other rows; all rows of "
                       "a batch share one ranking, budgets may differ");
    }
    return SD_OK;
}

int sd_session_add(sd_session *s, int n_prompt, int max_tokens, const sd_schedule *schedule, int *row, sd_error *err)
{
    int rc = check_row(s, n_prompt, max_tokens, schedule, err);
    if (rc != SD_OK) {
        return rc;
    }
    int r = 0;
    while (r < s->max_rows && s->rows[r].open) {
        r++;
    }
    if (r == s->max_rows) {
        return sd_fail(err, SD_ERR_LIMIT, "all %d rows of the session are in use", s->max_rows);
    }
    const sd_kv_shape shape = sd_model_kv_shape(s->model);
    sd_row fresh = {.open = true, .n_prompt = n_prompt, .max_tokens = max_tokens, .schedule = schedule};
    rc = sd_kv_create(&fresh.kv, &shape, schedule, n_prompt, max_tokens, err);
    if (rc != SD_OK) {
        return rc;
    }
    s->rows[r] = fresh;
    s->kv_bytes += fresh.kv.bytes;
    if (schedule && !sd_schedule_is_full(schedule)) {
        s->ranking = schedule;
    }
    *row = r;
    return SD_OK;
}

void sd_session_rewind(sd_session *s, int row, const sd_schedule *schedule)
{
    sd_row *r = &s->rows[row];
    for (int l = 0; l < s->model->config.n_layers; l++) {
        r->kv.layers[l].len = r->kv.layers[l].cap < r->n_prompt ? r->kv.layers[l].cap : r->n_prompt;
    }
    r->pos = r->n_prompt;
    r->schedule = schedule;
    if (schedule && !sd_schedule_is_full(schedule)) {
        s->ranking = schedule;
    }
}

void sd_session_assume_prompt(sd_session *s, int row)
{
    memset(s->rows[row].kv.data, 0, s->rows[row].kv.bytes);
    sd_session_rewind(s, row, s->rows[row].schedule);
}

/* The shared ranking must outlive the row it came from: hand it over to another row, or to none. */
static void renew_ranking(sd_session *s)
{
    s->ranking = NULL;
    for (int r = 0; r < s->max_rows; r++) {
        const sd_row *row = &s->rows[r];
        if (row->open && row->schedule && !sd_schedule_is_full(row->schedule)) {
            s->ranking = row->schedule;
            return;
        }
    }
}

void sd_session_remove(sd_session *s, int row)
{
    if (row < 0 || row >= s->max_rows || !s->rows[row].open) {
        return;
    }
    const sd_schedule *schedule = s->rows[row].schedule;
    s->kv_bytes -= s->rows[row].kv.bytes;
    sd_kv_clear(&s->rows[row].kv);
    s->rows[row] = (sd_row){0};
    if (schedule && schedule == s->ranking) {
        renew_ranking(s);
    }
}

size_t sd_session_kv_bytes(const sd_session *s) { return s->kv_bytes; }

size_t sd_kv_planned_bytes(const sd_model *model, int n_prompt, int max_tokens, const sd_schedule *schedule)
{
    const sd_config *c = &model->config;
    if (n_prompt < 1 || max_tokens < 1 || n_prompt > c->max_positions || max_tokens - 1 > c->max_positions - n_prompt ||
        (schedule && sd_schedule_n_layers(schedule) != c->n_layers)) {
        return 0;
    }
    const sd_kv_shape shape = sd_model_kv_shape(model);
    return sd_kv_plan(&shape, schedule, n_prompt, max_tokens);
}

int64_t sd_session_layers_run(const sd_session *s, int row) { return s->rows[row].layers_run; }

/* ---- a pass: check everything, sort, run ---- */

static int check_feed(sd_session *s, const sd_feed *f, int index, sd_error *err)
{
    if (f->row < 0 || f->row >= s->max_rows || !s->rows[f->row].open) {
        return sd_fail(err, SD_ERR_ARG, "feed %d: row %d is not open", index, f->row);
    }
    sd_row *row = &s->rows[f->row];
    if (row->pass == s->pass) {
        return sd_fail(err, SD_ERR_ARG, "feed %d: row %d is in the pass already", index, f->row);
    }
    row->pass = s->pass;
    if (f->n < 1) {
        return sd_fail(err, SD_ERR_ARG, "feed %d: %d tokens; expected at least 1", index, f->n);
    }
    if (row->pos < row->n_prompt ? f->n > row->n_prompt - row->pos : f->n != 1) {
        return sd_fail(err, SD_ERR_STATE,
                       "feed %d: %d tokens at position %d of row %d, whose prompt has %d: expected tokens of the "
                       "prompt, or one generated token",
                       index, f->n, row->pos, f->row, row->n_prompt);
    }
    if (row->pos >= row->n_prompt + row->max_tokens - 1) {
        return sd_fail(err, SD_ERR_LIMIT, "feed %d: row %d was opened for %d generated tokens and has them", index,
                       f->row, row->max_tokens);
    }
    for (int i = 0; i < f->n; i++) {
        if (f->ids[i] < 0 || f->ids[i] >= s->model->config.vocab) {
            return sd_fail(err, SD_ERR_ARG, "token id %d at position %d: expected 0 .. %d", f->ids[i], row->pos + i,
                           s->model->config.vocab - 1);
        }
    }
    return SD_OK;
}

static int feed_budget(const sd_session *s, const sd_row *row)
{
    if (!row->schedule) {
        return s->model->config.n_layers;
    }
    return row->pos < row->n_prompt ? sd_schedule_prompt_budget(row->schedule)
                                    : sd_schedule_budget(row->schedule, row->pos - row->n_prompt);
}

/* Counting sort of the feeds by budget, largest first, stable; places their tokens one after the other. */
static void sort_pieces(sd_session *s, const sd_feed *feeds, int n_feeds)
{
    sd_scratch *w = &s->scratch;
    int levels = s->model->config.n_layers + 1;
    for (int k = 0; k <= levels; k++) {
        w->bucket[k] = 0;
    }
    /* count budget k in bucket[levels - k]; sums then give the first place of each */
    for (int i = 0; i < n_feeds; i++) {
        w->bucket[levels - feed_budget(s, &s->rows[feeds[i].row])]++;
    }
    for (int b = 0, at = 0; b <= levels; b++) {
        int count = w->bucket[b];
        w->bucket[b] = at;
        at += count;
    }
    for (int i = 0; i < n_feeds; i++) {
        sd_row *row = &s->rows[feeds[i].row];
        int budget = feed_budget(s, row);
        w->piece[w->bucket[levels - budget]++] =
            (sd_piece){.row = row, .feed = i, .budget = budget, .n = feeds[i].n, .start = row->pos};
    }
    int at = 0;
    for (int p = 0; p < n_feeds; p++) {
        sd_piece *piece = &w->piece[p];
        piece->first = at;
        for (int i = 0; i < piece->n; i++, at++) {
            w->token_id[at] = feeds[piece->feed].ids[i];
            w->token_pos[at] = piece->start + i;
        }
    }
}

/* The invariant, asked of the caches themselves: a layer that is about to run must hold every earlier position. */
static int check_holes(const sd_session *s, int n_pieces, sd_error *err)
{
    const int *rank = s->ranking ? sd_schedule_ranks(s->ranking) : NULL;
    for (int p = 0; p < n_pieces; p++) {
        const sd_piece *piece = &s->scratch.piece[p];
        for (int l = 0; l < s->model->config.n_layers; l++) {
            const sd_kv_layer *kv = &piece->row->kv.layers[l];
            bool runs = !rank || rank[l] < piece->budget;
            if (runs && (kv->len != piece->start || kv->cap - kv->len < piece->n)) {
                return sd_fail(err, SD_ERR_STATE,
                               "internal error: layer %d runs at position %d with %d of %d positions in its cache", l,
                               piece->start, kv->len, kv->cap);
            }
        }
    }
    return SD_OK;
}

static void advance(sd_session *s, int n_pieces)
{
    for (int p = 0; p < n_pieces; p++) {
        const sd_piece *piece = &s->scratch.piece[p];
        if (piece->start >= piece->row->n_prompt) {
            piece->row->layers_run += piece->budget;
        }
        piece->row->pos += piece->n;
    }
}

int sd_session_forward(sd_session *s, const sd_feed *feeds, int n_feeds, sd_error *err)
{
    s->n_feeds = 0;
    if (n_feeds < 1 || n_feeds > s->max_rows) {
        return sd_fail(err, SD_ERR_ARG, "a pass of %d feeds; expected 1 .. %d, one per row", n_feeds, s->max_rows);
    }
    s->pass++;
    int64_t tokens = 0;
    int outputs = 0;
    for (int i = 0; i < n_feeds; i++) {
        int rc = check_feed(s, &feeds[i], i, err);
        if (rc != SD_OK) {
            return rc;
        }
        const sd_row *row = &s->rows[feeds[i].row];
        tokens += feeds[i].n;
        outputs += row->pos + feeds[i].n >= row->n_prompt;
    }
    if (tokens > 1 << 24) {
        return sd_fail(err, SD_ERR_LIMIT, "a pass of %lld tokens; expected at most %d", (long long)tokens, 1 << 24);
    }
    int rc = sd_scratch_reserve(&s->scratch, s->model, (int)tokens, outputs, n_feeds, err);
    if (rc != SD_OK) {
        return rc;
    }
    sd_alloc_guard_begin("a forward pass works in the session's scratch memory");
    sort_pieces(s, feeds, n_feeds);
    rc = check_holes(s, n_feeds, err);
    if (rc == SD_OK) {
        int next = 0;
        for (int i = 0; i < n_feeds; i++) {
            const sd_row *row = &s->rows[feeds[i].row];
            s->scratch.output_of[i] = row->pos + feeds[i].n >= row->n_prompt ? next++ : -1;
        }
        sd_forward(s, n_feeds, (int)tokens, outputs);
        advance(s, n_feeds);
        s->n_feeds = n_feeds;
    }
    sd_alloc_guard_end();
    return rc;
}

const float *sd_session_logits(const sd_session *s, int feed)
{
    if (feed < 0 || feed >= s->n_feeds || s->scratch.output_of[feed] < 0) {
        return NULL;
    }
    return s->scratch.logits + (size_t)s->scratch.output_of[feed] * (size_t)s->model->config.vocab;
}
