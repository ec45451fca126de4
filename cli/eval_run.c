/* SPDX-License-Identifier: MIT
 *
 * One line of the table of eval. Texts are generated exactly as `generate` does it, on the same requests and keys; with
 * -o they are kept as `generate --output` keeps them, so that an interrupted run goes on. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/eval.h"
#include "src/base/alloc.h"
#include "src/base/error.h"
#include "src/schedule/schedule.h"

/* ---- generation ---- */

static bool on_token(void *user, int request, const char *piece, size_t len, sd_finish finish)
{
    (void)piece;
    (void)len;
    sd_eval *eval = user;
    sd_job *job = eval->job;
    const int max_tokens = job->requests[job->todo[request]].max_tokens;
    eval->progress.tokens++;
    eval->progress.work_done++;
    job->tokens_seen[request]++;
    if (finish != SD_FINISH_NONE) {
        eval->progress.done++;
        eval->progress.work_done += max_tokens - job->tokens_seen[request];
        if (job->journal.stream && sd_job_write_row(job, (size_t)request, &job->callback_error) != SD_OK) {
            return false;
        }
    }
    sd_progress_tick(&eval->progress);
    return true;
}

static int generate(sd_eval *eval, sd_job *job, sd_error *err)
{
    sd_request *requests = sd_calloc(job->n_todo, sizeof *requests);
    if (!requests) {
        return sd_fail_memory(err, job->n_todo * sizeof *requests, "the rows");
    }
    for (size_t i = 0; i < job->n_todo; i++) {
        requests[i] = job->requests[job->todo[i]];
    }
    eval->job = job;
    job->options.on_token = on_token;
    job->options.user = eval;
    int rc = sd_generate(job->model, job->tok, requests, (int)job->n_todo, &job->options, job->results, &job->timing,
                         err);
    if (rc == SD_ERR_CANCELLED && job->callback_error.code != SD_OK) {
        *err = job->callback_error;
        rc = err->code;
    }
    sd_free(requests);
    return rc;
}

/* A row that an earlier run has done, from its line. */
static int take_over(const sd_job *job, sd_eval_line *line, size_t row, sd_error *err)
{
    json_t *o = json_loads(sd_journal_line(&job->journal, row), JSON_ALLOW_NUL, NULL);
    const json_t *text = json_object_get(o, "text");
    const json_int_t full = json_integer_value(json_object_get(o, "layers_full"));
    const sd_str copy = {json_string_value(text), json_string_length(text)};
    int rc = copy.text ? sd_texts_add(&line->texts, copy, err)
                       : sd_fail(err, SD_ERR_FORMAT, "%s: row %zu has no \"text\"", job->journal.path, row);
    line->tokens += json_integer_value(json_object_get(o, "completion_tokens"));
    line->layers_run += json_integer_value(json_object_get(o, "layers_run"));
    line->steps += full / job->info.n_layers;
    json_decref(o);
    return rc;
}

static int collect(sd_job *job, sd_eval_line *line, sd_error *err)
{
    size_t request = 0;
    int rc = SD_OK;
    for (size_t row = 0; rc == SD_OK && row < job->input.n; row++) {
        if (request < job->n_todo && job->todo[request] == row) {
            const sd_result *r = &job->results[request++];
            rc = sd_texts_add(&line->texts, (sd_str){r->text, r->text_len}, err);
            line->tokens += r->n_ids;
            line->layers_run += r->layers_run;
            line->steps += r->steps;
        } else {
            rc = take_over(job, line, row, err);
        }
    }
    line->timing = job->timing;
    line->rows_now = job->n_todo;
    line->predicted = job->predicted;
    line->decode_tps = job->timing.decode_seconds > 0
                           ? (double)job->timing.decode_steps / job->timing.decode_seconds : NAN;
    return rc;
}

/* ---- seconds ---- */

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, compare_doubles);
    return n > 0 ? (values[(n - 1) / 2] + values[n / 2]) / 2 : NAN;
}

static int time_line(const sd_eval *eval, const sd_job *job, sd_eval_line *line, sd_error *err)
{
    double decode[SD_EVAL_REPEAT], request[SD_EVAL_REPEAT];
    int n = 0, rc = SD_OK;
    for (int i = 0; rc == SD_OK && i < eval->flags->repeat; i++) {
        sd_comparison c;
        rc = sd_job_compare(job, &c, err);
        if (rc == SD_OK && c.measured) {
            decode[n] = c.decode_speedup;
            request[n++] = c.request_speedup;
        }
    }
    line->decode_speedup = median(decode, n);
    line->request_speedup = median(request, n);
    return rc;
}

