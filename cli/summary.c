/* SPDX-License-Identifier: MIT
 *
 * What a run cost and saved. Layer speedup, decode wall-clock speedup and request wall-clock speedup are three
 * numbers. */
#include <jansson.h>

#include "cli/generate.h"
#include "src/base/alloc.h"
#include "src/base/error.h"
#include "src/schedule/schedule.h"

/* Above this share of the run's own time a comparison must be asked for. */
static const double unasked_share = 0.5;

static bool worth_comparing(const sd_job *job, int rows)
{
    if (job->flags->no_compare || job->timing.decode_steps == 0) {
        return false;
    }
    if (job->flags->compare || job->options.schedule.full) {
        return job->flags->compare;
    }
    double full = (double)job->info.n_layers * (double)job->timing.decode_steps / (double)(job->timing.layers_run + 1);
    double share = (double)rows / (double)job->n_todo * 2 * (full + 1);
    return share <= unasked_share;
}

/* Adds the seconds of one replay to *sum. */
static int replay(const sd_job *job, const sd_request *requests, int rows, bool full, sd_timing *sum, sd_error *err)
{
    sd_timing timing;
    sd_result *results = sd_calloc((size_t)rows, sizeof *results);
    if (!results) {
        return sd_fail_memory(err, (size_t)rows * sizeof *results, "the comparison");
    }
    sd_generate_options options = job->options;
    options.on_token = NULL;
    if (full) {
        sd_schedule_options_default(&options.schedule);
    }
    int rc = sd_generate(job->model, job->tok, requests, rows, &options, results, &timing, err);
    sum->prefill_seconds += timing.prefill_seconds;
    sum->decode_seconds += timing.decode_seconds;
    for (int i = 0; rc == SD_OK && i < rows; i++) {
        sd_result_clear(&results[i]);
    }
    sd_free(results);
    return rc;
}

int sd_job_compare(const sd_job *job, sd_comparison *c, sd_error *err)
{
    *c = (sd_comparison){0};
    int rows = job->options.batch < (int)job->n_todo ? job->options.batch : (int)job->n_todo;
    if (!worth_comparing(job, rows)) {
        return SD_OK;
    }
    sd_request *requests = sd_calloc((size_t)rows, sizeof *requests);
    if (!requests) {
        return sd_fail_memory(err, (size_t)rows * sizeof *requests, "the comparison");
    }
    for (int i = 0; i < rows; i++) { /* evenly over the rows done */
        size_t done = (size_t)i * job->n_todo / (size_t)rows;
        requests[i] = job->requests[job->todo[done]];
        requests[i].forced = job->results[done].ids;
        requests[i].n_forced = job->results[done].n_ids;
        requests[i].n_stop = 0;
        requests[i].logprobs = false;
    }
    /* full, skip, skip, full: what drifts in the machine meanwhile falls on both alike */
    sd_timing full = {0}, skip = {0};
    int rc = SD_OK;
    for (int i = 0; rc == SD_OK && i < 4; i++) {
        bool at_full = i == 0 || i == 3;
        rc = replay(job, requests, rows, at_full, at_full ? &full : &skip, err);
    }
    sd_free(requests);
    if (rc == SD_OK && skip.decode_seconds > 0) {
        *c = (sd_comparison){.measured = true,
                             .rows = rows,
                             .decode_speedup = full.decode_seconds / skip.decode_seconds,
                             .request_speedup = (full.decode_seconds + full.prefill_seconds) /
                                                (skip.decode_seconds + skip.prefill_seconds),
                             .full_decode_seconds = full.decode_seconds,
                             .decode_seconds = skip.decode_seconds};
    }
    return rc;
}

static double layer_speedup(const sd_job *job)
{
    const sd_timing *t = &job->timing;
    return t->layers_run > 0 ? (double)job->info.n_layers * (double)t->decode_steps / (double)t->layers_run : 1;
}

/* The schedule; of the first row where it depends on max_tokens. The caller's. */
static int first_schedule(const sd_job *job, sd_schedule **schedule, sd_error *err)
{
    return sd_job_row_schedule(job, job->n_todo ? job->todo[0] : 0, schedule, err);
}

static void print_target(const sd_job *job)
{
    const double target = job->flags->schedule.speedup;
    if (job->predicted > 0) {
        fprintf(stderr, "predicted decode speedup    %.2fx  (target %gx by the clock; steps timed %s)\n", job->predicted,
                target, job->cached ? "in an earlier run" : "at the start");
    } else if (job->by_clock) {
        fprintf(stderr, "target decode speedup       %gx  (by the clock; on the schedule of the rows done before)\n",
                target);
    }
}

