/* SPDX-License-Identifier: MIT
 *
 * skipdecode eval: what the files of the verb share. eval.c reads arguments and data, eval_run.c generates, scores and
 * times one line of the table, eval_report.c prints. */
#ifndef SD_CLI_EVAL_H
#define SD_CLI_EVAL_H

#include "cli/generate.h"
#include "cli/records.h"
#include "cli/scores.h"
#include "src/eval/likelihood.h"

enum { SD_EVAL_LIST = 16, SD_EVAL_REPEAT = 1000 }; /* most speedups or policies; most repetitions */

typedef struct sd_eval_flags {
    const char *dir, *data, *responses, *template, *response, *speedups, *policies, *measure, *loss, *output, *plot;
    sd_model_flags model;
    sd_score_flags score;
    int batch, max_tokens, limit, prefill_tokens, repeat;
    bool no_group, overwrite, json, quiet;
} sd_eval_flags;

/* One line of the table: a policy at a speedup. */
typedef struct sd_eval_line {
    char policy[32];
    double speedup;
    bool by_clock;
    char *schedule;           /* in its text form, of the first row; owned */
    double predicted;         /* decode speedup that the clock's choice predicts; 0: not asked */
    sd_texts texts;           /* [prompts] */
    sd_scores scores;
    sd_timing timing;         /* of the rows that were generated now */
    size_t rows_now;
    int64_t tokens, steps, layers_run; /* of all rows, those taken over from an earlier run too */
    double decode_speedup, request_speedup; /* medians over the repetitions; NAN: not measured */
    double decode_tps;        /* NAN: nothing was generated now */
    sd_likelihood likelihood; /* of all responses that fit; tokens 0: not asked */
} sd_eval_line;

typedef struct sd_eval {
    const sd_eval_flags *flags;
    sd_input input;           /* a row for each prompt */
    sd_references references; /* segment i: of row i */
    sd_model *model;
    sd_model_info info;
    sd_tokenizer *tok;
    sd_recipe recipe;
    sd_metrics metrics;
    sd_str *sources;          /* [input.n] the prompts */
    bool loss_all, loss_none;
    size_t n_too_long;        /* responses that do not fit the model's positions */
    sd_eval_line *lines;      /* [n_lines] the first is full depth, which the others are compared with */
    int n_lines;
    sd_progress progress;
    /* while a line runs */
    sd_job *job;
} sd_eval;

/* Generates (or takes over), scores, times and measures the likelihood of a line. */
int sd_eval_run(sd_eval *eval, int line, sd_error *err);

void sd_eval_print_head(const sd_eval *eval);                  /* text; nothing with --json */
int sd_eval_print(const sd_eval *eval, int line, sd_error *err);
void sd_eval_print_tail(const sd_eval *eval);
int sd_eval_save(const sd_eval *eval, sd_error *err);          /* DIR/scores.jsonl */
int sd_eval_plot(const sd_eval *eval, sd_error *err);

static inline double sd_eval_layer_speedup(const sd_eval *eval, const sd_eval_line *line)
{
    return line->layers_run > 0 ? (double)eval->info.n_layers * (double)line->steps / (double)line->layers_run : 1;
}

#endif
