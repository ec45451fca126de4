/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "cli/ranks.h"

#include <stdlib.h>

/* How many processes the launcher says there are; 1: it says nothing. */
static int launched(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *text = getenv(names[i]);
        if (text) {
            return atoi(text);
        }
    }
    return 1;
}

#ifdef SD_HAVE_MPI

#include <mpi.h>

int sd_ranks_begin(sd_ranks *r, sd_error *err)
{
    *r = (sd_ranks){0, 1};
    if (launched() <= 1) {
        return SD_OK; /* alone: MPI would start its helpers for nothing */
    }
    int level;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level) != MPI_SUCCESS || level < MPI_THREAD_FUNNELED) {
        return sd_fail(err, SD_ERR_IO, "MPI does not start, or allows no threads");
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &r->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &r->n);
    return SD_OK;
}

void sd_ranks_end(const sd_ranks *r, bool failed)
{
    if (r->n > 1 && failed) {
        MPI_Abort(MPI_COMM_WORLD, 1);
    } else if (r->n > 1) {
        MPI_Finalize();
    }
}

static void sum(const sd_ranks *r, void *values, size_t n, size_t size, MPI_Datatype type)
{
    enum { AT_ONCE = 1 << 26 }; /* a count is an int */
    for (size_t at = 0; r->n > 1 && at < n; at += AT_ONCE) {
        const size_t some = n - at < AT_ONCE ? n - at : AT_ONCE;
        MPI_Allreduce(MPI_IN_PLACE, (char *)values + at * size, (int)some, type, MPI_SUM, MPI_COMM_WORLD);
    }
}

void sd_ranks_sum_f32(void *context, float *values, size_t n) { sum(context, values, n, sizeof *values, MPI_FLOAT); }

void sd_ranks_sum_f64(void *context, double *values, size_t n) { sum(context, values, n, sizeof *values, MPI_DOUBLE); }

int64_t sd_ranks_max(const sd_ranks *r, int64_t value)
{
    if (r->n > 1) {
        MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
    }
    return value;
}

#else

int sd_ranks_begin(sd_ranks *r, sd_error *err)
{
    *r = (sd_ranks){0, 1};
    return launched() <= 1 ? SD_OK
                           : sd_fail(err, SD_ERR_UNSUPPORTED,
                                     "started as one of %d processes, and this program is built "
                                     "without MPI; install it (tools/install-deps mpi) and build again",
                                     launched());
}

void sd_ranks_end(const sd_ranks *r, bool failed)
{
    (void)r;
    (void)failed;
}

void sd_ranks_sum_f32(void *context, float *values, size_t n)
{
    (void)context;
    (void)values;
    (void)n;
}

void sd_ranks_sum_f64(void *context, double *values, size_t n)
{
    (void)context;
    (void)values;
    (void)n;
}

int64_t sd_ranks_max(const sd_ranks *r, int64_t value)
{
    (void)r;
    return value;
}

#endif
