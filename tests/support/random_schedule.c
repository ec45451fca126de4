/* SPDX-License-Identifier: MIT */
#include "tests/support/random_schedule.h"

#include "src/base/alloc.h"
#include "tests/support/support.h"

int sd_random_int(sd_rng *rng, int low, int high)
{
    return low + (int)sd_rng_below(rng, (uint64_t)(high - low) + 1);
}

void sd_random_policy(sd_schedule_options *options, int n_layers, sd_rng *rng)
{
    options->warmup = sd_random_int(rng, 0, n_layers - 1);
    if (sd_random_int(rng, 0, 2) == 0) {
        int *ranking = sd_malloc((size_t)n_layers, sizeof *ranking);
        assert_non_null(ranking);
        for (int l = 0; l < n_layers; l++) { /* each newcomer takes a random place, whose layer moves to the end */
            int at = sd_random_int(rng, 0, l);
            ranking[l] = l;
            ranking[l] = ranking[at];
            ranking[at] = l;
        }
        options->ranking = ranking;
        options->n_ranking = n_layers;
    }
    sd_random_budgets(options, n_layers, rng);
}

void sd_random_budgets(sd_schedule_options *options, int n_layers, sd_rng *rng)
{
    int low = options->ranking ? 1 : options->warmup + 1;
    options->full = false;
    sd_free((void *)(uintptr_t)options->budgets);
    options->budgets = NULL;
    options->n_budgets = 0;
    options->min_layers = sd_random_int(rng, low, n_layers);
    options->max_layers = sd_random_int(rng, options->min_layers, n_layers);
    options->horizon = sd_random_int(rng, 0, 3) == 0 ? sd_random_int(rng, 1, 3) : sd_random_int(rng, 1, 40);
    int first = options->max_layers;
    if (sd_random_int(rng, 0, 1) == 0) {
        int n = sd_random_int(rng, 1, 12), *budgets = sd_malloc((size_t)n, sizeof *budgets);
        assert_non_null(budgets);
        for (int j = 0; j < n; j++) {
            budgets[j] = sd_random_int(rng, low, j > 0 ? budgets[j - 1] : n_layers);
        }
        first = budgets[0];
        options->budgets = budgets;
        options->n_budgets = n;
        options->max_layers = options->min_layers = options->horizon = 0;
    }
    int prompt = sd_random_int(rng, 0, 2);
    options->prompt = prompt == 0 ? SD_PROMPT_FULL : prompt == 1 ? SD_PROMPT_MAX : sd_random_int(rng, first, n_layers);
}