/* ---- likelihood ---- */

typedef struct sd_pairs {
    sd_pair *pairs;
    sd_likelihood *results;
    size_t n;
} sd_pairs;

/* The ids of a response with the end token; a response that does not fit is left out (*ids NULL). */
static int encode_response(const sd_eval *eval, const sd_request *request, sd_str text, int32_t **ids, int *n,
                           sd_error *err)
{
    size_t count = 0;
    int rc = sd_tokenizer_encode(eval->tok, text.text, text.len, 0, NULL, 0, &count, err);
    *ids = NULL;
    if (rc != SD_OK && rc != SD_ERR_LIMIT) {
        return rc;
    }
    const size_t with_end = count + (eval->info.eos_id >= 0);
    if (with_end == 0 || with_end - 1 > (size_t)(eval->info.max_positions - request->n_prompt)) {
        return SD_OK;
    }
    *ids = sd_malloc(with_end, sizeof **ids);
    if (!*ids) {
        return sd_fail_memory(err, with_end * sizeof **ids, "a response");
    }
    *n = (int)with_end;
    (*ids)[with_end - 1] = eval->info.eos_id;
    return sd_tokenizer_encode(eval->tok, text.text, text.len, 0, *ids, count, &count, err);
}

static int make_pairs(sd_eval *eval, const sd_job *job, sd_pairs *p, sd_error *err)
{
    const sd_references *refs = &eval->references;
    int rc = SD_OK;
    p->pairs = sd_calloc(refs->found.n, sizeof *p->pairs);
    p->results = sd_calloc(refs->found.n, sizeof *p->results);
    if (!p->pairs || !p->results) {
        return sd_fail_memory(err, refs->found.n * sizeof *p->pairs, "the responses");
    }
    eval->n_too_long = 0;
    for (size_t row = 0; rc == SD_OK && row < job->input.n; row++) {
        const size_t end = eval->loss_all ? refs->first[row + 1] : refs->first[row] + 1;
        for (size_t r = refs->first[row]; rc == SD_OK && r < end; r++) {
            const sd_request *request = &job->requests[row];
            int32_t *ids;
            int n = 0;
            rc = encode_response(eval, request, refs->refs[r], &ids, &n, err);
            eval->n_too_long += rc == SD_OK && !ids;
            if (ids) {
                p->pairs[p->n++] = (sd_pair){request->prompt, ids, request->n_prompt, n, request->max_tokens};
            }
        }
    }
    return rc;
}

static bool keep_ticking(void *user, int done)
{
    (void)done;
    sd_progress_tick(user);
    return true;
}

static int measure_likelihood(sd_eval *eval, const sd_job *job, sd_eval_line *line, sd_error *err)
{
    sd_pairs p = {0};
    const sd_likelihood_options options = {.schedule = job->options.schedule, .batch = eval->flags->batch,
                                           .prefill_tokens = eval->flags->prefill_tokens, .on_pair = keep_ticking,
                                           .user = &eval->progress};
    int rc = make_pairs(eval, job, &p, err);
    if (rc == SD_OK && p.n > 0) {
        rc = sd_likelihood_measure(p.results, eval->model, p.pairs, (int)p.n, &options, err);
    }
    for (size_t i = 0; i < p.n; i++) {
        line->likelihood.loss += p.results[i].loss;
        line->likelihood.tokens += p.results[i].tokens;
        line->likelihood.correct += p.results[i].correct;
        sd_free((void *)(uintptr_t)p.pairs[i].response);
    }
    sd_free(p.pairs);
    sd_free(p.results);
    return rc;
}

/* ---- a line ---- */

/* "DIR/skipdecode-2x.jsonl"; the caller's. NULL without -o, or if memory is out. */
static char *output_path(const sd_eval *eval, const sd_eval_line *line)
{
    sd_buf path = {0};
    if (eval->flags->output) {
        sd_buf_printf(&path, "%s/%s-%gx.jsonl", eval->flags->output, line->policy, line->speedup);
    }
    return path.data;
}

static int open_journal(sd_job *job, sd_error *err)
{
    const sd_generate_flags *f = job->flags;
    int rc = sd_journal_open(&job->journal, f->output, job->keys, job->input.n, f->overwrite, err);
    for (size_t i = 0; rc == SD_OK && i < job->input.n; i++) {
        if (!sd_journal_has(&job->journal, i)) {
            job->todo[job->n_todo++] = i;
        }
    }
    return rc;
}

