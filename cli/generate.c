/* SPDX-License-Identifier: MIT */
#include "cli/generate.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/error.h"
#include "src/generate/sampler.h"
#include "src/schedule/schedule.h"

/* ---- output rows ---- */

/* Token ids and log-probabilities. JSON has no NaN or infinity, which logits that are not finite lead to: null. */
static bool add_logprobs(json_t *o, const sd_result *r)
{
    json_t *ids = json_array(), *logprobs = json_array();
    bool failed = json_object_set_new(o, "ids", ids) != 0;
    failed = json_object_set_new(o, "logprobs", logprobs) != 0 || failed;
    for (int i = 0; i < r->n_ids && !failed; i++) {
        double x = (double)r->logprobs[i];
        failed = json_array_append_new(ids, json_integer(r->ids[i])) != 0 ||
                 json_array_append_new(logprobs, isfinite(x) ? json_real(x) : json_null()) != 0;
    }
    return !failed;
}

/* One row as a JSON object on one line. Nothing in it depends on time, batch or thread count, but the choice of a
 * schedule that is to meet a target in seconds. */
static char *row_json(const sd_job *job, size_t request, const sd_schedule *schedule)
{
    size_t row = job->todo[request];
    const sd_result *r = &job->results[request];
    char key[17];
    (void)snprintf(key, sizeof key, "%016" PRIx64, job->keys[row]);
    const char *finish = r->finish == SD_FINISH_LENGTH ? "length" : "stop";
    json_t *o = json_pack("{s:I, s:O*, s:s%, s:s, s:i, s:i, s:I, s:I, s:s, s:s}", "index", (json_int_t)row, "id",
                          job->input.rows[row].id, "text", r->text, r->text_len, "finish_reason", finish,
                          "prompt_tokens", job->requests[row].n_prompt, "completion_tokens", r->n_ids, "layers_run",
                          (json_int_t)r->layers_run, "layers_full", (json_int_t)r->steps * job->info.n_layers,
                          "schedule", sd_schedule_text(schedule), "key", key);
    if (!o || (r->logprobs && !add_logprobs(o, r))) {
        json_decref(o);
        return NULL;
    }
    char *line = json_dumps(o, JSON_COMPACT);
    json_decref(o);
    return line;
}

int sd_job_write_row(sd_job *job, size_t request, sd_error *err)
{
    sd_schedule *schedule;
    int rc = sd_job_row_schedule(job, job->todo[request], &schedule, err);
    char *line = rc == SD_OK ? row_json(job, request, schedule) : NULL;
    sd_schedule_free(schedule);
    if (!line) {
        return rc == SD_OK ? sd_fail_memory(err, 1024, "an output row") : rc;
    }
    rc = sd_journal_add(&job->journal, job->todo[request], line, err);
    free(line);
    return rc;
}

/* Plain text of a single prompt, as it comes. */
static bool stream_text(void *user, int request, const char *piece, size_t len, sd_finish finish)
{
    (void)request;
    sd_job *job = user;
    fwrite(piece, 1, len, stdout);
    if (finish != SD_FINISH_NONE) {
        putchar('\n');
    }
    if (fflush(stdout) != 0) {
        (void)sd_fail_errno(&job->callback_error, "cannot write to standard output");
        return false;
    }
    return true;
}

static bool collect_row(void *user, int request, const char *piece, size_t len, sd_finish finish)
{
    (void)piece;
    (void)len;
    sd_job *job = user;
    size_t row = job->todo[request];
    job->progress.tokens++;
    job->progress.work_done++;
    job->tokens_seen[request]++;
    if (finish != SD_FINISH_NONE) {
        job->progress.done++;
        job->progress.work_done += job->requests[row].max_tokens - job->tokens_seen[request];
        if (sd_job_write_row(job, (size_t)request, &job->callback_error) != SD_OK) {
            return false;
        }
    }
    sd_progress_tick(&job->progress);
    return true;
}

/* ---- the run ---- */

static bool plain_text(const sd_generate_flags *f) { return f->prompt && !f->output && !f->json; }

