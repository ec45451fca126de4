/* SPDX-License-Identifier: MIT
 *
 * The thread pool: every task once, no worker number twice at a time, callers take turns. Also run under the thread
 * sanitizer. */
#define _GNU_SOURCE
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "src/base/alloc.h"
#include "src/base/pool.h"
#include "src/base/rng.h"
#include "tests/support/support.h"

enum { MAX_TASKS = 500, MAX_WORKERS = 8 };

typedef struct round {
    int plain[MAX_TASKS]; /* written without atomics: the pool must order the writes before the caller's reads */
    int base;
    int n_tasks, size;
    atomic_int *active; /* [MAX_WORKERS] of the pool: tasks running under this worker number */
    atomic_int wrong;
} job_round;

static void run_task(void *context, int task, int worker)
{
    job_round *r = context;
    if (task < 0 || task >= r->n_tasks || worker < 0 || worker >= r->size) {
        atomic_fetch_add(&r->wrong, 1);
        return;
    }
    if (atomic_fetch_add(&r->active[worker], 1) != 0) {
        atomic_fetch_add(&r->wrong, 1);
    }
    r->plain[task] += r->base + task;
    for (volatile int i = 0; i < 200 + task % 7 * 50; i++) {
    }
    atomic_fetch_sub(&r->active[worker], 1);
}

static void run_round(sd_pool *pool, job_round *r, int n_tasks, atomic_int *active)
{
    memset(r, 0, sizeof *r);
    r->base = n_tasks * 3 + 1;
    r->n_tasks = n_tasks;
    r->size = sd_pool_size(pool);
    r->active = active;
    sd_pool_run(pool, n_tasks, run_task, r);
}

static int faults_of(job_round *r)
{
    int faults = atomic_load(&r->wrong);
    for (int i = 0; i < MAX_TASKS; i++) {
        faults += r->plain[i] != (i < r->n_tasks ? r->base + i : 0);
    }
    return faults;
}

static void test_every_task_once(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 3, 4, 8};
    sd_rng rng;
    sd_rng_seed(&rng, 3);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        sd_pool *pool;
        sd_error err = {0};
        sd_assert_ok(sd_pool_create(&pool, sizes[s], &err), &err);
        assert_int_equal(sd_pool_size(pool), sizes[s]);
        static atomic_int active[MAX_WORKERS];
        static job_round r;
        for (int i = 0; i < 2000; i++) {
            run_round(pool, &r, i < 20 ? i : (int)sd_rng_below(&rng, i % 50 == 0 ? MAX_TASKS : 20), active);
            assert_int_equal(faults_of(&r), 0);
        }
        sd_pool_free(pool);
    }
}

/* Workers that went to sleep between rounds wake up; a pool that never worked can be freed. */
static void test_sleep_and_wake(void **state)
{
    (void)state;
    sd_pool *pool;
    sd_error err = {0};
    sd_assert_ok(sd_pool_create(&pool, 4, &err), &err);
    static atomic_int active[MAX_WORKERS];
    static job_round r;
    for (int i = 0; i < 30; i++) {
        nanosleep(&(struct timespec){0, i % 3 * 1000000}, NULL);
        run_round(pool, &r, 9, active);
        assert_int_equal(faults_of(&r), 0);
    }
    sd_pool_free(pool);
    sd_assert_ok(sd_pool_create(&pool, 4, &err), &err);
    sd_pool_free(pool);
}

typedef struct caller {
    sd_pool *pool;
    atomic_int *active;
    int seed, faults;
} caller;

static void *call_often(void *argument)
{
    caller *c = argument;
    sd_rng rng;
    sd_rng_seed(&rng, (uint64_t)c->seed);
    job_round r;
    for (int i = 0; i < 500; i++) { /* often one task or none: these are somebody's turn too */
        run_round(c->pool, &r, (int)sd_rng_below(&rng, i % 2 ? 3 : 30), c->active);
        c->faults += faults_of(&r);
    }
    return NULL;
}

/* Several threads use one pool: a worker's number, and with it the worker's scratch memory, is never in use twice. */
static void test_callers_take_turns(void **state)
{
    (void)state;
    enum { CALLERS = 4 };
    for (int size = 1; size <= 3; size++) {
        sd_pool *pool;
        sd_error err = {0};
        sd_assert_ok(sd_pool_create(&pool, size, &err), &err);
        static atomic_int active[MAX_WORKERS];
        pthread_t threads[CALLERS];
        caller callers[CALLERS];
        for (int i = 0; i < CALLERS; i++) {
            callers[i] = (caller){pool, active, i, 0};
            assert_int_equal(pthread_create(&threads[i], NULL, call_often, &callers[i]), 0);
        }
        for (int i = 0; i < CALLERS; i++) {
            assert_int_equal(pthread_join(threads[i], NULL), 0);
            assert_int_equal(callers[i].faults, 0);
        }
        sd_pool_free(pool);
    }
}

static void test_run_allocates_nothing(void **state)
{
    (void)state;
    sd_pool *pool;
    sd_error err = {0};
    sd_assert_ok(sd_pool_create(&pool, 3, &err), &err);
    static atomic_int active[MAX_WORKERS];
    static job_round r;
    sd_alloc_fail_at(1);
    for (int i = 0; i < 100; i++) {
        run_round(pool, &r, 10, active);
    }
    const long allocations = sd_alloc_count();
    sd_alloc_fail_at(0);
    assert_int_equal(allocations, 0);
    sd_pool_free(pool);
}

static void test_sizes(void **state)
{
    (void)state;
    static const int wishes[] = {INT_MIN, -1, 0, 1, 300, INT_MAX}, sizes[] = {1, 1, 1, 1, 256, 256};
    for (size_t i = 0; i < 6; i++) {
        sd_pool *pool;
        sd_error err = {0};
        sd_assert_ok(sd_pool_create(&pool, wishes[i], &err), &err);
        assert_int_equal(sd_pool_size(pool), sizes[i]);
        sd_pool_free(pool);
    }
    sd_pool_free(NULL);
}

static void test_no_memory(void **state)
{
    (void)state;
    sd_error err = {0};
    sd_pool *pool;
    int failures = 0;
    for (long n = 1;; n++) {
        sd_alloc_fail_at(n);
        const int rc = sd_pool_create(&pool, 4, &err);
        sd_alloc_fail_at(0);
        if (rc == SD_OK) {
            break;
        }
        sd_assert_fails(rc, SD_ERR_MEMORY, &err, "out of memory");
        assert_null(pool);
        failures++;
    }
    sd_pool_free(pool);
    assert_in_range(failures, 1, 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_task_once), cmocka_unit_test(test_sleep_and_wake),
        cmocka_unit_test(test_callers_take_turns), cmocka_unit_test(test_run_allocates_nothing),
        cmocka_unit_test(test_sizes), cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
