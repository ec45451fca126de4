/* SPDX-License-Identifier: MIT
 *
 * Random schedules that are valid by construction, for tests of properties. */
#ifndef SD_TESTS_RANDOM_SCHEDULE_H
#define SD_TESTS_RANDOM_SCHEDULE_H

#include "include/skipdecode/skipdecode.h"
#include "src/base/rng.h"

/* Uniform in low .. high. */
int sd_random_int(sd_rng *rng, int low, int high);

/* Draws a whole policy for a model of n_layers: SkipDecode's ranking or a random one, and budgets as below. options
 * comes from sd_schedule_options_default; release with sd_schedule_options_clear. */
void sd_random_policy(sd_schedule_options *options, int n_layers, sd_rng *rng);

/* New budgets and a new prompt budget for the same ranking, as the rows of one batch may have them: a line or a list, a
 * short horizon or one that no row reaches. */
void sd_random_budgets(sd_schedule_options *options, int n_layers, sd_rng *rng);

#endif
