/* SPDX-License-Identifier: MIT
 *
 * What a decode step costs by the clock, measured on the machine and with the model at hand, and the schedule that such
 * costs ask for. Seconds are not layers: the head, the hand-overs between threads and the attention over the cache do
 * not shrink with the budget, and a part of a small model fits into caches that the whole does not. */
#ifndef SD_GENERATE_COST_H
#define SD_GENERATE_COST_H

#include "include/skipdecode/skipdecode.h"

enum { SD_COST_POINTS = 5 };

typedef struct sd_cost {
    int rows;                       /* of the batch that was measured */
    int position;                   /* cached positions of each row at which `seconds` holds */
    int n_points;
    int layers[SD_COST_POINTS];     /* budgets measured, rising, the last one all layers */
    double seconds[SD_COST_POINTS]; /* of a step of all rows, head and greedy choice included; never falling */
    double attention;               /* seconds more a layer and position beyond `position`, all rows together */
} sd_cost;

/* Measures steps of `rows` rows that hold about n_positions positions. Takes a second or two, and memory for the rows'
 * caches of a few positions. SD_ERR_LIMIT for a model that has no room for a decode step. */
int sd_cost_measure(sd_cost *cost, const sd_model *model, int rows, int n_positions, sd_error *err);

/* Whether a cost that was not just measured can be one of a model of n_layers. */
bool sd_cost_is_valid(const sd_cost *cost, int n_layers);

/* Seconds of the first `steps` decode steps after a prompt of n_prompt tokens. schedule NULL: all layers. */
double sd_cost_predict(const sd_cost *cost, const sd_schedule *schedule, int n_prompt, int steps);

/* A row of generation as the planner sees it. */
typedef struct sd_wall_task {
    int n_layers, n_prompt, steps; /* steps: decode steps that the mean row takes, >= 1 */
    double speedup;                /* wanted: full depth's decode seconds over the schedule's, >= 1 */
} sd_wall_task;

/* Sets the budget of *options (whose warm-up, horizon, ranking and prompt are kept; a list of budgets goes, as with
 * sd_schedule_preset) to the largest whose predicted speedup is not below the wanted one, or, with a warning that names
 * the limit, to the fastest where none is. *predicted: what it is predicted to give. A horizon of 0 becomes the number
 * of steps. */
int sd_cost_choose(sd_schedule_options *options, const sd_cost *cost, const sd_wall_task *task, double *predicted,
                   sd_error *err);

#endif
