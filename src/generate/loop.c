/* SPDX-License-Identifier: MIT */
#include "src/generate/loop.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "src/base/error.h"
#include "src/engine/session.h"
#include "src/generate/sampler.h"
#include "src/generate/text.h"
#include "src/schedule/schedule.h"
#include "src/tokenizer/tokenizer.h"

enum { MAX_STOPS = 16, MAX_STOP_BYTES = 1024 };

typedef struct sd_live {
    bool used;
    int number, row, fed; /* fed: prompt tokens already in the cache */
    const sd_request *request;
    sd_result *result;
    sd_schedule *schedule;
    sd_sampler sampler;
    sd_text text;
} sd_live;

struct sd_loop {
    const sd_model *model;
    const sd_tokenizer *tok;
    sd_loop_options options;
    sd_session *session;
    sd_live *live;         /* [max_rows] */
    sd_feed *feeds;        /* [max_rows] */
    int *feed_of;          /* [max_rows] index into live of feed i */
    sd_candidate *scratch; /* [vocab] */
    int vocab, valid, eos, active;
};

int sd_loop_create(sd_loop **out, const sd_model *model, const sd_tokenizer *tok, const sd_loop_options *options,
                   sd_error *err)
{
    *out = NULL;
    if (options->prefill_tokens < 1) {
        return sd_fail(err, SD_ERR_ARG, "prefill_tokens is %d; expected at least 1", options->prefill_tokens);
    }
    sd_loop *loop = sd_calloc(1, sizeof *loop);
    if (!loop) {
        return sd_fail_memory(err, sizeof *loop, "the token loop");
    }
    sd_model_info info;
    sd_model_get_info(model, &info);
    const int known = tok ? sd_tokenizer_size(tok) : info.vocab_size;
    *loop = (sd_loop){.model = model, .tok = tok, .options = *options, .vocab = info.vocab_size, .eos = info.eos_id,
                      .valid = known < info.vocab_size ? known : info.vocab_size};
    int rc = sd_session_create(&loop->session, model, options->max_rows, err);
    if (rc != SD_OK) {
        sd_loop_free(loop);
        return rc;
    }
    size_t rows = (size_t)options->max_rows;
    loop->live = sd_calloc(rows, sizeof *loop->live);
    loop->feeds = sd_calloc(rows, sizeof *loop->feeds);
    loop->feed_of = sd_calloc(rows, sizeof *loop->feed_of);
    loop->scratch = sd_malloc((size_t)loop->vocab, sizeof *loop->scratch);
    if (!loop->live || !loop->feeds || !loop->feed_of || !loop->scratch) {
        sd_loop_free(loop);
        return sd_fail_memory(err, rows * sizeof *loop->live, "the token loop");
    }
    *out = loop;
    return SD_OK;
}

static void release(sd_loop *loop, sd_live *live)
{
    sd_session_remove(loop->session, live->row);
    sd_schedule_free(live->schedule);
    sd_sampler_clear(&live->sampler);
    sd_text_clear(&live->text);
    *live = (sd_live){0};
    loop->active--;
}

void sd_loop_free(sd_loop *loop)
{
    if (!loop) {
        return;
    }
    for (int i = 0; loop->live && i < loop->options.max_rows; i++) {
        if (loop->live[i].used) {
            release(loop, &loop->live[i]);
        }
    }
    sd_session_free(loop->session);
    sd_free(loop->live);
    sd_free(loop->feeds);
    sd_free(loop->feed_of);
    sd_free(loop->scratch);
    sd_free(loop);
}

/* ---- requests ---- */

static int check_stops(const sd_request *r, const sd_tokenizer *tok, sd_error *err)
{
    if (r->n_stop < 0 || r->n_stop > MAX_STOPS) {
        return sd_fail(err, SD_ERR_ARG, "%d stop strings; expected at most %d", r->n_stop, MAX_STOPS);
    }
    if (r->n_stop > 0 && !tok) {
        return sd_fail(err, SD_ERR_ARG, "stop strings need a tokenizer");
    }
    for (int i = 0; i < r->n_stop; i++) {
        size_t n = strlen(r->stop[i]);
        if (n == 0 || n > MAX_STOP_BYTES || !sd_utf8_valid(r->stop[i], n)) {
            return sd_fail(err, SD_ERR_ARG, "stop string %d: %s; expected 1 .. %d bytes of UTF-8", i + 1,
                           n == 0 ? "empty" : n > MAX_STOP_BYTES ? "too long" : "not valid UTF-8", MAX_STOP_BYTES);
        }
    }
    return SD_OK;
}

static int check_ids(const int32_t *ids, int n, int vocab, const char *what, sd_error *err)
{
    for (int i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= vocab) {
            return sd_fail(err, SD_ERR_ARG, "%s: token id %d at place %d; expected 0 .. %d", what, ids[i], i,
                           vocab - 1);
        }
    }
    return SD_OK;
}

