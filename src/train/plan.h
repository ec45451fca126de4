/* SPDX-License-Identifier: MIT
 *
 * What changes over a run by the number of the step alone: which speeds are trained, and the learning rate. */
#ifndef SD_TRAIN_PLAN_H
#define SD_TRAIN_PLAN_H

#include <stdint.h>

#include "src/base/error.h"

enum { SD_MAX_SPEEDS = 16, SD_MAX_STAGES = 8 };

/* A stretch of steps in which every batch is split evenly among some speeds. One named twice gets two shares. */
typedef struct sd_stage {
    double speeds[SD_MAX_SPEEDS]; /* layer speedups, >= 1 */
    int lane[SD_MAX_SPEEDS];      /* for the caller: where it keeps what belongs to the speed */
    int n_speeds;
    double until;    /* as the text has it: a share of all steps, or a step; 0: to the end */
    bool is_share;
    int64_t end;     /* steps before this one are in the stage; set by sd_stages_place */
} sd_stage;

typedef struct sd_stages {
    sd_stage stage[SD_MAX_STAGES];
    int n;
} sd_stages;

/* "1,2,3" or, in stages, "1,2@40%/1,2,3,4,5" and "1@500/1,3": a stage ends at a share of all steps or at a step; the
 * last one ends with the run. */
int sd_stages_parse(sd_stages *stages, const char *text, sd_error *err);

/* Finds where the stages end in a run of n_steps. A stage without a step is an error. */
int sd_stages_place(sd_stages *stages, int64_t n_steps, sd_error *err);
int sd_stages_at(const sd_stages *stages, int64_t step); /* the stage of step 0, 1, ... */
int sd_stages_most_speeds(const sd_stages *stages);      /* of any stage */

/* All the speeds of all stages, each once, ascending: [return value] in speeds[SD_MAX_STAGES * SD_MAX_SPEEDS]. */
int sd_stages_speeds(const sd_stages *stages, double *speeds);

/* The learning rate of step 0 .. n_steps-1: a line from 0 up to `peak` over warmup_steps, which the first step after
 * them has, then half a cosine down to `least`, which a step after the last one would have. */
double sd_learning_rate(int64_t step, int64_t n_steps, int64_t warmup_steps, double peak, double least);

#endif
