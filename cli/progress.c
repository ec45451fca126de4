/* SPDX-License-Identifier: MIT */
#include "cli/progress.h"

#include <stdio.h>
#include <unistd.h>

#include "src/base/clock.h"

enum { BAR = 24 };

void sd_progress_start(sd_progress *p, int64_t total_rows, double total_work, bool quiet)
{
    *p = (sd_progress){.on = !quiet && isatty(STDERR_FILENO), .start = sd_clock_seconds(), .total = total_rows,
                       .work_total = total_work};
}

void sd_progress_tick(sd_progress *p)
{
    double now = p->on ? sd_clock_seconds() : 0;
    if (!p->on || now - p->shown < 0.1) {
        return;
    }
    p->shown = now;
    double seconds = now - p->start, share = p->work_total > 0 ? p->work_done / p->work_total : 0;
    share = share > 1 ? 1 : share;
    char bar[BAR + 1];
    for (int i = 0; i < BAR; i++) {
        bar[i] = i < (int)(share * BAR) ? '#' : '.';
    }
    bar[BAR] = '\0';
    int left = share > 0.01 ? (int)(seconds / share - seconds) : -1;
    fprintf(stderr, "\r[%s] %lld/%lld %s  ", bar, (long long)p->done, (long long)p->total, p->unit ? p->unit : "rows");
    if (!p->unit || p->note) {
        fprintf(stderr, "%.0f tokens/s  ", seconds > 0 ? (double)p->tokens / seconds : 0.0);
    }
    if (p->note) {
        fprintf(stderr, "%s  ", p->note);
    }
    left >= 0 ? (void)fprintf(stderr, "%d:%02d left ", left / 60, left % 60) : (void)fputs("       ", stderr);
    fputs("\033[K", stderr);
}

void sd_progress_clear(sd_progress *p)
{
    if (p->on && p->shown > 0) {
        fputs("\r\033[K", stderr);
    }
}
