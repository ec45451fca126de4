/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "cli/generate.h"
#include "src/base/alloc.h"
#include "src/base/error.h"
#include "src/base/hash.h"
#include "src/base/json.h"
#include "src/generate/loop.h"
#include "src/model/model.h"
#include "src/schedule/schedule.h"

enum { DEFAULT_MAX_TOKENS = 128 };

static int tokenize(const sd_job *job, const sd_input_row *row, sd_request *request, sd_error *err)
{
    size_t n = 0;
    int rc = sd_tokenizer_encode(job->tok, row->prompt, row->prompt_len, SD_ENCODE_BOS, NULL, 0, &n, err);
    if (rc != SD_OK && rc != SD_ERR_LIMIT) {
        return rc;
    }
    if (n > (size_t)job->info.max_positions) {
        return sd_fail(err, SD_ERR_LIMIT, "the prompt has %zu tokens, the model %d positions; shorten it", n,
                       job->info.max_positions);
    }
    int32_t *ids = sd_malloc(n, sizeof *ids);
    if (!ids) {
        return sd_fail_memory(err, n * sizeof *ids, "a prompt");
    }
    request->prompt = ids;
    request->n_prompt = (int)n;
    return sd_tokenizer_encode(job->tok, row->prompt, row->prompt_len, SD_ENCODE_BOS, ids, n, &n, err);
}

static int row_stops(const json_t *stop, const char **items, int *n, sd_error *err)
{
    *n = 0;
    if (json_is_string(stop)) {
        items[(*n)++] = json_string_value(stop);
        return SD_OK;
    }
    size_t i;
    json_t *item;
    if (!json_is_array(stop) || json_array_size(stop) > SD_MAX_STRINGS) {
        return sd_fail(err, SD_ERR_FORMAT, "key \"stop\": expected a string or at most %d strings, found %s",
                       SD_MAX_STRINGS, json_is_array(stop) ? "more" : sd_json_type_name(stop));
    }
    json_array_foreach(stop, i, item) {
        if (!json_is_string(item)) {
            return sd_fail(err, SD_ERR_FORMAT, "key \"stop\": item %zu is %s; expected a string", i + 1,
                           sd_json_type_name(item));
        }
        items[(*n)++] = json_string_value(item);
    }
    return SD_OK;
}

/* A JSON line's own settings, over the command line's. */
static int row_settings(const json_t *o, sd_request *r, const char **stops, bool *own_max, sd_error *err)
{
    int64_t max_tokens = 0, seed = -1, top_k = r->sampling.top_k;
    double temperature = (double)r->sampling.temperature, top_p = (double)r->sampling.top_p;
    double min_p = (double)r->sampling.min_p, penalty = (double)r->sampling.repetition_penalty;
    int rc = sd_json_get_int(o, "max_tokens", false, 1, 1 << 24, &max_tokens, err);
    rc = rc == SD_OK ? sd_json_get_int(o, "seed", false, 0, INT64_C(1) << 53, &seed, err) : rc;
    rc = rc == SD_OK ? sd_json_get_int(o, "top_k", false, 0, 1 << 24, &top_k, err) : rc;
    rc = rc == SD_OK ? sd_json_get_number(o, "temperature", false, &temperature, err) : rc;
    rc = rc == SD_OK ? sd_json_get_number(o, "top_p", false, &top_p, err) : rc;
    rc = rc == SD_OK ? sd_json_get_number(o, "min_p", false, &min_p, err) : rc;
    rc = rc == SD_OK ? sd_json_get_number(o, "repetition_penalty", false, &penalty, err) : rc;
    const json_t *stop = json_object_get(o, "stop");
    if (rc == SD_OK && stop && !json_is_null(stop)) {
        rc = row_stops(stop, stops, &r->n_stop, err);
    }
    if (rc != SD_OK) {
        return rc;
    }
    *own_max = max_tokens > 0;
    r->max_tokens = max_tokens > 0 ? (int)max_tokens : r->max_tokens;
    r->sampling.seed = seed >= 0 ? (uint64_t)seed : r->sampling.seed;
    r->sampling.top_k = (int)top_k;
    r->sampling.temperature = (float)temperature;
    r->sampling.top_p = (float)top_p;
    r->sampling.min_p = (float)min_p;
    r->sampling.repetition_penalty = (float)penalty;
    return SD_OK;
}

static int make_request(sd_job *job, size_t i, sd_error *err)
{
    const sd_generate_flags *f = job->flags;
    sd_request *r = &job->requests[i];
    const char **stops = job->stops[i];
    *r = (sd_request){.sampling = f->sampling, .stop = stops, .n_stop = f->stop.n, .ignore_eos = f->ignore_eos,
                      .logprobs = f->logprobs, .max_tokens = f->max_tokens};
    r->sampling.seed = f->sampling.seed + i; /* rows differ, and each row is the same in any batch */
    memcpy(stops, f->stop.items, sizeof f->stop.items);
    bool own_max = false;
    int rc = tokenize(job, &job->input.rows[i], r, err);
    if (rc == SD_OK && job->input.rows[i].settings) {
        rc = row_settings(job->input.rows[i].settings, r, stops, &own_max, err);
    }
    if (rc != SD_OK) {
        return rc;
    }
    if (!f->max_tokens && !own_max) { /* nobody asked for a number: as many as there is room for, up to the default */
        int room = job->info.max_positions - r->n_prompt + 1;
        int wanted = job->recipe.max_tokens ? job->recipe.max_tokens : DEFAULT_MAX_TOKENS;
        r->max_tokens = wanted < room ? wanted : room;
    }
    return sd_request_check(job->model, job->tok, r, err);
}

