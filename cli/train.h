/* SPDX-License-Identifier: MIT
 *
 * `skipdecode train`, for its own files: train.c reads the options, train_setup.c turns them into data and schedules,
 * train_run.c runs, train_output.c writes the model, train_report.c says what happens. */
#ifndef SD_CLI_TRAIN_H
#define SD_CLI_TRAIN_H

#include <stdio.h>

#include "cli/cli.h"
#include "cli/progress.h"
#include "cli/ranks.h"
#include "src/generate/recipe.h"
#include "src/train/loop.h"
#include "src/train/rundir.h"
#include "src/train/state.h"

typedef struct sd_train_flags {
    const char *dir;                      /* the model to start from; NULL: config and tokenizer */
    const char *config, *tokenizer;
    sd_data_flags data;
    sd_strings dev, dev_responses;
    int dev_rows, limit, max_length;
    const char *too_long;
    const char *speedups, *horizon, *prompt, *ranking;
    sd_strings schedules;
    int warmup;                           /* -1: the model's */
    int epochs, steps, batch, batch_tokens, accumulate, micro_tokens;
    int warmup_steps, lora_rank, threads, log_every, patience;
    double lr, min_lr, weight_decay, clip, beta2, dropout, distill, init_std;
    const char *distill_from, *products, *save_every, *eval_every, *keep, *save_as, *log, *plot, *output;
    uint64_t seed;
    bool resume, overwrite, dry_run, quiet, json;
} sd_train_flags;

typedef struct sd_train_job {
    const sd_train_flags *flags;
    sd_ranks ranks;                       /* only the first writes, and says anything */
    sd_config config;
    sd_recipe recipe;                     /* of the model to start from, then what is saved */
    sd_tokenizer *tok;
    sd_dataset data, dev;
    sd_stages stages;
    sd_schedule_options base;             /* warm-up, horizon, prompt, ranking of every speed */
    sd_lane lanes[SD_MAX_LANES];
    sd_schedule *schedules[SD_MAX_LANES]; /* owned */
    double speedups[SD_MAX_LANES];        /* of the lanes; 0: a schedule of its own */
    int n_lanes;
    sd_trainer_options options;
    sd_dtype save_as;
    int64_t n_steps, eval_every;          /* 0: at the end of every epoch */
    int64_t save_steps;                   /* 0: by the clock */
    double save_seconds;
    json_t *settings;                     /* what a run that goes on must have in common */
    sd_run_dir run;
    bool entered;
    sd_trainer *trainer;
    sd_train_state state;
    FILE *log;
    char *log_path;
    sd_progress progress;
    char note[96];                        /* of the progress bar */
    double started;                       /* this process, on sd_clock_seconds */
    double elapsed_before, saved_at;
    int64_t tokens_before;                /* at the start of this process */
    sd_step_report last;
    double dev_loss[SD_MAX_LANES];
} sd_train_job;

/* train_setup.c: reads everything that is read and checks all of it; nothing is written. */
int sd_train_prepare(sd_train_job *job, sd_error *err);
void sd_train_clear(sd_train_job *job); /* tolerates a half-prepared job */

/* train_run.c. *stopped: by a signal, with a checkpoint; the model is not written then. */
int sd_train_run(sd_train_job *job, bool *stopped, sd_error *err);
void sd_train_catch_signals(void);

bool sd_train_keeps_best(const sd_train_job *job);

/* train_output.c */
#define sd_train_best_file "best.safetensors" /* of a checkpoint: the weights with the lowest loss on the dev data */
int sd_train_check_output(const sd_train_job *job, bool *complete, sd_error *err);
int sd_train_write_model(sd_train_job *job, sd_error *err);

/* train_report.c */
int sd_train_print_plan(sd_train_job *job, sd_error *err);
int sd_train_log_open(sd_train_job *job, bool resumed, sd_error *err);
int sd_train_log_step(sd_train_job *job, sd_error *err);
int sd_train_log_dev(sd_train_job *job, double mean, bool best, sd_error *err);
void sd_train_tick(sd_train_job *job);
int sd_train_plot(const sd_train_job *job, sd_error *err);
int sd_train_print_result(const sd_train_job *job, sd_error *err);
double sd_train_elapsed(const sd_train_job *job); /* seconds, over all processes */

#endif
