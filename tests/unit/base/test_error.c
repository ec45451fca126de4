/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <string.h>

#include "src/base/error.h"
#include "src/base/utf8.h"
#include "tests/support/support.h"

static void test_fail_fills_and_returns(void **state)
{
    (void)state;
    sd_error err;
    memset(&err, 'x', sizeof err);
    assert_int_equal(sd_fail(&err, SD_ERR_ARG, "%s: %d is outside %d .. %d", "rows", 9, 1, 8), SD_ERR_ARG);
    assert_int_equal(err.code, SD_ERR_ARG);
    assert_string_equal(err.message, "rows: 9 is outside 1 .. 8");
}

static void test_nobody_needs_the_message(void **state)
{
    (void)state;
    assert_int_equal(sd_fail(NULL, SD_ERR_STATE, "%s", "x"), SD_ERR_STATE);
    assert_int_equal(sd_fail_prefix(NULL, SD_ERR_FORMAT, "%s", "x"), SD_ERR_FORMAT);
    assert_int_equal(sd_fail_memory(NULL, 1, "x"), SD_ERR_MEMORY);
    errno = ENOENT;
    assert_int_equal(sd_fail_errno(NULL, "%s", "x"), SD_ERR_IO);
}

static void test_errno(void **state)
{
    (void)state;
    sd_error err;
    errno = ENOENT;
    assert_int_equal(sd_fail_errno(&err, "%s: cannot open", "a.json"), SD_ERR_IO);
    assert_string_equal(err.message, "a.json: cannot open: No such file or directory");
    errno = ENOMEM;
    assert_int_equal(sd_fail_errno(&err, "x"), SD_ERR_MEMORY);
    assert_int_equal(err.code, SD_ERR_MEMORY);
}

static void test_prefix(void **state)
{
    (void)state;
    sd_error err;
    (void)sd_fail(&err, SD_ERR_FORMAT, "key \"n\" is missing");
    assert_int_equal(sd_fail_prefix(&err, err.code, "%s/%s", "dir", "config.json"), SD_ERR_FORMAT);
    assert_string_equal(err.message, "dir/config.json: key \"n\" is missing");
}

static void test_memory_names_size_and_purpose(void **state)
{
    (void)state;
    sd_error err;
    assert_int_equal(sd_fail_memory(&err, 4096, "the KV cache"), SD_ERR_MEMORY);
    assert_non_null(strstr(err.message, "4096"));
    assert_non_null(strstr(err.message, "the KV cache"));
}

/* Whatever is cut, the rest is valid UTF-8 and as long as it can be. */
static void test_cut_between_characters(void **state)
{
    (void)state;
    static const char *const characters[] = {"a", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80"};
    char text[2048];
    for (size_t c = 0; c < 4; c++) {
        for (size_t shift = 0; shift < 4; shift++) {
            size_t n = shift;
            memset(text, '.', shift);
            while (n < sizeof text - 8) {
                memcpy(text + n, characters[c], strlen(characters[c]));
                n += strlen(characters[c]);
            }
            text[n] = '\0';
            sd_error err;
            (void)sd_fail(&err, SD_ERR_ARG, "%s", text);
            const size_t len = strlen(err.message), cap = sizeof err.message - 1;
            assert_true(sd_utf8_valid(err.message, len));
            assert_in_range(len, cap - (strlen(characters[c]) - 1), cap);
            (void)sd_fail_prefix(&err, SD_ERR_ARG, "12345");
            assert_memory_equal(err.message, "12345: ", 7);
            assert_true(sd_utf8_valid(err.message, strlen(err.message)));
            assert_in_range(strlen(err.message), cap - (strlen(characters[c]) - 1), cap);
        }
    }
}

/* Names come from files and may hold anything; a terminal and a log are not to be steered by them. */
static void test_message_is_clean_text(void **state)
{
    (void)state;
    sd_error err;
    (void)sd_fail(&err, SD_ERR_FORMAT, "tensor \"%s\": unknown", "a\x1B[2J\nb\x7F\xFF\xC3(\xE2\x82.");
    assert_string_equal(err.message, "tensor \"a?[2J?b??\?(\?\?.\": unknown");
    (void)sd_fail(&err, SD_ERR_FORMAT, "%s", "gr\xC3\xBC\xC3\x9F");
    assert_string_equal(err.message, "gr\xC3\xBC\xC3\x9F");
    errno = EIO;
    (void)sd_fail_errno(&err, "%s", "x\r\ny");
    assert_null(strpbrk(err.message, "\r\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fail_fills_and_returns), cmocka_unit_test(test_nobody_needs_the_message),
        cmocka_unit_test(test_errno), cmocka_unit_test(test_prefix),
        cmocka_unit_test(test_memory_names_size_and_purpose), cmocka_unit_test(test_cut_between_characters),
        cmocka_unit_test(test_message_is_clean_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
