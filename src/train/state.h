/* SPDX-License-Identifier: MIT
 *
 * What a checkpoint says beside its weights, as JSON: where the run is, and the settings that it must go on with. */
#ifndef SD_TRAIN_STATE_H
#define SD_TRAIN_STATE_H

#include <jansson.h>

#include "src/train/loop.h"

typedef struct sd_train_state {
    sd_trainer_position at;
    int64_t best_step;   /* of the lowest loss on the dev data; -1: none yet */
    double best_loss;
    int64_t waiting;     /* evaluations since then */
    int64_t evaluated;   /* the step of the last one */
    int64_t log_bytes;   /* of the log when this was saved */
    double elapsed;      /* seconds of training, over all processes */
} sd_train_state;

/* The same as text, to the last bit of every number. settings: an object of option names and what they were. */
int sd_train_state_save(const sd_train_state *state, const json_t *settings, const char *path, sd_error *err);

/* *settings is the caller's. */
int sd_train_state_load(sd_train_state *state, json_t **settings, const char *path, sd_error *err);

/* Fails by the name of the first setting that is not the same. */
int sd_train_settings_compare(const json_t *now, const json_t *before, sd_error *err);

#endif
