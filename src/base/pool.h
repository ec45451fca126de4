/* SPDX-License-Identifier: MIT
 *
 * The one pool of threads. Work is a function over task numbers; who runs which task must never change a result. */
#ifndef SD_BASE_POOL_H
#define SD_BASE_POOL_H

#include "src/base/error.h"

typedef struct sd_pool sd_pool;

/* n_threads counts the calling thread: 1 starts none. Clamped to 1 .. 256. *out is the caller's. */
int sd_pool_create(sd_pool **out, int n_threads, sd_error *err);
void sd_pool_free(sd_pool *pool);
int sd_pool_size(const sd_pool *pool);

typedef void (*sd_task_fn)(void *context, int task, int worker); /* worker: 0 .. size-1, for per-worker scratch */

/* Runs fn for task 0 .. n_tasks-1 and returns when all are done. Allocates nothing. Callers on several threads take
 * turns. fn must not call it again. */
void sd_pool_run(sd_pool *pool, int n_tasks, sd_task_fn fn, void *context);

#endif