static void print_speedups(const sd_job *job, const sd_comparison *c)
{
    const sd_timing *t = &job->timing;
    fprintf(stderr, "layer speedup               %.2fx  (%.2f of %d layers a decode step)\n", layer_speedup(job),
            t->decode_steps ? (double)t->layers_run / (double)t->decode_steps : 0.0, job->info.n_layers);
    if (c->measured) {
        fprintf(stderr, "decode wall-clock speedup   %.2fx  (%d row%s replayed twice each way: %.2f s at full depth, "
                "%.2f s on the schedule)\n", c->decode_speedup, c->rows, c->rows == 1 ? "" : "s",
                c->full_decode_seconds, c->decode_seconds);
        fprintf(stderr, "request wall-clock speedup  %.2fx  (prefill included)\n", c->request_speedup);
    } else if (!job->flags->no_compare) {
        fprintf(stderr, "wall-clock speedups         not measured: %s\n",
                t->decode_steps ? "--compare replays a batch at full depth" : "there was no decode step");
    }
}

int sd_job_print_summary(const sd_job *job, const sd_comparison *c, sd_error *err)
{
    const sd_timing *t = &job->timing;
    if (job->n_todo < job->input.n) {
        fprintf(stderr, "%zu of %zu rows were done before\n", job->input.n - job->n_todo, job->input.n);
    }
    if (job->n_todo == 0) {
        return SD_OK;
    }
    sd_schedule *schedule;
    int rc = first_schedule(job, &schedule, err);
    if (rc != SD_OK) {
        return rc;
    }
    fprintf(stderr,
            "%zu row%s: %lld prompt and %lld generated tokens; prefill %.2f s (%.0f tokens/s), decode %.2f s "
            "(%.0f tokens/s); KV cache at most %.1f MB\n",
            job->n_todo, job->n_todo == 1 ? "" : "s", (long long)t->prompt_tokens, (long long)t->generated_tokens,
            t->prefill_seconds, t->prefill_seconds > 0 ? (double)t->prompt_tokens / t->prefill_seconds : 0.0,
            t->decode_seconds, t->decode_seconds > 0 ? (double)t->decode_steps / t->decode_seconds : 0.0,
            (double)t->kv_peak_bytes * 1e-6);
    fprintf(stderr, "schedule                    %s\n", sd_schedule_text(schedule));
    sd_schedule_free(schedule);
    print_target(job);
    if (!job->options.schedule.full || c->measured) {
        print_speedups(job, c);
    }
    return SD_OK;
}

int sd_job_print_summary_json(const sd_job *job, const sd_comparison *c, sd_error *err)
{
    const sd_timing *t = &job->timing;
    const sd_schedule_flags *sf = &job->flags->schedule;
    const char *measure = sf->speedup == 0 ? NULL : sf->measure ? sf->measure : "wall";
    sd_schedule *schedule;
    int rc = first_schedule(job, &schedule, err);
    if (rc != SD_OK) {
        return rc;
    }
    json_t *o = json_pack("{s:o, s:s, s:s?, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:I, s:f, s:o, s:o}",
                          "model", sd_cli_json_path(job->flags->dir), "schedule", sd_schedule_text(schedule), "measure",
                          measure, "target_speedup", sf->speedup != 0 ? json_real(sf->speedup) : json_null(),
                          "predicted_speedup", job->predicted > 0 ? json_real(job->predicted) : json_null(), "rows",
                          (json_int_t)job->input.n, "rows_done_now", (json_int_t)job->n_todo, "prompt_tokens",
                          (json_int_t)t->prompt_tokens, "generated_tokens", (json_int_t)t->generated_tokens,
                          "decode_steps", (json_int_t)t->decode_steps, "layers_run", (json_int_t)t->layers_run,
                          "prefill_seconds", t->prefill_seconds, "decode_seconds", t->decode_seconds, "kv_peak_bytes",
                          (json_int_t)t->kv_peak_bytes, "layer_speedup", layer_speedup(job), "decode_wall_speedup",
                          c->measured ? json_real(c->decode_speedup) : json_null(), "request_wall_speedup",
                          c->measured ? json_real(c->request_speedup) : json_null());
    sd_schedule_free(schedule);
    return sd_cli_print_json(o, 0, err);
}