int sd_request_check(const sd_model *model, const sd_tokenizer *tok, const sd_request *r, sd_error *err)
{
    sd_model_info info;
    sd_model_get_info(model, &info);
    if (r->n_prompt < 1) {
        return sd_fail(err, SD_ERR_ARG, "the prompt is empty; expected at least one token");
    }
    if (r->max_tokens < 1) {
        return sd_fail(err, SD_ERR_ARG, "max_tokens is %d; expected at least 1", r->max_tokens);
    }
    if (r->n_prompt > info.max_positions || r->max_tokens - 1 > info.max_positions - r->n_prompt) {
        return sd_fail(err, SD_ERR_LIMIT, "%d prompt tokens and max_tokens %d do not fit the model's %d positions: %s",
                       r->n_prompt, r->max_tokens, info.max_positions,
                       r->n_prompt > info.max_positions ? "shorten the prompt"
                                                        : "shorten the prompt or lower max_tokens");
    }
    int rc = check_ids(r->prompt, r->n_prompt, info.vocab_size, "prompt", err);
    if (rc == SD_OK && r->forced && (r->n_forced < 1 || r->n_forced > r->max_tokens)) {
        rc = sd_fail(err, SD_ERR_ARG, "%d forced tokens; expected 1 .. max_tokens, %d", r->n_forced, r->max_tokens);
    }
    if (rc == SD_OK && r->forced) {
        rc = check_ids(r->forced, r->n_forced, info.vocab_size, "forced tokens", err);
    }
    if (rc == SD_OK) {
        rc = sd_sampling_check(&r->sampling, err);
    }
    return rc == SD_OK ? check_stops(r, tok, err) : rc;
}

static int open_row(sd_loop *loop, sd_live *live, const sd_schedule_options *schedule, sd_error *err)
{
    const sd_request *r = live->request;
    sd_model_info info;
    sd_model_get_info(loop->model, &info);
    int rc = sd_request_check(loop->model, loop->tok, r, err);
    if (rc == SD_OK) {
        rc = sd_schedule_create(&live->schedule, info.n_layers, r->max_tokens, schedule, err);
    }
    if (rc == SD_OK) {
        rc = sd_sampler_init(&live->sampler, &r->sampling, loop->vocab, loop->valid, err);
    }
    if (rc == SD_OK) {
        live->result->ids = sd_malloc((size_t)r->max_tokens, sizeof *live->result->ids);
        live->result->logprobs = r->logprobs ? sd_malloc((size_t)r->max_tokens, sizeof *live->result->logprobs) : NULL;
        if (!live->result->ids || (r->logprobs && !live->result->logprobs)) {
            rc = sd_fail_memory(err, (size_t)r->max_tokens * sizeof *live->result->ids, "a result");
        }
    }
    return rc == SD_OK ? sd_session_add(loop->session, r->n_prompt, r->max_tokens, live->schedule, &live->row, err)
                       : rc;
}

int sd_loop_add(sd_loop *loop, int number, const sd_request *request, const sd_schedule_options *schedule,
                sd_result *result, sd_error *err)
{
    if (sd_loop_room(loop) == 0) {
        return sd_fail(err, SD_ERR_LIMIT, "all %d rows of the loop are in use", loop->options.max_rows);
    }
    sd_live *live = loop->live;
    while (live->used) {
        live++;
    }
    *result = (sd_result){0};
    *live = (sd_live){.used = true, .number = number, .row = -1, .request = request, .result = result};
    live->text = (sd_text){.stop = request->stop, .n_stop = request->n_stop};
    loop->active++;
    int rc = open_row(loop, live, schedule, err);
    if (rc != SD_OK) {
        release(loop, live);
        sd_result_clear(result);
        return rc;
    }
    for (int i = 0; i < request->n_prompt; i++) {
        sd_sampler_note(&live->sampler, request->prompt[i]);
    }
    return SD_OK;
}

int sd_loop_active(const sd_loop *loop) { return loop->active; }
int sd_loop_room(const sd_loop *loop) { return loop->options.max_rows - loop->active; }

/* ---- one step ---- */

/* Pieces of the prompts that are not read yet, up to the pass's share of tokens; returns their number. */
static int feed_prompts(sd_loop *loop, int64_t *tokens)
{
    int n = 0, left = loop->options.prefill_tokens;
    for (int i = 0; i < loop->options.max_rows && left > 0; i++) {
        sd_live *live = &loop->live[i];
        if (live->used && live->fed < live->request->n_prompt) {
            int rest = live->request->n_prompt - live->fed, take = rest < left ? rest : left;
            loop->feeds[n] = (sd_feed){.row = live->row, .ids = live->request->prompt + live->fed, .n = take};
            loop->feed_of[n++] = i;
            live->fed += take;
            left -= take;
            *tokens += take;
        }
    }
    return n;
}

