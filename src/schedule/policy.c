/* SPDX-License-Identifier: MIT
 *
 * The policies that SkipDecode is compared with, as rankings and budgets: nothing else in the engine knows them
 * (docs/METHOD.md, Comparators). */
#include <math.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/error.h"
#include "src/schedule/schedule.h"

/* From the bottom up: what is given up first is the top. */
static void rank_early_exit(int *ranking, int n)
{
    for (int i = 0; i < n; i++) {
        ranking[i] = i;
    }
}

/* The last layer, the first, then the middle of the widest gap, the upper one of two that are as wide: at every budget
 * the layers that run are as evenly apart as nested sets can be. */
static void rank_spread(int *ranking, int n, bool *runs)
{
    memset(runs, 0, (size_t)n * sizeof *runs);
    for (int i = 0; i < n; i++) {
        int next = i == 0 ? n - 1 : 0;
        if (i > 1) {
            int widest = 0;
            for (int above = n - 1, l = n - 2; l >= 0; l--) {
                if (runs[l]) {
                    const int gap = above - l;
                    if (gap > widest) {
                        widest = gap;
                        next = l + gap / 2;
                    }
                    above = l;
                }
            }
        }
        ranking[i] = next;
        runs[next] = true;
    }
}

/* k layers evenly apart, first and last among them (one alone: the last), before all others. */
static void rank_unified(int *ranking, int n, int k, bool *runs)
{
    memset(runs, 0, (size_t)n * sizeof *runs);
    int at = 0;
    for (int i = 0; i < k; i++) {
        const int l = k > 1 ? (i * (n - 1) + (k - 1) / 2) / (k - 1) : n - 1;
        ranking[at++] = l;
        runs[l] = true;
    }
    for (int l = 0; l < n; l++) {
        if (!runs[l]) {
            ranking[at++] = l;
        }
    }
}

bool sd_schedule_is_policy(const char *name, bool *constant)
{
    *constant = strcmp(name, "unified") == 0;
    return *constant || strcmp(name, "skipdecode") == 0 || strcmp(name, "early-exit") == 0 ||
           strcmp(name, "spread") == 0;
}

static void drop_ranking(sd_schedule_options *options)
{
    sd_free((void *)(uintptr_t)options->ranking);
    options->ranking = NULL;
    options->n_ranking = 0;
}

int sd_schedule_policy(sd_schedule_options *options, const char *name, int n_layers, double speedup, sd_error *err)
{
    bool constant = false;
    if (!sd_schedule_is_policy(name, &constant)) {
        return sd_fail(err, SD_ERR_ARG, "policy \"%s\"; expected skipdecode, early-exit, spread or unified", name);
    }
    int rc = sd_schedule_preset(options, n_layers, speedup, err);
    if (rc != SD_OK || strcmp(name, "skipdecode") == 0) {
        return rc;
    }
    drop_ranking(options);
    int *ranking = sd_malloc((size_t)n_layers, sizeof *ranking);
    bool *runs = sd_malloc((size_t)n_layers, sizeof *runs);
    if (!ranking || !runs) {
        sd_free(ranking);
        sd_free(runs);
        return sd_fail_memory(err, (size_t)n_layers * sizeof *ranking, "a ranking");
    }
    if (constant) {
        const int k = (int)floor(n_layers / speedup + 0.5 + 1e-9);
        options->max_layers = options->min_layers = k < 1 ? 1 : k;
        rank_unified(ranking, n_layers, options->max_layers, runs);
    } else if (strcmp(name, "spread") == 0) {
        rank_spread(ranking, n_layers, runs);
    } else {
        rank_early_exit(ranking, n_layers);
    }
    sd_free(runs);
    options->ranking = ranking;
    options->n_ranking = n_layers;
    return SD_OK;
}
