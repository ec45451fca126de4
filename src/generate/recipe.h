/* SPDX-License-Identifier: MIT
 *
 * skipdecode.json: what a model directory says about its own use, beside the standard files: how a prompt is built and
 * the schedule it was trained for. Other tools ignore it; without it everything has a default. */
#ifndef SD_GENERATE_RECIPE_H
#define SD_GENERATE_RECIPE_H

#include "include/skipdecode/skipdecode.h"

enum { SD_MAX_TRAINED = 16 };

typedef struct sd_recipe {
    bool present;
    char *prompt_template;        /* "{field}" stands for a column or key; NULL: none. Owned */
    int max_tokens;               /* default for generation; 0: none */
    sd_schedule_options schedule; /* warm-up, horizon, prompt budget and ranking (its list owned); .full is true: a
                                   * budget is the user's choice */
    double trained[SD_MAX_TRAINED]; /* layer speedups it was trained for */
    int n_trained;
} sd_recipe;

/* Reads dir/skipdecode.json if it is there; dir must exist. Release with sd_recipe_clear. */
int sd_recipe_load(sd_recipe *recipe, const char *dir, sd_error *err);
void sd_recipe_clear(sd_recipe *recipe); /* its schedule's lists too */

/* Moves the schedule, with its lists, into options that the caller will clear; the recipe's becomes the default. */
void sd_recipe_take_schedule(sd_recipe *recipe, sd_schedule_options *options);

/* Writes dir/skipdecode.json, atomically: what sd_recipe_load reads back. */
int sd_recipe_save(const sd_recipe *recipe, const char *dir, sd_error *err);

#endif
