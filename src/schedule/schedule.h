/* SPDX-License-Identifier: MIT
 *
 * Which layers run at which step: pure functions of a ranking and a non-increasing budget (docs/METHOD.md). Knows
 * neither weights nor KV caches. The public calls are in skipdecode.h. */
#ifndef SD_SCHEDULE_SCHEDULE_H
#define SD_SCHEDULE_SCHEDULE_H

#include "include/skipdecode/skipdecode.h"
#include "src/base/buf.h"

/* Does sd_schedule_policy know the name? *constant: its set of layers does not change over the steps. */
bool sd_schedule_is_policy(const char *name, bool *constant);

/* rank[l] of every layer: [n_layers], borrowed. Layer l runs under budget k iff rank[l] < k. */
const int *sd_schedule_ranks(const sd_schedule *schedule);

/* True if the two give layers up in the same order, so that their rows can share a batch. Where neither ever runs fewer
 * than all layers the order does not matter. */
bool sd_schedule_same_ranking(const sd_schedule *a, const sd_schedule *b);
bool sd_schedule_is_full(const sd_schedule *schedule); /* all layers, prompt and every step */

int sd_schedule_horizon(const sd_schedule *schedule);  /* steps until the budget is down at its last value, >= 1 */

/* The canonical text that sd_schedule_parse reads back into the same schedule; borrowed. */
const char *sd_schedule_text(const sd_schedule *schedule);

/* Appends a picture of layers (rows, the top one first) against steps (columns, at most `width`, each the budget of its
 * first step): a full block where the layer runs, a dot where it is bypassed. UTF-8, ends with a newline. */
void sd_schedule_draw(const sd_schedule *schedule, int steps, int width, sd_buf *out);

#endif
