/* SPDX-License-Identifier: MIT
 *
 * What a run says: the plan before it starts, a line a step in the log, the progress bar, the picture, the result. */
#define _GNU_SOURCE
#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/gnuplot.h"
#include "cli/train.h"
#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "src/base/error.h"
#include "src/base/file.h"
#include "src/base/json.h"
#include "src/schedule/schedule.h"

double sd_train_elapsed(const sd_train_job *job) { return job->elapsed_before + sd_clock_seconds() - job->started; }

/* ---- the plan ---- */

static void print_schedules(const sd_train_job *job)
{
    int64_t from = 0;
    for (int i = 0; i < job->stages.n; i++) {
        const sd_stage *s = &job->stages.stage[i];
        fprintf(stderr, "  budgets      ");
        for (int k = 0; k < s->n_speeds; k++) {
            fprintf(stderr, "%s%s%s", k ? ", " : "", job->lanes[s->lane[k]].name,
                    job->speedups[s->lane[k]] > 0 ? "x" : "");
        }
        fprintf(stderr, " of the layers, evenly");
        if (job->stages.n > 1) {
            fprintf(stderr, ", steps %lld .. %lld", (long long)from, (long long)s->end - 1);
        }
        fprintf(stderr, "\n");
        from = s->end;
    }
    fprintf(stderr, "               warm-up %d, horizon %d steps\n", job->base.warmup, job->base.horizon);
}

int sd_train_print_plan(sd_train_job *job, sd_error *err)
{
    const sd_train_flags *f = job->flags;
    const sd_dataset *d = &job->data;
    sd_trainer_memory memory;
    int rc = sd_trainer_plan_memory(&job->options, &memory, err);
    if (rc != SD_OK || f->quiet) {
        return rc;
    }
    const double fed = (double)(d->prompt_tokens + d->response_tokens) - (double)d->n;
    const double rows = job->options.batch.rows > 0 ? job->options.batch.rows
                                                    : job->options.batch.tokens / (fed / (double)d->n + 1);
    const double passes = (double)job->n_steps * f->accumulate * rows / (double)d->n;
    fprintf(stderr, "  parameters   %.4g million", (double)memory.n_params * 1e-6);
    if (memory.n_trained != memory.n_params) {
        fprintf(stderr, ", of which %.4g million are trained", (double)memory.n_trained * 1e-6);
    }
    fprintf(stderr, "; %d layers of width %d\n", job->config.n_layers, job->config.hidden);
    fprintf(stderr, "  data         %zu examples, %.4g million prompt and %.4g million response tokens", d->n,
            (double)d->prompt_tokens * 1e-6, (double)d->response_tokens * 1e-6);
    if (d->n_cut + d->n_skipped > 0) {
        fprintf(stderr, "; too long: %zu cut, %zu left out", d->n_cut, d->n_skipped);
    }
    fprintf(stderr, "\n");
    if (job->dev.n > 0) {
        fprintf(stderr, "  dev          %zu examples\n", job->dev.n);
    }
    print_schedules(job);
    fprintf(stderr, "  steps        %lld, %.3g passes over the data, about %.4g million tokens\n",
            (long long)job->n_steps, passes, passes * fed * 1e-6);
    fprintf(stderr, "  memory       %.4g MB for weights, gradients and moments, at most %.4g MB for activations\n",
            (double)memory.weights * 1e-6, (double)memory.activations * 1e-6);
    return SD_OK;
}

/* ---- the log ---- */

/* What was logged after the checkpoint belongs to steps that are done again. */
static int trim(sd_train_job *job, sd_error *err)
{
    struct stat st;
    if (stat(job->log_path, &st) != 0) {
        return SD_OK; /* a log that is gone begins anew */
    }
    if (st.st_size < job->state.log_bytes) {
        return SD_OK;
    }
    return truncate(job->log_path, (off_t)job->state.log_bytes) == 0
               ? SD_OK
               : sd_fail_errno(err, "%s: cannot cut it to the checkpoint", job->log_path);
}

static int write_line(sd_train_job *job, json_t *line, sd_error *err)
{
    if (!line) {
        return sd_fail_memory(err, 4096, "a line of the log");
    }
    const bool ok =
        json_dumpf(line, job->log, JSON_COMPACT) == 0 && fputc('\n', job->log) != EOF && fflush(job->log) == 0;
    const int reason = errno;
    json_decref(line);
    errno = reason;
    return ok ? SD_OK : sd_fail_errno(err, "%s: cannot write", job->log_path);
}

