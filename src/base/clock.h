/* SPDX-License-Identifier: MIT */
#ifndef SD_BASE_CLOCK_H
#define SD_BASE_CLOCK_H

#include <time.h>

/* Seconds on a clock that never jumps; only differences mean anything. */
static inline double sd_clock_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

#endif
