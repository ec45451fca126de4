/* SPDX-License-Identifier: MIT
 *
 * Efron's bootstrap over segments: Koehn, "Statistical significance tests for machine translation evaluation", 2004. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/rng.h"
#include "src/eval/score.h"

static void draw_seeded(void *context, uint32_t *index, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        index[i] = (uint32_t)sd_rng_below(context, n);
    }
}

int sd_bootstrap(double *scores, const sd_stats *const *stats, int n_stats, int resamples, uint64_t seed,
                 const sd_draw *draw, sd_error *err)
{
    const size_t n = n_stats > 0 ? stats[0]->n : 0;
    sd_rng rng;
    sd_rng_seed(&rng, seed);
    const sd_draw seeded = {draw_seeded, &rng};
    draw = draw ? draw : &seeded;
    uint32_t *index = n <= UINT32_MAX ? sd_malloc(n, sizeof *index) : NULL;
    if (!index) {
        return sd_fail_memory(err, n * sizeof *index, "resampling");
    }
    for (int r = 0; r < resamples && n > 0; r++) {
        draw->fn(draw->context, index, n);
        for (int k = 0; k < n_stats; k++) {
            double sums[SD_STATS_MAX] = {0};
            const size_t width = (size_t)stats[k]->width;
            for (size_t i = 0; i < n; i++) {
                const double *values = stats[k]->values + index[i] * width;
                for (size_t w = 0; w < width; w++) {
                    sums[w] += values[w];
                }
            }
            scores[(size_t)k * (size_t)resamples + (size_t)r] = sd_stats_score(stats[k], sums);
        }
    }
    sd_free(index);
    return SD_OK;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int sd_bootstrap_interval(sd_interval *out, const double *scores, int n, sd_error *err)
{
    *out = (sd_interval){0};
    double *sorted = sd_malloc((size_t)n, sizeof *sorted);
    if (!sorted) {
        return sd_fail_memory(err, (size_t)n * sizeof *sorted, "resampling");
    }
    memcpy(sorted, scores, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, compare);
    for (int i = 0; i < n; i++) {
        out->mean += sorted[i] / n;
    }
    const int cut = n / 40;
    out->low = sorted[cut];
    out->high = sorted[n - cut - 1];
    out->half = (out->high - out->low) / 2;
    sd_free(sorted);
    return SD_OK;
}

double sd_bootstrap_p(const double *a, const double *b, int n, double difference)
{
    double mean = 0;
    int beyond = 0;
    if (difference == 0) { /* by the rule below, no difference at all would be significant */
        return 1;
    }
    for (int i = 0; i < n; i++) {
        mean += fabs(a[i] - b[i]) / n;
    }
    for (int i = 0; i < n; i++) {
        beyond += fabs(a[i] - b[i]) - mean > fabs(difference);
    }
    return (beyond + 1.0) / (n + 1.0);
}
