/* SPDX-License-Identifier: MIT
 *
 * The directory that a training run writes, with its checkpoints. A checkpoint is a directory of its own,
 * checkpoint-<step>, written under another name, synced and renamed: one that has its name is whole. The one before
 * goes when the next is whole, so that there is always one, whenever the process or the machine stops. */
#ifndef SD_TRAIN_RUNDIR_H
#define SD_TRAIN_RUNDIR_H

#include <stdint.h>

#include "src/base/error.h"

typedef struct sd_run_dir {
    char *dir;
    int lock;       /* the open directory; -1: none */
    bool made;      /* by this process */
    int64_t latest; /* step of the newest checkpoint; -1: none */
} sd_run_dir;

/* Makes the directory where there is none, locks it against a second run, and looks for checkpoints. Start from {0};
 * release with sd_run_dir_leave. */
int sd_run_dir_enter(sd_run_dir *run, const char *dir, sd_error *err);

/* remove_if_empty: a directory that this process made goes again. */
void sd_run_dir_leave(sd_run_dir *run, bool remove_if_empty); /* tolerates {0} after a failed enter */

/* The path of a file of the newest checkpoint; the caller's. NULL when memory is out. */
char *sd_run_dir_latest_file(const sd_run_dir *run, const char *name);

/* An empty directory for the checkpoint of `step`, under a name that does not count yet: *path is the caller's. */
int sd_run_dir_begin(sd_run_dir *run, int64_t step, char **path, sd_error *err);

/* All files are in: syncs them, gives the directory its name, then removes the other checkpoints. After an error the
 * directory is the caller's to abandon. */
int sd_run_dir_commit(sd_run_dir *run, int64_t step, const char *path, sd_error *err);

/* Removes what begin made. */
void sd_run_dir_abandon(const char *path);

/* Removes all checkpoints, whole or not; what cannot be removed stays. */
void sd_run_dir_remove_checkpoints(sd_run_dir *run);

#endif
