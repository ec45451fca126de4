/* SPDX-License-Identifier: MIT
 *
 * The run: steps, the loss on the dev data, checkpoints, and going on from one. */
#define _GNU_SOURCE
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "cli/train.h"
#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "src/base/error.h"
#include "src/base/file.h"

static const char state_file[] = "state.safetensors", facts_file[] = "train.json";

static volatile sig_atomic_t stop_signal;

static void on_signal(int number) { stop_signal = number; }

/* The first one asks for a checkpoint, the second one kills. */
void sd_train_catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
}

static bool go_on(void *user)
{
    sd_train_job *job = user;
    sd_progress_tick(&job->progress);
    return !stop_signal || job->ranks.n > 1; /* several must all do the same: they stop between steps */
}

bool sd_train_keeps_best(const sd_train_job *job)
{
    return job->dev.n > 0 && (!job->flags->keep || strcmp(job->flags->keep, "best") == 0);
}

/* ---- checkpoints ---- */

/* The best weights so far: those at hand, or those of the checkpoint before, under a second name. */
static int keep_best(sd_train_job *job, const char *dir, bool is_best, sd_error *err)
{
    if (!sd_train_keeps_best(job) || job->state.best_step < 0) {
        return SD_OK;
    }
    char *to = sd_path_join(dir, sd_train_best_file), *from = sd_run_dir_latest_file(&job->run, sd_train_best_file);
    int rc = SD_OK;
    if (!to || (!from && !is_best)) {
        rc = sd_fail_memory(err, strlen(dir) + 32, "a file name");
    } else if (is_best) {
        rc = sd_trainer_save_weights(job->trainer, to, job->save_as, err);
    } else if (link(from, to) != 0) { /* a file system without links, or a second one */
        rc = sd_copy_file(from, to, err);
    }
    sd_free(to);
    sd_free(from);
    return rc;
}

static int write_checkpoint(sd_train_job *job, const char *dir, bool is_best, sd_error *err)
{
    char *state = sd_path_join(dir, state_file), *facts = sd_path_join(dir, facts_file);
    int rc = state && facts ? SD_OK : sd_fail_memory(err, strlen(dir) + 32, "a file name");
    rc = rc == SD_OK ? sd_trainer_save_state(job->trainer, state, err) : rc;
    rc = rc == SD_OK ? keep_best(job, dir, is_best, err) : rc;
    if (rc == SD_OK && job->log) {
        (void)fflush(job->log);
        (void)fdatasync(fileno(job->log));
        job->state.log_bytes = ftell(job->log);
    }
    job->state.at = *sd_trainer_at(job->trainer);
    job->state.elapsed = sd_train_elapsed(job);
    rc = rc == SD_OK ? sd_train_state_save(&job->state, job->settings, facts, err) : rc;
    sd_free(state);
    sd_free(facts);
    return rc;
}

static int save(sd_train_job *job, bool is_best, sd_error *err)
{
    char *path;
    const int64_t step = sd_trainer_at(job->trainer)->step;
    if (job->ranks.rank > 0) {
        return SD_OK; /* the first process does it */
    }
    int rc = sd_run_dir_begin(&job->run, step, &path, err);
    if (rc != SD_OK) {
        return rc;
    }
    rc = write_checkpoint(job, path, is_best, err);
    rc = rc == SD_OK ? sd_run_dir_commit(&job->run, step, path, err) : rc;
    if (rc != SD_OK) {
        sd_run_dir_abandon(path);
        if (job->run.latest >= 0) {
            (void)sd_fail_prefix(err, rc, "the checkpoint of step %lld stays, --resume goes on from it",
                                 (long long)job->run.latest);
        }
    }
    sd_free(path);
    job->saved_at = sd_clock_seconds();
    return rc;
}

