/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "src/base/pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "src/base/alloc.h"

#if defined(__x86_64__)
#define cpu_relax() __builtin_ia32_pause()
#else
#define cpu_relax() __asm__ volatile("" ::: "memory")
#endif

/* Long enough to catch the next operation of the same forward pass (a few microseconds away), short enough that an idle
 * session or an oversubscribed machine does not burn a core: about 20 us. */
enum { SPINS = 2000, MAX_THREADS = 256 };

struct sd_pool {
    int size;
    pthread_t threads[MAX_THREADS];
    int started;

    pthread_mutex_t turn; /* held by the caller of sd_pool_run */

    /* One round of work. `round` is bumped to publish it; workers report through `busy`. */
    sd_task_fn fn;
    void *context;
    int n_tasks;
    atomic_int next;
    atomic_uint round;
    atomic_int busy;
    atomic_bool quit;

    pthread_mutex_t lock; /* guards sleeping on either condition */
    pthread_cond_t wake, done;
    atomic_int sleepers;
    atomic_bool caller_sleeps;
};

typedef struct sd_worker {
    sd_pool *pool;
    int index;
} sd_worker;

static void work(sd_pool *pool, int worker)
{
    for (;;) {
        int task = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed);
        if (task >= pool->n_tasks) {
            return;
        }
        pool->fn(pool->context, task, worker);
    }
}

/* Spins, then sleeps, until a round other than `seen` is published. */
static unsigned await_round(sd_pool *pool, unsigned seen)
{
    for (int i = 0; i < SPINS; i++) {
        unsigned round = atomic_load_explicit(&pool->round, memory_order_acquire);
        if (round != seen) {
            return round;
        }
        cpu_relax();
    }
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_add(&pool->sleepers, 1);
    unsigned round;
    while ((round = atomic_load(&pool->round)) == seen) {
        pthread_cond_wait(&pool->wake, &pool->lock);
    }
    atomic_fetch_sub(&pool->sleepers, 1);
    pthread_mutex_unlock(&pool->lock);
    return round;
}

static void *worker_main(void *argument)
{
    sd_worker self = *(sd_worker *)argument;
    sd_free(argument);
    sd_pool *pool = self.pool;
    unsigned seen = 0;
    for (;;) {
        seen = await_round(pool, seen);
        if (atomic_load(&pool->quit)) {
            return NULL;
        }
        work(pool, self.index);
        if (atomic_fetch_sub(&pool->busy, 1) == 1 && atomic_load(&pool->caller_sleeps)) {
            pthread_mutex_lock(&pool->lock);
            pthread_cond_signal(&pool->done);
            pthread_mutex_unlock(&pool->lock);
        }
    }
}

static void publish(sd_pool *pool)
{
    atomic_fetch_add(&pool->round, 1);
    if (atomic_load(&pool->sleepers) > 0) {
        pthread_mutex_lock(&pool->lock);
        pthread_cond_broadcast(&pool->wake);
        pthread_mutex_unlock(&pool->lock);
    }
}

static void await_done(sd_pool *pool)
{
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&pool->busy, memory_order_acquire) == 0) {
            return;
        }
        cpu_relax();
    }
    pthread_mutex_lock(&pool->lock);
    atomic_store(&pool->caller_sleeps, true);
    while (atomic_load(&pool->busy) != 0) {
        pthread_cond_wait(&pool->done, &pool->lock);
    }
    atomic_store(&pool->caller_sleeps, false);
    pthread_mutex_unlock(&pool->lock);
}

void sd_pool_run(sd_pool *pool, int n_tasks, sd_task_fn fn, void *context)
{
    pthread_mutex_lock(&pool->turn); /* even for work that needs no help: worker 0 and its scratch are taken */
    if (pool->size == 1 || n_tasks <= 1) {
        for (int i = 0; i < n_tasks; i++) {
            fn(context, i, 0);
        }
        pthread_mutex_unlock(&pool->turn);
        return;
    }
    pool->fn = fn;
    pool->context = context;
    pool->n_tasks = n_tasks;
    atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
    atomic_store(&pool->busy, pool->size - 1);
    publish(pool);
    work(pool, 0);
    await_done(pool);
    pthread_mutex_unlock(&pool->turn);
}

int sd_pool_size(const sd_pool *pool) { return pool->size; }

static int start_worker(sd_pool *pool, int index, sd_error *err)
{
    sd_worker *self = sd_malloc(1, sizeof *self);
    if (!self) {
        return sd_fail_memory(err, sizeof *self, "a worker thread");
    }
    *self = (sd_worker){pool, index};
    int rc = pthread_create(&pool->threads[index], NULL, worker_main, self);
    if (rc != 0) {
        sd_free(self);
        return sd_fail(err, SD_ERR_IO, "cannot start thread %d of %d (system error %d): try fewer with --threads",
                       index + 1, pool->size, rc);
    }
    pool->started++;
    return SD_OK;
}

int sd_pool_create(sd_pool **out, int n_threads, sd_error *err)
{
    *out = NULL;
    sd_pool *pool = sd_calloc(1, sizeof *pool);
    if (!pool) {
        return sd_fail_memory(err, sizeof *pool, "the thread pool");
    }
    pool->size = n_threads < 1 ? 1 : n_threads > MAX_THREADS ? MAX_THREADS : n_threads;
    pthread_mutex_init(&pool->turn, NULL);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pthread_cond_init(&pool->done, NULL);
    for (int i = 1; i < pool->size; i++) {
        int rc = start_worker(pool, i, err);
        if (rc != SD_OK) {
            sd_pool_free(pool);
            return rc;
        }
    }
    *out = pool;
    return SD_OK;
}

void sd_pool_free(sd_pool *pool)
{
    if (!pool) {
        return;
    }
    atomic_store(&pool->quit, true);
    publish(pool);
    for (int i = 1; i <= pool->started; i++) {
        pthread_join(pool->threads[i], NULL);
    }
    pthread_cond_destroy(&pool->done);
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->lock);
    pthread_mutex_destroy(&pool->turn);
    sd_free(pool);
}
