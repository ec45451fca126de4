/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "tests/support/support.h"

static int reset(void **state)
{
    (void)state;
    sd_alloc_fail_at(0);
    return 0;
}

static void test_checked_arithmetic(void **state)
{
    (void)state;
    size_t x = 0;
    assert_true(sd_mul_size(SIZE_MAX / 3, 3, &x));
    assert_int_equal(x, SIZE_MAX / 3 * 3);
    assert_false(sd_mul_size(SIZE_MAX / 2 + 1, 2, &x));
    assert_true(sd_mul_size(SIZE_MAX, 0, &x));
    assert_int_equal(x, 0);
    assert_true(sd_add_size(SIZE_MAX - 1, 1, &x));
    assert_int_equal(x, SIZE_MAX);
    assert_false(sd_add_size(SIZE_MAX, 1, &x));
}

/* Through a variable the compiler does not see, which would otherwise warn about the sizes. */
static volatile size_t huge = SIZE_MAX / 2 + 1;

static void test_overflow_is_out_of_memory(void **state)
{
    (void)state;
    assert_null(sd_malloc(huge, 2));
    assert_null(sd_malloc_aligned(huge, 2));
    assert_null(sd_malloc_aligned(huge * 2 - 1, 1)); /* the product fits, the rounding up would not */
    void *block = sd_malloc(1, 8);
    assert_null(sd_realloc(block, huge, 2));
    memset(block, 1, 8); /* still ours */
    sd_free(block);
}

static void test_zero_bytes_are_a_block(void **state)
{
    (void)state;
    void *blocks[] = {sd_malloc(0, 8), sd_malloc(8, 0), sd_calloc(0, 0), sd_calloc(0, 8), sd_realloc(NULL, 0, 1)};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        assert_non_null(blocks[i]);
        sd_free(blocks[i]);
    }
    void *aligned = sd_malloc_aligned(0, 4);
    assert_non_null(aligned);
    sd_free_aligned(aligned);
    sd_free(NULL);
    sd_free_aligned(NULL);
}

static void test_contents(void **state)
{
    (void)state;
    unsigned char *zeros = sd_calloc(1000, 3);
    assert_non_null(zeros);
    for (size_t i = 0; i < 3000; i++) {
        assert_int_equal(zeros[i], 0);
    }
    memset(zeros, 7, 3000);
    zeros = sd_realloc(zeros, 5000, 1);
    assert_non_null(zeros);
    for (size_t i = 0; i < 3000; i++) {
        assert_int_equal(zeros[i], 7);
    }
    sd_free(zeros);
    char *copy = sd_strdup("text"), *part = sd_strndup("a\0bc", 3);
    assert_string_equal(copy, "text");
    assert_memory_equal(part, "a\0b\0", 4);
    sd_free(copy);
    sd_free(part);
}

static void test_alignment(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 63, 64, 65, 4095, 1 << 20, (4 << 20) - 1, 4 << 20, 9 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned char *block = sd_malloc_aligned(sizes[i], 1);
        assert_non_null(block);
        assert_int_equal((uintptr_t)block % 64, 0);
        memset(block, 1, sizes[i]);
        sd_free_aligned(block);
    }
}

static void *allocate_somehow(int how)
{
    switch (how) {
    case 0: return sd_malloc(1, 1);
    case 1: return sd_calloc(1, 1);
    case 2: return sd_realloc(NULL, 1, 1);
    case 3: return sd_strdup("x");
    case 4: return sd_strndup("x", 1);
    default: return sd_malloc_aligned(1, 1);
    }
}

static void test_fail_at(void **state)
{
    (void)state;
    enum { WAYS = 6 };
    for (int n = 1; n <= WAYS; n++) {
        sd_alloc_fail_at(n);
        for (int how = 0; how < WAYS; how++) {
            void *block = allocate_somehow(how);
            assert_int_equal(block == NULL, how + 1 == n);
            how == 5 ? sd_free_aligned(block) : sd_free(block);
        }
        assert_int_equal(sd_alloc_count(), WAYS);
    }
    sd_alloc_fail_at(0);
    assert_int_equal(sd_alloc_count(), 0);
    for (int i = 0; i < 10; i++) {
        void *block = sd_malloc(1, 1);
        assert_non_null(block);
        sd_free(block);
    }
    assert_int_equal(sd_alloc_count(), 10);
}

/* Runs in a child: what it allocates inside a promise of no allocation. */
static int status_of_child(void (*run)(void))
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGABRT, SIG_DFL);
        if (!freopen("/dev/null", "w", stderr)) {
            _exit(1);
        }
        run();
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void allocate_inside(void)
{
    sd_alloc_guard_begin("a test");
    sd_alloc_guard_begin("an inner part");
    sd_alloc_guard_end();
    sd_free(sd_malloc(1, 1));
    sd_alloc_guard_end();
}

static void allocate_outside(void)
{
    sd_alloc_guard_begin("a test");
    sd_alloc_guard_end();
    sd_free(sd_malloc(1, 1));
}

static void test_guard(void **state)
{
    (void)state;
    int status = status_of_child(allocate_outside);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    status = status_of_child(allocate_inside);
#ifdef SD_ALLOC_GUARD
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
#else
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_checked_arithmetic), cmocka_unit_test(test_overflow_is_out_of_memory),
        cmocka_unit_test(test_zero_bytes_are_a_block), cmocka_unit_test(test_contents),
        cmocka_unit_test(test_alignment), cmocka_unit_test_teardown(test_fail_at, reset), cmocka_unit_test(test_guard),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
