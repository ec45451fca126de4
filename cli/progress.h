/* SPDX-License-Identifier: MIT */
#ifndef SD_CLI_PROGRESS_H
#define SD_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

/* A bar with rate and time left on stderr, at most ten times a second; nothing where stderr is no terminal. */
typedef struct sd_progress {
    bool on;
    double start, shown;
    int64_t total, done; /* rows, or what `unit` says */
    const char *unit;    /* NULL: rows, with their tokens a second */
    const char *note;    /* shown behind; NULL: nothing */
    int64_t tokens;
    double work_total, work_done; /* tokens at most, for the time left */
} sd_progress;

void sd_progress_start(sd_progress *progress, int64_t total_rows, double total_work, bool quiet);
void sd_progress_tick(sd_progress *progress);  /* after changing done, tokens, work_done */
void sd_progress_clear(sd_progress *progress); /* wipes the line */

#endif
