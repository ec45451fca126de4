/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/cpu.h"
#include "src/base/log.h"
#include "tests/support/support.h"

static char *old_wish; /* of SKIPDECODE_CPU */

static int save(void **state)
{
    (void)state;
    const char *wish = getenv("SKIPDECODE_CPU");
    old_wish = wish ? strdup(wish) : NULL;
    return 0;
}

static int restore(void **state)
{
    (void)state;
    old_wish ? setenv("SKIPDECODE_CPU", old_wish, 1) : unsetenv("SKIPDECODE_CPU");
    free(old_wish);
    return 0;
}

static void test_detect(void **state)
{
    (void)state;
    const sd_cpu_level_id level = sd_cpu_detect();
    assert_in_range(level, SD_CPU_REF, SD_CPU_LEVELS - 1);
#if defined(__x86_64__)
    /* the compiler's own look at cpuid and XCR0 */
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    const bool has[SD_CPU_LEVELS] = {true, avx2, avx512, __builtin_cpu_supports("avx512vnni"),
                                     __builtin_cpu_supports("avx512bf16")};
    int highest = 0; /* a level includes the ones before it */
    while (highest + 1 < SD_CPU_LEVELS && has[highest + 1]) {
        highest++;
    }
    assert_int_equal(level, highest);
#else
    assert_int_equal(level, SD_CPU_REF);
#endif
}

static void test_select(void **state)
{
    (void)state;
    sd_cpu_level_id level;
    sd_error err = {0};
    static const char *const nothing[] = {NULL, ""};
    for (size_t i = 0; i < 2; i++) {
        nothing[i] ? setenv("SKIPDECODE_CPU", nothing[i], 1) : unsetenv("SKIPDECODE_CPU");
        sd_assert_ok(sd_cpu_select(&level, &err), &err);
        assert_int_equal(level, sd_cpu_detect());
    }
    for (int i = 0; i < SD_CPU_LEVELS; i++) {
        const char *name = sd_cpu_level_name((sd_cpu_level_id)i);
        setenv("SKIPDECODE_CPU", name, 1);
        if (i <= (int)sd_cpu_detect()) {
            sd_assert_ok(sd_cpu_select(&level, &err), &err);
            assert_int_equal(level, i);
            assert_string_equal(sd_cpu_level(), name);
        } else {
            sd_assert_fails(sd_cpu_select(&level, &err), SD_ERR_UNSUPPORTED, &err, name);
        }
    }
    static const char *const unknown[] = {"AVX2", "avx", "ref ", "avx512f", "0"};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        setenv("SKIPDECODE_CPU", unknown[i], 1);
        sd_assert_fails(sd_cpu_select(&level, &err), SD_ERR_ARG, &err, "expected " SD_CPU_LEVEL_NAMES);
    }
}

static void test_names(void **state)
{
    (void)state;
    assert_string_equal(sd_cpu_level_name(SD_CPU_REF), "ref");
    assert_string_equal(sd_cpu_level_name(SD_CPU_AVX2), "avx2");
    assert_string_equal(sd_cpu_level_name(SD_CPU_AVX512), "avx512");
    assert_string_equal(sd_cpu_level_name(SD_CPU_AVX512VNNI), "avx512vnni");
    assert_string_equal(sd_cpu_level_name(SD_CPU_AVX512BF16), "avx512bf16");
}

static void test_threads_follow_the_affinity(void **state)
{
    (void)state;
    cpu_set_t old, one;
    assert_int_equal(sched_getaffinity(0, sizeof old, &old), 0);
    const int threads = sd_cpu_default_threads();
    assert_in_range(threads, 1, CPU_COUNT(&old));
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &old)) {
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
            assert_int_equal(sd_cpu_default_threads(), 1);
        }
    }
    assert_int_equal(sched_setaffinity(0, sizeof old, &old), 0);
    assert_int_equal(sd_cpu_default_threads(), threads);
}

/* ---- the log ---- */

static char logged[2048];
static int log_calls;

static void keep(void *user, const char *message)
{
    assert_ptr_equal(user, logged);
    (void)strncpy(logged, message, sizeof logged - 1);
    log_calls++;
}

static void test_log(void **state)
{
    (void)state;
    sd_warn("nobody listens: %d", 1);
    assert_int_equal(log_calls, 0);
    sd_set_log(keep, logged);
    sd_warn("%s is %d", "x", 7);
    assert_string_equal(logged, "x is 7");
    char longer[4096];
    memset(longer, 'y', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    sd_warn("%s", longer);
    assert_int_equal(strspn(logged, "y"), strlen(logged));
    assert_in_range(strlen(logged), 1000, 1100);
    sd_set_log(NULL, NULL);
    sd_warn("nobody again");
    assert_int_equal(log_calls, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_detect), cmocka_unit_test_setup_teardown(test_select, save, restore),
        cmocka_unit_test(test_names), cmocka_unit_test(test_threads_follow_the_affinity), cmocka_unit_test(test_log),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
