/* SPDX-License-Identifier: MIT
 *
 * UTF-8 against the definition: which code points exist, and how they are written. */
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/rng.h"
#include "src/base/utf8.h"
#include "tests/support/support.h"

#define FFFD "\xEF\xBF\xBD"

static size_t write_code(uint32_t c, unsigned char *out)
{
    if (c < 0x80) {
        out[0] = (unsigned char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (unsigned char)(0xC0 | c >> 6);
        out[1] = (unsigned char)(0x80 | (c & 63));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (unsigned char)(0xE0 | c >> 12);
        out[1] = (unsigned char)(0x80 | (c >> 6 & 63));
        out[2] = (unsigned char)(0x80 | (c & 63));
        return 3;
    }
    out[0] = (unsigned char)(0xF0 | c >> 18);
    out[1] = (unsigned char)(0x80 | (c >> 12 & 63));
    out[2] = (unsigned char)(0x80 | (c >> 6 & 63));
    out[3] = (unsigned char)(0x80 | (c & 63));
    return 4;
}

/* Every code point, and every number that the bit pattern could also write. */
static void test_every_code(void **state)
{
    (void)state;
    for (uint32_t c = 0; c < 0x200000; c++) {
        unsigned char s[4];
        const size_t n = write_code(c, s);
        const bool exists = c <= 0x10FFFF && !(c >= 0xD800 && c <= 0xDFFF);
        assert_int_equal(sd_utf8_valid((const char *)s, n), exists);
        if (!exists) {
            assert_true(sd_utf8_next(s, n) < 0);
            continue;
        }
        assert_int_equal(sd_utf8_next(s, n), n);
        for (size_t part = 1; part < n; part++) {
            assert_int_equal(sd_utf8_next(s, part), 0);
        }
    }
}

/* No second way to write a code point. */
static void test_overlong(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xE0\x9F\xBF", "\xF0\x80\x80\x80", "\xF0\x8F\xBF\xBF"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        assert_int_equal(sd_utf8_next((const unsigned char *)texts[i], strlen(texts[i])), -1);
    }
}

static void expect_sanitized(const char *text, const char *want)
{
    sd_buf out = {0};
    sd_utf8_sanitize(&out, text, strlen(text));
    assert_string_equal(out.data, want);
    sd_buf_free(&out);
}

/* One U+FFFD per maximal subpart; the last two rows are the example of the Unicode standard, chapter 3. */
static void test_maximal_subparts(void **state)
{
    (void)state;
    expect_sanitized("plain", "plain");
    expect_sanitized("\xC3\xA9", "\xC3\xA9");
    expect_sanitized("a\xFF" "b", "a" FFFD "b");
    expect_sanitized("\x80\x80", FFFD FFFD);
    expect_sanitized("\xE2\x82", FFFD);
    expect_sanitized("\xE2\x82z", FFFD "z");
    expect_sanitized("\xE2\xE2\x82\xAC", FFFD "\xE2\x82\xAC");
    expect_sanitized("\xF0\x9F\x98\xC3\xA9", FFFD "\xC3\xA9");
    expect_sanitized("\xED\xA0\x80", FFFD FFFD FFFD);
    expect_sanitized("\xF4\x90\x80\x80", FFFD FFFD FFFD FFFD);
    expect_sanitized("a\xF1\x80\x80\xE1\x80\xC2" "b\x80" "c\x80\xBF" "d",
                     "a" FFFD FFFD FFFD "b" FFFD "c" FFFD FFFD "d");
    expect_sanitized("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82" "A", FFFD FFFD FFFD FFFD FFFD FFFD FFFD FFFD "A");
}

/* However a text is cut into pieces, the stream gives what the whole text gives, and every prefix of it is valid. */
static void test_stream(void **state)
{
    (void)state;
    static const unsigned char alphabet[] = {
        'a', 0x80, 0xBF, 0xC3, 0xE0, 0xA0, 0xE2, 0x82, 0xED, 0xF0, 0x9F, 0xF4, 0x8F, 0xFF};
    sd_rng rng;
    sd_rng_seed(&rng, 11);
    for (int round = 0; round < 20000; round++) {
        char text[12];
        const size_t n = (size_t)sd_rng_below(&rng, sizeof text + 1);
        for (size_t i = 0; i < n; i++) {
            text[i] = (char)alphabet[sd_rng_below(&rng, sizeof alphabet)];
        }
        sd_buf whole = {0}, pieces = {0};
        sd_utf8_sanitize(&whole, text, n);
        sd_utf8_stream stream = {0};
        for (size_t at = 0; at < n;) {
            const size_t some = (size_t)sd_rng_below(&rng, n - at + 1);
            sd_utf8_push(&stream, text + at, some, &pieces);
            assert_in_range(stream.n_held, 0, 3);
            assert_true(sd_utf8_valid(pieces.data ? pieces.data : "", pieces.len));
            at += some;
        }
        sd_utf8_flush(&stream, &pieces);
        sd_utf8_flush(&stream, &pieces); /* nothing more */
        assert_int_equal(whole.len, pieces.len);
        assert_memory_equal(whole.data ? whole.data : "", pieces.data ? pieces.data : "", whole.len);
        sd_buf_free(&whole);
        sd_buf_free(&pieces);
    }
}

static void test_stream_holds_only_what_is_unfinished(void **state)
{
    (void)state;
    sd_utf8_stream stream = {0};
    sd_buf out = {0};
    sd_utf8_push(&stream, "x\xF0\x9F", 3, &out);
    assert_string_equal(out.data, "x");
    sd_utf8_push(&stream, "\x98", 1, &out);
    assert_string_equal(out.data, "x");
    sd_utf8_push(&stream, "\x80y", 2, &out);
    assert_string_equal(out.data, "x\xF0\x9F\x98\x80y");
    sd_utf8_push(&stream, "\xC3", 1, &out);
    sd_utf8_flush(&stream, &out);
    assert_string_equal(out.data, "x\xF0\x9F\x98\x80y" FFFD);
    sd_buf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_code), cmocka_unit_test(test_overlong), cmocka_unit_test(test_maximal_subparts),
        cmocka_unit_test(test_stream), cmocka_unit_test(test_stream_holds_only_what_is_unfinished),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