/* sd_generate numbers its requests 0 .. n_todo-1: `todo` says which rows they are. */
static int run_rows(sd_job *job, sd_error *err)
{
    double work = 0;
    sd_request *requests = sd_calloc(job->n_todo, sizeof *requests);
    int rc = requests ? SD_OK : sd_fail_memory(err, job->n_todo * sizeof *requests, "the rows");
    for (size_t i = 0; rc == SD_OK && i < job->n_todo; i++) {
        requests[i] = job->requests[job->todo[i]];
        work += requests[i].max_tokens;
    }
    if (rc == SD_OK) {
        sd_progress_start(&job->progress, (int64_t)job->n_todo, work, job->flags->quiet || plain_text(job->flags));
        rc = sd_generate(job->model, job->tok, requests, (int)job->n_todo, &job->options, job->results, &job->timing,
                         err);
        sd_progress_clear(&job->progress);
        if (rc == SD_ERR_CANCELLED && job->callback_error.code != SD_OK) {
            *err = job->callback_error;
            rc = err->code;
        }
    }
    sd_free(requests);
    return rc;
}

static int run(sd_job *job, sd_error *err)
{
    const sd_generate_flags *f = job->flags;
    int rc = sd_journal_open(&job->journal, f->output, job->keys, job->input.n, f->overwrite, err);
    if (rc != SD_OK) {
        return rc;
    }
    for (size_t i = 0; i < job->input.n; i++) {
        if (!sd_journal_has(&job->journal, i)) {
            job->todo[job->n_todo++] = i;
        }
    }
    job->options.on_token = plain_text(f) ? stream_text : collect_row;
    job->options.user = job;
    rc = sd_job_choose_schedule(job, err);
    rc = rc == SD_OK ? run_rows(job, err) : rc;
    if (rc == SD_OK) {
        rc = sd_journal_finish(&job->journal, err);
    }
    bool json = f->json && f->output;
    if (rc != SD_OK || (f->quiet && !json)) {
        return rc;
    }
    sd_comparison comparison;
    rc = sd_job_compare(job, &comparison, err);
    if (rc != SD_OK) {
        return rc;
    }
    return json ? sd_job_print_summary_json(job, &comparison, err) : sd_job_print_summary(job, &comparison, err);
}

static int read_input(sd_job *job, sd_error *err)
{
    const sd_generate_flags *f = job->flags;
    static const char *const names[] = {"auto", "text", "jsonl", "csv"};
    unsigned format = 0;
    while (f->format && format < 4 && strcmp(f->format, names[format]) != 0) {
        format++;
    }
    if (format == 4) {
        return sd_fail(err, SD_ERR_ARG, "--format \"%s\"; expected auto, text, jsonl or csv", f->format);
    }
    const char *template = f->raw ? NULL : f->template ? f->template : job->recipe.prompt_template;
    return f->prompt ? sd_input_single(&job->input, f->prompt, template, err)
                     : sd_input_read(&job->input, f->input, (sd_format)format, template, (size_t)f->limit, err);
}

static int prepare(sd_job *job, sd_error *err)
{
    const sd_generate_flags *f = job->flags;
    sd_model_options mo;
    int rc = sd_sampling_check(&f->sampling, err);
    rc = rc == SD_OK ? sd_schedule_flags_by_clock(&f->schedule, true, &job->by_clock, err) : rc;
    rc = rc == SD_OK ? sd_model_flags_resolve(&f->model, &mo, err) : rc;
    rc = rc == SD_OK ? sd_recipe_load(&job->recipe, f->dir, err) : rc;
    rc = rc == SD_OK ? read_input(job, err) : rc;
    rc = rc == SD_OK ? sd_model_load(&job->model, f->dir, &mo, err) : rc;
    rc = rc == SD_OK ? sd_tokenizer_load(&job->tok, f->dir, err) : rc;
    if (rc != SD_OK) {
        return rc;
    }
    sd_model_get_info(job->model, &job->info);
    sd_generate_options_default(&job->options);
    job->options.batch = f->batch;
    job->options.prefill_tokens = f->prefill_tokens;
    sd_recipe_take_schedule(&job->recipe, &job->options.schedule);
    rc = sd_schedule_flags_resolve(&f->schedule, job->info.n_layers, job->by_clock, &job->options.schedule, err);
    return rc == SD_OK ? sd_job_make_requests(job, err) : rc;
}

static int generate(const sd_generate_flags *f)
{
    sd_job job = {.flags = f};
    sd_error err = {0};
    int rc = prepare(&job, &err);
    if (rc == SD_OK) {
        rc = run(&job, &err);
    }
    int code = rc == SD_OK ? sd_cli_close_stdout(SD_EXIT_OK) : sd_cli_fail(&err);
    sd_journal_close(&job.journal);
    sd_job_clear_requests(&job);
    sd_input_clear(&job.input);
    sd_schedule_options_clear(&job.options.schedule);
    sd_recipe_clear(&job.recipe);
    sd_tokenizer_free(job.tok);
    sd_model_free(job.model);
    return code;
}