static int run_job(sd_eval *eval, sd_job *job, sd_eval_line *line, sd_error *err)
{
    const sd_generate_flags *f = job->flags;
    int rc = sd_schedule_flags_resolve(&f->schedule, job->info.n_layers, job->by_clock, &job->options.schedule, err);
    rc = rc == SD_OK ? sd_job_make_requests(job, err) : rc;
    rc = rc == SD_OK ? open_journal(job, err) : rc;
    rc = rc == SD_OK ? sd_job_choose_schedule(job, err) : rc;
    if (rc == SD_OK) {
        const double skipped = (double)(job->input.n - job->n_todo);
        eval->progress.done += (int64_t)skipped;
        eval->progress.work_done += skipped * job->requests[0].max_tokens;
        rc = generate(eval, job, err);
    }
    rc = rc == SD_OK ? sd_journal_finish(&job->journal, err) : rc;
    rc = rc == SD_OK ? collect(job, line, err) : rc;
    rc = rc == SD_OK ? time_line(eval, job, line, err) : rc;
    rc = rc == SD_OK && !eval->loss_none ? measure_likelihood(eval, job, line, err) : rc;
    sd_schedule *schedule = NULL;
    rc = rc == SD_OK ? sd_job_row_schedule(job, 0, &schedule, err) : rc;
    if (rc == SD_OK) {
        line->schedule = sd_strdup(sd_schedule_text(schedule));
        rc = line->schedule ? SD_OK : sd_fail_memory(err, 256, "a schedule's text");
    }
    sd_schedule_free(schedule);
    return rc;
}

static int score(sd_eval *eval, sd_eval_line *line, sd_error *err)
{
    const sd_corpus corpus = {eval->input.n, line->texts.items, eval->references.first, eval->references.refs,
                              eval->sources};
    int rc = sd_scores_make(&line->scores, &eval->metrics, &corpus, &eval->flags->score, err);
    if (rc == SD_OK && line != eval->lines) {
        sd_scores_compare(&line->scores, &eval->lines[0].scores);
    }
    return rc;
}

/* The model's own warm-up, horizon, prompt and ranking, with lists of its own. */
static int own_schedule(const sd_eval *eval, sd_schedule_options *o, sd_error *err)
{
    const sd_schedule_options *from = &eval->recipe.schedule;
    *o = *from;
    o->budgets = NULL;
    o->n_budgets = 0;
    if (from->ranking) {
        int *ranking = sd_malloc((size_t)from->n_ranking, sizeof *ranking);
        if (ranking) {
            memcpy(ranking, from->ranking, (size_t)from->n_ranking * sizeof *ranking);
        }
        o->ranking = ranking;
    }
    return o->ranking || !from->ranking ? SD_OK : sd_fail_memory(err, sizeof *o, "a ranking");
}

int sd_eval_run(sd_eval *eval, int index, sd_error *err)
{
    const sd_eval_flags *f = eval->flags;
    sd_eval_line *line = &eval->lines[index];
    char *output = output_path(eval, line);
    if (f->output && !output) {
        return sd_fail_memory(err, strlen(f->output), "a file name");
    }
    sd_generate_flags gf = {.dir = f->dir, .input = f->data, .output = output, .batch = f->batch,
                            .max_tokens = f->max_tokens, .prefill_tokens = f->prefill_tokens, .compare = true,
                            .overwrite = f->overwrite, .top_p = 1, .repetition_penalty = 1};
    sd_sampling_default(&gf.sampling);
    if (index > 0) {
        gf.schedule = (sd_schedule_flags){.speedup = line->speedup, .policy = line->policy, .measure = f->measure};
    }
    sd_job job = {.flags = &gf, .model = eval->model, .info = eval->info, .tok = eval->tok, .recipe = eval->recipe,
                  .input = eval->input, .by_clock = line->by_clock};
    sd_generate_options_default(&job.options);
    job.options.batch = f->batch;
    job.options.prefill_tokens = f->prefill_tokens;
    int rc = own_schedule(eval, &job.options.schedule, err);
    rc = rc == SD_OK ? run_job(eval, &job, line, err) : rc;
    rc = rc == SD_OK ? score(eval, line, err) : rc;
    sd_journal_close(&job.journal);
    sd_job_clear_requests(&job);
    sd_schedule_options_clear(&job.options.schedule);
    sd_buf path = {.data = output};
    sd_buf_free(&path);
    return rc == SD_OK ? rc : sd_fail_prefix(err, rc, "%s at %gx", line->policy, line->speedup);
}