int sd_train_log_open(sd_train_job *job, bool resumed, sd_error *err)
{
    job->log_path = job->flags->log ? sd_strdup(job->flags->log) : sd_path_join(job->flags->output, "train.jsonl");
    if (!job->log_path) {
        return sd_fail_memory(err, strlen(job->flags->output) + 16, "a file name");
    }
    int rc = sd_check_output(job->log_path, err);
    rc = rc == SD_OK && resumed ? trim(job, err) : rc;
    if (rc != SD_OK) {
        return rc;
    }
    job->log = fopen(job->log_path, resumed ? "abe" : "wbe");
    if (!job->log) {
        return sd_fail_errno(err, "%s: cannot open it to write", job->log_path);
    }
    (void)fseek(job->log, 0, SEEK_END); /* appending, ftell means nothing before */
    return resumed ? SD_OK : write_line(job, json_pack("{s:O}", "settings", job->settings), err);
}

/* {"3": loss, ...}; lanes without rows are left out. */
static json_t *by_lane(const sd_train_job *job, const double *losses)
{
    json_t *o = json_object();
    for (int i = 0; i < job->n_lanes; i++) {
        if (isfinite(losses[i]) && json_object_set_new(o, job->lanes[i].name, json_real(losses[i])) != 0) {
            json_decref(o);
            return NULL;
        }
    }
    return o;
}

int sd_train_log_step(sd_train_job *job, sd_error *err)
{
    const sd_trainer_position *at = sd_trainer_at(job->trainer);
    const sd_step_report *r = &job->last;
    if (!job->log || (at->step % job->flags->log_every != 0 && at->step != job->n_steps)) {
        return SD_OK;
    }
    const double seconds = sd_clock_seconds() - job->started;
    return write_line(job,
                      json_pack("{s:I, s:I, s:f, s:o, s:f, s:f, s:I, s:f, s:f}", "step", (json_int_t)at->step, "epoch",
                                (json_int_t)at->epoch, "loss", r->loss, "losses", by_lane(job, r->lane_loss), "lr",
                                r->lr, "grad_norm", r->grad_norm, "tokens", (json_int_t)at->tokens, "tokens_per_second",
                                (double)(at->tokens - job->tokens_before) / (seconds > 0 ? seconds : 1), "elapsed",
                                sd_train_elapsed(job)),
                      err);
}

int sd_train_log_dev(sd_train_job *job, double mean, bool best, sd_error *err)
{
    const int64_t step = sd_trainer_at(job->trainer)->step;
    if (!job->flags->quiet) {
        sd_progress_clear(&job->progress);
        fprintf(stderr, "  step %-7lld dev loss %.4f%s:", (long long)step, mean, best ? ", the best" : "");
        for (int i = 0; i < job->n_lanes; i++) {
            fprintf(stderr, " %s%s %.4f", job->lanes[i].name, job->speedups[i] > 0 ? "x" : "", job->dev_loss[i]);
        }
        fprintf(stderr, "\n");
    }
    return !job->log ? SD_OK
                     : write_line(job,
                                  json_pack("{s:I, s:f, s:o, s:b}", "step", (json_int_t)step, "dev_loss", mean, "dev",
                                            by_lane(job, job->dev_loss), "best", best),
                                  err);
}

void sd_train_tick(sd_train_job *job)
{
    const sd_trainer_position *at = sd_trainer_at(job->trainer);
    (void)snprintf(job->note, sizeof job->note, "loss %.4f", job->last.loss);
    job->progress.done = at->step;
    job->progress.tokens = at->tokens - job->tokens_before;
    job->progress.work_done = job->progress.work_total - (double)(job->n_steps - at->step);
    sd_progress_tick(&job->progress);
}

/* ---- the picture ---- */

enum { SMOOTHED = 40 }; /* points of the smooth line */

typedef struct sd_points {
    double *step, *loss; /* [n] */
    size_t n, cap;
} sd_points;

static bool add_point(sd_points *p, double step, double loss)
{
    if (p->n == p->cap) {
        const size_t cap = p->cap ? 2 * p->cap : 256;
        double *steps = sd_realloc(p->step, cap, sizeof *steps);
        p->step = steps ? steps : p->step;
        double *losses = sd_realloc(p->loss, cap, sizeof *losses);
        p->loss = losses ? losses : p->loss;
        if (!steps || !losses) {
            return false;
        }
        p->cap = cap;
    }
    p->step[p->n] = step;
    p->loss[p->n++] = loss;
    return true;
}

typedef struct sd_curves {
    const sd_train_job *job;
    sd_points train, dev[SD_MAX_LANES];
} sd_curves;