static int check_flags(sd_generate_flags *f)
{
    if (!f->prompt == !f->input) {
        return sd_cli_usage("generate", "expected either --prompt TEXT or --input FILE");
    }
    if (f->batch > 4096) {
        return sd_cli_usage("generate", "--batch %d; expected 1 .. 4096", f->batch);
    }
    if (f->raw && f->template) {
        return sd_cli_usage("generate", "--raw and --template exclude each other");
    }
    if (f->compare && f->no_compare) {
        return sd_cli_usage("generate", "--compare and --no-compare exclude each other");
    }
    f->sampling.temperature = (float)f->temperature;
    f->sampling.top_p = (float)f->top_p;
    f->sampling.min_p = (float)f->min_p;
    f->sampling.repetition_penalty = (float)f->repetition_penalty;
    return -1;
}

int sd_verb_generate(int argc, char **argv)
{
    sd_generate_flags f = {.batch = 32, .prefill_tokens = 512, .top_p = 1, .repetition_penalty = 1};
    sd_sampling_default(&f.sampling);
    const sd_option options[] = {
        {"prompt", "TEXT", SD_OPTION_STRING, &f.prompt, "one prompt; its continuation is printed as it comes"},
        {"input", "FILE", SD_OPTION_STRING, &f.input, "text lines, .jsonl or .csv; - is standard input"},
        {"format", "NAME", SD_OPTION_STRING, &f.format, "of the input: auto (by its name), text, jsonl or csv"},
        {"template", "TEXT", SD_OPTION_STRING, &f.template,
         "builds the prompt: {name} is a column or key; default: the model's"},
        {"raw", NULL, SD_OPTION_FLAG, &f.raw, "no template: the text is the prompt"},
        {"output", "FILE", SD_OPTION_STRING, &f.output,
         "JSON lines in input order; started again, it goes on where it was"},
        {"overwrite", NULL, SD_OPTION_FLAG, &f.overwrite, "start afresh where --output holds other rows"},
        {"limit", "N", SD_OPTION_COUNT, &f.limit, "only the first N rows of the input"},
        {"batch", "N", SD_OPTION_COUNT, &f.batch, "rows decoded together; default 32"},
        {"max-tokens", "N", SD_OPTION_COUNT, &f.max_tokens,
         "most tokens a row generates; default: the model's, else 128"},
        SD_SCHEDULE_OPTIONS(f.schedule),
        SD_MEASURE_OPTION(f.schedule, "wall"),
        {"temperature", "T", SD_OPTION_DOUBLE, &f.temperature, "0 (default) is greedy"},
        {"top-k", "K", SD_OPTION_INT, &f.sampling.top_k, "sample among the K likeliest tokens; 0 is off"},
        {"top-p", "P", SD_OPTION_DOUBLE, &f.top_p,
         "sample among the likeliest tokens that hold P of the mass; 1 is off"},
        {"min-p", "P", SD_OPTION_DOUBLE, &f.min_p, "drop tokens less likely than P times the likeliest; 0 is off"},
        {"repetition-penalty", "R", SD_OPTION_DOUBLE, &f.repetition_penalty,
         "make tokens seen before less likely; 1 is off"},
        {"seed", "N", SD_OPTION_UINT64, &f.sampling.seed, "row i samples with seed N + i; default 0"},
        {"stop", "TEXT", SD_OPTION_STRINGS, &f.stop, "end a row before this text; may be given several times"},
        {"ignore-eos", NULL, SD_OPTION_FLAG, &f.ignore_eos, "go on past the end token, to max-tokens"},
        {"logprobs", NULL, SD_OPTION_FLAG, &f.logprobs, "add token ids and log-probabilities to each row"},
        SD_MODEL_OPTIONS(f.model),
        {"prefill-tokens", "N", SD_OPTION_COUNT, &f.prefill_tokens, "most prompt tokens in one pass; default 512"},
        {"compare", NULL, SD_OPTION_FLAG, &f.compare, "replay a batch at full depth, to measure wall-clock speedups"},
        {"no-compare", NULL, SD_OPTION_FLAG, &f.no_compare,
         "never do that; default: if it adds less than half the time"},
        {"json", NULL, SD_OPTION_FLAG, &f.json, "--prompt: one JSON row; with --output: the summary as JSON"},
        {"quiet", NULL, SD_OPTION_FLAG, &f.quiet, "no progress, no summary"},
    };
    int code = sd_options_read("generate", options, sizeof options / sizeof *options, argc, argv, &f.dir, 1);
    if (code < 0) {
        code = check_flags(&f);
    }
    return code >= 0 ? code : generate(&f);
}
