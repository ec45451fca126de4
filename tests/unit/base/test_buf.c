/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/buf.h"
#include "tests/support/support.h"

static int reset(void **state)
{
    (void)state;
    sd_alloc_fail_at(0);
    return 0;
}

static void test_add(void **state)
{
    (void)state;
    sd_buf buf = {0};
    sd_buf_add(&buf, NULL, 0);
    assert_string_equal(buf.data, "");
    sd_buf_add(&buf, "a\0b", 3);
    sd_buf_add_str(&buf, "cd");
    sd_buf_printf(&buf, "%d-%s", 42, "x");
    sd_buf_printf(&buf, "%s", "");
    assert_int_equal(buf.len, 9);
    assert_memory_equal(buf.data, "a\0bcd42-x", 10); /* with the final NUL */
    sd_buf_clear(&buf);
    assert_int_equal(buf.len, 0);
    assert_string_equal(buf.data, "");
    sd_buf_free(&buf);
    assert_true(!buf.data && !buf.len && !buf.cap);
    sd_buf_clear(&buf);
    sd_buf_free(&buf);
}

static void test_grows_by_doubling(void **state)
{
    (void)state;
    sd_buf buf = {0};
    sd_alloc_fail_at(0);
    for (int i = 0; i < 1 << 20; i++) {
        sd_buf_add(&buf, "x", 1);
    }
    assert_int_equal(buf.len, 1 << 20);
    assert_false(buf.failed);
    assert_true(sd_alloc_count() <= 20);
    assert_int_equal(strspn(buf.data, "x"), 1 << 20);
    sd_buf_free(&buf);
}

static void test_reserve(void **state)
{
    (void)state;
    sd_buf buf = {0};
    assert_true(sd_buf_reserve(&buf, 1000));
    sd_alloc_fail_at(1);
    for (int i = 0; i < 1000; i++) {
        sd_buf_add(&buf, "x", 1); /* room enough: no allocation */
    }
    assert_false(buf.failed);
    assert_int_equal(sd_alloc_count(), 0);
    sd_buf_free(&buf);
}

/* After a failure nothing is added, what was there stays, and freeing makes the buffer new. */
static void test_failure_sticks(void **state)
{
    (void)state;
    sd_buf buf = {0};
    sd_buf_add_str(&buf, "kept");
    assert_false(sd_buf_reserve(&buf, SIZE_MAX - 2));
    assert_true(buf.failed);
    sd_buf_add_str(&buf, "x");
    sd_buf_printf(&buf, "%d", 1);
    assert_string_equal(buf.data, "kept");
    sd_buf_free(&buf);
    assert_false(buf.failed);
    for (long n = 1; n <= 2; n++) {
        sd_alloc_fail_at(n);
        sd_buf_add_str(&buf, "0123456789");
        sd_buf_printf(&buf, "%0100d", 7);
        assert_true(buf.failed);
        assert_int_equal(buf.len, n == 1 ? 0 : 10);
        sd_buf_free(&buf);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_add), cmocka_unit_test(test_grows_by_doubling),
        cmocka_unit_test_teardown(test_reserve, reset), cmocka_unit_test_teardown(test_failure_sticks, reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