static int feed_steps(sd_loop *loop)
{
    int n = 0;
    for (int i = 0; i < loop->options.max_rows; i++) {
        sd_live *live = &loop->live[i];
        if (live->used) {
            loop->feeds[n] = (sd_feed){.row = live->row, .ids = &live->result->ids[live->result->n_ids - 1], .n = 1};
            loop->feed_of[n++] = i;
        }
    }
    return n;
}

static bool ends_row(const sd_loop *loop, const sd_request *r, int32_t id)
{
    bool end = !r->ignore_eos && id == loop->eos && !r->forced;
    for (int i = 0; i < r->n_stop_ids && !r->forced; i++) {
        end = end || id == r->stop_ids[i];
    }
    return end;
}

/* Takes the row's next token from its logits; sets *finish when the row ends with it. */
static int take_token(sd_loop *loop, sd_live *live, const float *logits, sd_finish *finish, sd_error *err)
{
    const sd_request *r = live->request;
    sd_result *res = live->result;
    int32_t id;
    if (r->forced) {
        id = r->forced[res->n_ids];
    } else {
        int rc = sd_sampler_next(&live->sampler, logits, loop->scratch, &id, err);
        if (rc != SD_OK) {
            return rc;
        }
    }
    if (r->logprobs) {
        res->logprobs[res->n_ids] = sd_logprob(logits, loop->vocab, id);
    }
    sd_sampler_note(&live->sampler, id);
    res->ids[res->n_ids++] = id;
    *finish = SD_FINISH_NONE;
    bool end = ends_row(loop, r, id);
    if (loop->tok && !end) {
        size_t len;
        const char *piece = sd_tokenizer_piece(loop->tok, id, &len);
        end = sd_text_add(&live->text, piece, len);
    }
    if (end) {
        *finish = SD_FINISH_STOP;
    } else if (res->n_ids == (r->forced ? r->n_forced : r->max_tokens)) {
        *finish = SD_FINISH_LENGTH;
    }
    if (*finish != SD_FINISH_NONE && sd_text_finish(&live->text)) {
        *finish = SD_FINISH_STOP;
    }
    return live->text.out.failed ? sd_fail_memory(err, live->text.out.cap, "a row's text") : SD_OK;
}

/* Hands on what is new and, if the row has ended, fills its result and lets it go. */
static int deliver(sd_loop *loop, sd_live *live, sd_finish finish, sd_timing *timing, sd_error *err)
{
    size_t len;
    const char *piece = sd_text_take(&live->text, &len);
    int number = live->number;
    bool go_on = true;
    if (finish == SD_FINISH_NONE) {
        go_on = !loop->options.on_token || loop->options.on_token(loop->options.user, number, piece, len, finish);
    } else {
        sd_result *res = live->result;
        res->finish = finish;
        res->text = sd_strndup(live->text.out.data ? live->text.out.data : "", live->text.out.len);
        res->text_len = live->text.out.len;
        if (!res->text) {
            return sd_fail_memory(err, live->text.out.len + 1, "a row's text");
        }
        res->layers_run = sd_session_layers_run(loop->session, live->row);
        res->steps = res->n_ids - 1;
        timing->layers_run += res->layers_run;
        timing->generated_tokens += res->n_ids;
        go_on = !loop->options.on_token || loop->options.on_token(loop->options.user, number, piece, len, finish);
        release(loop, live);
    }
    return go_on ? SD_OK : sd_fail(err, SD_ERR_CANCELLED, "cancelled");
}

int sd_loop_step(sd_loop *loop, sd_timing *timing, sd_error *err)
{
    double start = sd_clock_seconds();
    int64_t prompt_tokens = 0;
    int n = feed_prompts(loop, &prompt_tokens);
    bool prefill = n > 0;
    if (!prefill) {
        n = feed_steps(loop);
    }
    size_t kv = sd_session_kv_bytes(loop->session);
    timing->kv_peak_bytes = kv > timing->kv_peak_bytes ? kv : timing->kv_peak_bytes;
    int rc = sd_session_forward(loop->session, loop->feeds, n, err);
    for (int i = 0; rc == SD_OK && i < n; i++) {
        const float *logits = sd_session_logits(loop->session, i);
        sd_live *live = &loop->live[loop->feed_of[i]];
        sd_finish finish;
        if (logits) {
            rc = take_token(loop, live, logits, &finish, err);
            if (rc == SD_OK) {
                rc = deliver(loop, live, finish, timing, err);
            }
        }
    }
    double seconds = sd_clock_seconds() - start;
    *(prefill ? &timing->prefill_seconds : &timing->decode_seconds) += seconds;
    timing->prompt_tokens += prompt_tokens;
    timing->decode_steps += prefill ? 0 : n;
    return rc;
}