static bool take_line(sd_curves *c, const json_t *line)
{
    const double step = json_number_value(json_object_get(line, "step"));
    const json_t *loss = json_object_get(line, "loss"), *dev = json_object_get(line, "dev");
    bool ok = !json_is_number(loss) || add_point(&c->train, step, json_number_value(loss));
    for (int i = 0; dev && i < c->job->n_lanes; i++) {
        const json_t *value = json_object_get(dev, c->job->lanes[i].name);
        ok = ok && (!json_is_number(value) || add_point(&c->dev[i], step, json_number_value(value)));
    }
    return ok;
}

static int read_log(sd_curves *c, sd_error *err)
{
    sd_file file;
    int rc = sd_file_open(&file, c->job->log_path, true, err);
    if (rc != SD_OK) {
        return rc;
    }
    const char *text = (const char *)file.data;
    for (size_t at = 0, n; rc == SD_OK && at < file.size; at += n + 1) {
        const char *newline = memchr(text + at, '\n', file.size - at);
        n = newline ? (size_t)(newline - text) - at : file.size - at;
        json_t *line = json_loadb(text + at, n, 0, NULL);
        rc = take_line(c, line) ? SD_OK : sd_fail_memory(err, file.size, "the losses");
        json_decref(line);
    }
    sd_file_close(&file);
    return rc;
}

static void write_points(FILE *to, const sd_points *p)
{
    for (size_t i = 0; i < p->n; i++) {
        fprintf(to, "%g %g\n", p->step[i], p->loss[i]);
    }
    fprintf(to, "e\n");
}

static void write_means(FILE *to, const sd_points *p)
{
    const size_t each = p->n / SMOOTHED + 1;
    for (size_t i = 0; i < p->n; i += each) {
        double step = 0, loss = 0;
        const size_t n = p->n - i < each ? p->n - i : each;
        for (size_t k = 0; k < n; k++) {
            step += p->step[i + k];
            loss += p->loss[i + k];
        }
        fprintf(to, "%g %g\n", step / (double)n, loss / (double)n);
    }
    fprintf(to, "e\n");
}

static void draw(const void *context, FILE *to)
{
    const sd_curves *c = context;
    fprintf(to, "set terminal pngcairo size 960,600\nset xlabel 'step'\nset ylabel 'loss, nats a token'\nset grid\n"
                "set key top right\nplot '-' with dots lc rgb '#999999' title 'training', "
                "'-' with lines lw 2 lc rgb '#444444' title 'training, mean'");
    for (int i = 0; i < c->job->n_lanes; i++) {
        if (c->dev[i].n > 0) {
            fprintf(to, ", '-' with linespoints lw 2 title 'dev, %s%s'", c->job->lanes[i].name,
                    c->job->speedups[i] > 0 ? "x" : "");
        }
    }
    fprintf(to, "\n");
    write_points(to, &c->train);
    write_means(to, &c->train);
    for (int i = 0; i < c->job->n_lanes; i++) {
        if (c->dev[i].n > 0) {
            write_points(to, &c->dev[i]);
        }
    }
}

int sd_train_plot(const sd_train_job *job, sd_error *err)
{
    sd_curves curves = {.job = job};
    int rc = read_log(&curves, err);
    rc = rc == SD_OK ? sd_gnuplot(job->flags->plot, draw, &curves, err) : rc;
    sd_free(curves.train.step);
    sd_free(curves.train.loss);
    for (int i = 0; i < job->n_lanes; i++) {
        sd_free(curves.dev[i].step);
        sd_free(curves.dev[i].loss);
    }
    return rc;
}

/* ---- the result ---- */

int sd_train_print_result(const sd_train_job *job, sd_error *err)
{
    const sd_trainer_position *at = sd_trainer_at(job->trainer);
    const double seconds = sd_train_elapsed(job);
    if (job->flags->json) {
        json_t *o = json_pack("{s:o, s:I, s:I, s:f}", "output", sd_cli_json_path(job->flags->output), "steps",
                              (json_int_t)at->step, "tokens", (json_int_t)at->tokens, "seconds", seconds);
        if (o && job->last.tokens > 0) { /* else the last step was another process's */
            (void)json_object_set_new(o, "loss", json_real(job->last.loss));
        }
        if (o && job->state.best_step >= 0) {
            (void)json_object_set_new(o, "best_step", json_integer(job->state.best_step));
            (void)json_object_set_new(o, "dev_loss", json_real(job->state.best_loss));
        }
        return sd_cli_print_json(o, JSON_COMPACT, err);
    }
    if (!job->flags->quiet) {
        fprintf(stderr, "%s: %lld steps, %.4g million tokens in %.0f s", job->flags->output, (long long)at->step,
                (double)at->tokens * 1e-6, seconds);
        if (job->state.best_step >= 0) {
            fprintf(stderr, "; best dev loss %.4f at step %lld", job->state.best_loss, (long long)job->state.best_step);
        }
        fprintf(stderr, "\n");
    }
    return SD_OK;
}