static bool save_is_due(const sd_train_job *job)
{
    const int64_t step = sd_trainer_at(job->trainer)->step;
    if (step == 0 || job->run.latest == step || !sd_trainer_is_well(job->trainer)) {
        return false; /* a run that may be diverging keeps its last good checkpoint */
    }
    return job->save_steps > 0 ? step % job->save_steps == 0 : sd_clock_seconds() - job->saved_at >= job->save_seconds;
}

static int load_checkpoint(sd_train_job *job, sd_error *err)
{
    char *state = sd_run_dir_latest_file(&job->run, state_file), *facts = sd_run_dir_latest_file(&job->run, facts_file);
    json_t *settings = NULL;
    int rc = state && facts ? SD_OK : sd_fail_memory(err, 4096, "a file name");
    rc = rc == SD_OK ? sd_train_state_load(&job->state, &settings, facts, err) : rc;
    if (rc == SD_OK) {
        rc = sd_train_settings_compare(job->settings, settings, err);
        rc = rc == SD_OK ? rc : sd_fail_prefix(err, rc, "%s", job->flags->output);
    }
    rc = rc == SD_OK ? sd_trainer_load_state(job->trainer, state, err) : rc;
    if (rc == SD_OK) {
        *sd_trainer_at(job->trainer) = job->state.at;
        job->elapsed_before = job->state.elapsed;
    }
    json_decref(settings);
    sd_free(state);
    sd_free(facts);
    return rc;
}

/* ---- the dev data ---- */

static bool evaluation_is_due(const sd_train_job *job)
{
    const sd_trainer_position *at = sd_trainer_at(job->trainer);
    if (job->dev.n == 0 || at->step == 0 || job->state.evaluated == at->step) {
        return false;
    }
    return at->step == job->n_steps || (job->eval_every > 0 ? at->step % job->eval_every == 0 : at->batch == 0);
}

/* Every speed of the run counts the same. */
static int evaluate(sd_train_job *job, sd_error *err)
{
    double sum = 0;
    for (int lane = 0; lane < job->n_lanes; lane++) {
        int rc = sd_trainer_evaluate(job->trainer, &job->dev, lane, go_on, job, &job->dev_loss[lane], err);
        if (rc != SD_OK) {
            return rc;
        }
        sum += job->dev_loss[lane];
    }
    const double mean = sum / job->n_lanes;
    if (!isfinite(mean)) {
        return sd_fail(err, SD_ERR_STATE, "step %lld: the loss on the dev data is %g; a lower --lr may help",
                       (long long)sd_trainer_at(job->trainer)->step, mean);
    }
    const bool best = job->state.best_step < 0 || mean < job->state.best_loss;
    job->state.evaluated = sd_trainer_at(job->trainer)->step;
    job->state.waiting = best ? 0 : job->state.waiting + 1;
    if (best) {
        job->state.best_loss = mean;
        job->state.best_step = job->state.evaluated;
    }
    int rc = sd_train_log_dev(job, mean, best, err);
    return rc == SD_OK && best && sd_train_keeps_best(job) ? save(job, true, err) : rc;
}

/* ---- the loop ---- */

static int stop(sd_train_job *job, bool *stopped, sd_error *err)
{
    const int64_t step = sd_trainer_at(job->trainer)->step;
    int rc = step > 0 && job->run.latest != step ? save(job, false, err) : SD_OK;
    *stopped = rc == SD_OK;
    if (rc == SD_OK && job->ranks.rank == 0) {
        sd_progress_clear(&job->progress);
        fprintf(stderr, "stopped at step %lld of %lld; the same command with --resume goes on from there\n",
                (long long)step, (long long)job->n_steps);
    }
    return rc;
}

static bool is_over(const sd_train_job *job)
{
    const bool patient = job->flags->patience == 0 || job->state.waiting < job->flags->patience;
    return sd_trainer_at(job->trainer)->step >= job->n_steps || !patient;
}

