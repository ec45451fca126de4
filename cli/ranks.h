/* SPDX-License-Identifier: MIT
 *
 * The processes that `mpirun -n N skipdecode ...` starts, one on each machine or several: who this one is, and sums
 * over all of them. Without MPI, or started alone, there is one process and sums are what they were. */
#ifndef SD_CLI_RANKS_H
#define SD_CLI_RANKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/error.h"

typedef struct sd_ranks {
    int rank, n; /* rank 0 reads and writes files and talks */
} sd_ranks;

/* Joins the others. Fails where the program was started as one of several and is built without MPI: each would do all
 * of the work. */
int sd_ranks_begin(sd_ranks *ranks, sd_error *err);

/* failed: this process cannot go on; the others, who would wait for it, are ended too. */
void sd_ranks_end(const sd_ranks *ranks, bool failed);

/* Element by element over all processes, each of which gets the same sums. context: an sd_ranks. */
void sd_ranks_sum_f32(void *context, float *values, size_t n);
void sd_ranks_sum_f64(void *context, double *values, size_t n);

/* The largest of all processes' values. */
int64_t sd_ranks_max(const sd_ranks *ranks, int64_t value);

#endif
