/* SPDX-License-Identifier: MIT
 *
 * Which examples a step trains on, and at which speed each. Everything follows from the seed and the number of the
 * epoch, so a place in the data is two numbers. */
#ifndef SD_TRAIN_BATCH_H
#define SD_TRAIN_BATCH_H

#include "src/train/data.h"

typedef struct sd_batch_options {
    int rows;       /* rows of a batch; 0: `tokens` says */
    int tokens;     /* about how many tokens, prompt and response, a batch has; 0: `rows` says */
    int accumulate; /* batches whose gradients make one step, >= 1 */
    int min_rows;   /* no batch has fewer: one row for each speed */
    uint64_t seed;
} sd_batch_options;

/* One epoch: every example once, in batches of similar length, the batches in random order. (With a remainder of fewer
 * than min_rows rows the last batch takes them too.) Release with sd_batcher_clear. */
typedef struct sd_batcher {
    const sd_dataset *data; /* borrowed */
    sd_batch_options options;
    int epoch;
    uint32_t *order;   /* [data->n] examples */
    uint32_t *starts;  /* [n_batches + 1] of each batch in `cuts` order */
    uint32_t *batches; /* [n_batches] the epoch's order of batches */
    size_t n_batches, cap;
    uint64_t *keys;    /* [data->n] for sorting */
} sd_batcher;

int sd_batcher_create(sd_batcher *batcher, const sd_dataset *data, const sd_batch_options *options, sd_error *err);
void sd_batcher_clear(sd_batcher *batcher); /* tolerates {0} */

/* Lays the epoch out: 0, 1, ... */
int sd_batcher_epoch(sd_batcher *batcher, int epoch, sd_error *err);
size_t sd_batcher_steps(const sd_batcher *batcher); /* of the epoch laid out; the last may have fewer batches */

/* Steps of the first `epochs` epochs. Leaves an epoch laid out, whichever. */
int sd_batcher_count(sd_batcher *batcher, int epochs, int64_t *steps, sd_error *err);

/* Examples of batch i of the epoch, longest first; borrowed until the next epoch. */
const uint32_t *sd_batcher_rows(const sd_batcher *batcher, size_t i, int *n_rows);

/* The speed, 0 .. n_speeds-1, of row r of a batch: each speed has the same number of rows but for a remainder, which
 * goes to another speed in the next batch, as do the longest rows. */
int sd_batch_speed(int64_t batch, int row, int n_speeds);

#endif
