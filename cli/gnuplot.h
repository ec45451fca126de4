/* SPDX-License-Identifier: MIT */
#ifndef SD_CLI_GNUPLOT_H
#define SD_CLI_GNUPLOT_H

#include <stdio.h>

#include "src/base/error.h"

/* Has gnuplot draw the picture `path`, which appears when it is whole, and says so on stderr. `write` gives gnuplot
 * commands and data; it starts with the terminal, and sets no output. */
int sd_gnuplot(const char *path, void (*write)(const void *context, FILE *to), const void *context, sd_error *err);

/* What sd_gnuplot would fail by: to be asked before long work. */
int sd_gnuplot_check(const char *path, sd_error *err);

#endif
