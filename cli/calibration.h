/* SPDX-License-Identifier: MIT
 *
 * What decode steps cost on this machine, measured once and kept: one small file for each model, CPU, number of
 * threads, number of rows and length, in $XDG_CACHE_HOME/skipdecode or ~/.cache/skipdecode. */
#ifndef SD_CLI_CALIBRATION_H
#define SD_CLI_CALIBRATION_H

#include "src/generate/cost.h"

/* As sd_cost_measure, unless the cache knows the answer (*cached). A cache that is missing, damaged, of another machine
 * or not to be written is as good as none: never an error. */
int sd_calibrate(sd_cost *cost, const sd_model *model, int rows, int n_positions, bool *cached, sd_error *err);

#endif
