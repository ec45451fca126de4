/* SPDX-License-Identifier: MIT
 *
 * The parts of `skipdecode generate`: the options, the rows turned into requests, and what is said at the end. */
#ifndef SD_CLI_GENERATE_H
#define SD_CLI_GENERATE_H

#include "cli/cli.h"
#include "cli/input.h"
#include "cli/journal.h"
#include "cli/progress.h"
#include "src/generate/recipe.h"

typedef struct sd_generate_flags {
    const char *dir, *prompt, *input, *output, *format, *template;
    sd_model_flags model;
    sd_schedule_flags schedule;
    int batch, max_tokens, limit, prefill_tokens;
    sd_sampling sampling;
    double temperature, top_p, min_p, repetition_penalty;
    sd_strings stop;
    bool raw, overwrite, logprobs, ignore_eos, compare, no_compare, json, quiet;
} sd_generate_flags;

typedef struct sd_job {
    const sd_generate_flags *flags;
    sd_model *model;
    sd_model_info info;
    sd_tokenizer *tok;
    sd_recipe recipe;
    sd_generate_options options;
    bool by_clock;              /* the schedule is chosen by seconds, once the journal is open */
    double predicted;           /* decode speedup that it is predicted to give; 0: nobody asked */
    bool cached;                /* by steps timed in an earlier run */
    sd_input input;
    sd_request *requests;       /* [input.n] */
    sd_result *results;         /* [n_todo] result i is of row todo[i] */
    uint64_t *keys;             /* [input.n] */
    const char *(*stops)[SD_MAX_STRINGS]; /* [input.n] stop strings of each row */
    size_t *todo;               /* [n_todo] rows that are not done yet */
    size_t n_todo;
    sd_journal journal;
    sd_progress progress;
    sd_timing timing;
    sd_error callback_error;    /* what on_token could not return itself */
    int *tokens_seen;           /* [n_todo] */
} sd_job;

/* requests.c: tokenizes every prompt, merges a row's own settings with the flags, computes keys. */
int sd_job_make_requests(sd_job *job, sd_error *err);
int sd_job_check_schedules(const sd_job *job, sd_error *err); /* that options.schedule fits every row */
int sd_job_row_schedule(const sd_job *job, size_t row, sd_schedule **schedule, sd_error *err); /* the caller's */
void sd_job_clear_requests(sd_job *job);

/* generate.c: gives the journal the row of a request that has ended. */
int sd_job_write_row(sd_job *job, size_t request, sd_error *err);

/* choose.c: sets options.schedule, if the clock is to choose it: from the first row that the journal holds, else from
 * what decode steps cost on this machine. */
int sd_job_choose_schedule(sd_job *job, sd_error *err);

/* summary.c */
typedef struct sd_comparison {
    bool measured;
    int rows;
    double decode_speedup, request_speedup; /* seconds at full depth over seconds on the schedule */
    double full_decode_seconds, decode_seconds;
} sd_comparison;

/* Replays a batch of the rows just done, token by token as they were generated, at full depth and on the schedule, and
 * compares the seconds. */
int sd_job_compare(const sd_job *job, sd_comparison *comparison, sd_error *err);
int sd_job_print_summary(const sd_job *job, const sd_comparison *comparison, sd_error *err);
int sd_job_print_summary_json(const sd_job *job, const sd_comparison *comparison, sd_error *err);

#endif