int sd_job_row_schedule(const sd_job *job, size_t row, sd_schedule **schedule, sd_error *err)
{
    return sd_schedule_create(schedule, job->info.n_layers, job->requests[row].max_tokens, &job->options.schedule, err);
}

/* What the schedule is chosen from, where the clock chooses it: another day it may choose another one, and a run that
 * goes on keeps the one it began with. */
static uint64_t hash_target(const sd_job *job, uint64_t hash)
{
    const sd_schedule_options *so = &job->options.schedule;
    const int ints[] = {so->warmup, so->horizon, so->prompt, so->n_ranking};
    const double speedup = job->flags->schedule.speedup;
    hash = sd_hash(hash, "wall", sizeof "wall");
    hash = sd_hash(hash, &speedup, sizeof speedup);
    hash = sd_hash(hash, ints, sizeof ints);
    return so->ranking ? sd_hash(hash, so->ranking, (size_t)so->n_ranking * sizeof *so->ranking) : hash;
}

static int hash_schedule(const sd_job *job, size_t row, uint64_t *hash, sd_error *err)
{
    sd_schedule *schedule;
    int rc = sd_job_row_schedule(job, row, &schedule, err);
    if (rc == SD_OK) {
        const char *text = sd_schedule_text(schedule);
        *hash = sd_hash(*hash, text, strlen(text));
        sd_schedule_free(schedule);
    }
    return rc;
}

/* Everything that determines a row's result. Checks the row's schedule on the way, before any work is done, if it is
 * known by now. */
static int make_key(const sd_job *job, size_t row, uint64_t model, uint64_t *key, sd_error *err)
{
    const sd_request *r = &job->requests[row];
    uint64_t h = model;
    int rc = SD_OK;
    if (job->by_clock) {
        h = hash_target(job, h);
    } else {
        rc = hash_schedule(job, row, &h, err);
    }
    if (rc != SD_OK) {
        return rc;
    }
    const sd_sampling *s = &r->sampling;
    const float floats[] = {s->temperature, s->top_p, s->min_p, s->repetition_penalty};
    const int ints[] = {s->top_k, r->max_tokens, r->ignore_eos ? -1 : job->info.eos_id, r->logprobs, r->n_stop,
                        r->n_prompt};
    h = sd_hash(h, floats, sizeof floats);
    h = sd_hash(h, ints, sizeof ints);
    h = sd_hash(h, r->prompt, (size_t)r->n_prompt * sizeof *r->prompt);
    for (int i = 0; i < r->n_stop; i++) {
        h = sd_hash(h, r->stop[i], strlen(r->stop[i]) + 1);
    }
    *key = s->temperature > 0 ? sd_hash(h, &s->seed, sizeof s->seed) : h;
    return SD_OK;
}

static int fail_row(const sd_job *job, size_t row, int rc, sd_error *err)
{
    return job->flags->input ? sd_fail_prefix(err, rc, "%s: row %zu (line %ld)", job->flags->input, row,
                                              job->input.rows[row].line)
                             : rc;
}

int sd_job_check_schedules(const sd_job *job, sd_error *err)
{
    for (size_t i = 0; i < job->input.n; i++) {
        sd_schedule *schedule;
        int rc = sd_job_row_schedule(job, i, &schedule, err);
        if (rc != SD_OK) {
            return fail_row(job, i, rc, err);
        }
        sd_schedule_free(schedule);
    }
    return SD_OK;
}

int sd_job_make_requests(sd_job *job, sd_error *err)
{
    size_t n = job->input.n;
    job->requests = sd_calloc(n, sizeof *job->requests);
    job->results = sd_calloc(n, sizeof *job->results);
    job->keys = sd_calloc(n, sizeof *job->keys);
    job->stops = sd_calloc(n, sizeof *job->stops);
    job->todo = sd_calloc(n, sizeof *job->todo);
    job->tokens_seen = sd_calloc(n, sizeof *job->tokens_seen);
    if (!job->requests || !job->results || !job->keys || !job->stops || !job->todo || !job->tokens_seen) {
        return sd_fail_memory(err, n * sizeof *job->requests, "the rows");
    }
    uint64_t model = sd_model_fingerprint(job->model);
    for (size_t i = 0; i < n; i++) {
        int rc = make_request(job, i, err);
        if (rc == SD_OK) {
            rc = make_key(job, i, model, &job->keys[i], err);
        }
        if (rc != SD_OK) {
            return fail_row(job, i, rc, err);
        }
    }
    return SD_OK;
}

void sd_job_clear_requests(sd_job *job)
{
    for (size_t i = 0; i < job->input.n; i++) {
        if (job->requests) {
            sd_free((void *)(uintptr_t)job->requests[i].prompt);
        }
        if (job->results) {
            sd_result_clear(&job->results[i]);
        }
    }
    sd_free(job->requests);
    sd_free(job->results);
    sd_free(job->keys);
    sd_free(job->stops);
    sd_free(job->todo);
    sd_free(job->tokens_seen);
}