/* What a step of its own fails by is the run's end; what was saved before it stays. */
static int step(sd_train_job *job, sd_error *err)
{
    int rc = sd_trainer_step(job->trainer, &job->last, err);
    if (rc != SD_OK) {
        const long long kept = (long long)job->run.latest;
        return kept >= 0 ? sd_fail_prefix(err, rc, "%s: the checkpoint of step %lld is kept", job->flags->output, kept)
                         : rc;
    }
    return sd_train_log_step(job, err);
}

static int loop(sd_train_job *job, bool *stopped, sd_error *err)
{
    for (;;) {
        int rc = evaluation_is_due(job) ? evaluate(job, err) : SD_OK;
        const bool asked = rc == SD_OK && sd_ranks_max(&job->ranks, stop_signal) > 0;
        if (rc == SD_ERR_CANCELLED || (asked && !is_over(job))) {
            return stop(job, stopped, err);
        }
        if (rc != SD_OK || is_over(job)) {
            return rc;
        }
        rc = save_is_due(job) ? save(job, false, err) : rc;
        rc = rc == SD_OK ? step(job, err) : rc;
        if (rc != SD_OK) {
            return rc;
        }
        sd_train_tick(job);
    }
}

/* Takes the directory over: another run's checkpoint is refused, or goes with --overwrite. */
static int enter(sd_train_job *job, sd_error *err)
{
    const sd_train_flags *f = job->flags;
    job->entered = true;
    int rc = sd_run_dir_enter(&job->run, f->output, err);
    if (rc == SD_OK && job->run.latest >= 0 && !f->resume && !f->overwrite) {
        rc = sd_fail(err, SD_ERR_ARG,
                     "%s: holds the checkpoint of step %lld; --resume goes on from it, --overwrite starts afresh",
                     f->output, (long long)job->run.latest);
    }
    if (rc == SD_OK && f->overwrite) {
        char *facts = sd_path_join(f->output, facts_file); /* what it says is of the old model */
        if (facts) {
            (void)unlink(facts);
        }
        sd_free(facts);
        sd_run_dir_remove_checkpoints(&job->run);
    }
    return rc;
}

/* The other processes read the checkpoint that the first one found, and write nothing. */
static int enter_all(sd_train_job *job, sd_error *err)
{
    int rc = job->ranks.rank == 0 ? enter(job, err) : SD_OK;
    if (rc != SD_OK) {
        return rc; /* which ends the others */
    }
    const int64_t latest = sd_ranks_max(&job->ranks, job->ranks.rank == 0 ? job->run.latest : -1);
    if (job->ranks.rank > 0) {
        job->entered = true;
        job->run = (sd_run_dir){.dir = sd_strdup(job->flags->output), .lock = -1, .latest = latest};
        rc = job->run.dir ? SD_OK : sd_fail_memory(err, strlen(job->flags->output), "a file name");
    }
    return rc;
}

int sd_train_run(sd_train_job *job, bool *stopped, sd_error *err)
{
    int rc = enter_all(job, err);
    const bool resumed = job->run.latest >= 0;
    rc = rc == SD_OK ? sd_trainer_create(&job->trainer, &job->options, &job->data, err) : rc;
    rc = rc == SD_OK && resumed ? load_checkpoint(job, err) : rc;
    rc = rc == SD_OK && job->ranks.rank == 0 ? sd_train_log_open(job, resumed, err) : rc;
    if (rc != SD_OK) {
        return rc;
    }
    const int64_t begin = sd_trainer_at(job->trainer)->step;
    if (job->flags->resume && !job->flags->quiet) {
        fprintf(stderr, resumed ? "going on from step %lld\n" : "no checkpoint yet: starting at step %lld\n",
                (long long)begin);
    }
    job->started = job->saved_at = sd_clock_seconds();
    job->tokens_before = sd_trainer_at(job->trainer)->tokens;
    sd_progress_start(&job->progress, job->n_steps, (double)(job->n_steps - begin), job->flags->quiet);
    job->progress.unit = "steps";
    job->progress.note = job->note;
    rc = loop(job, stopped, err);
    sd_progress_clear(&job->progress);
    return rc;
}
