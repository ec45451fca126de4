/* SPDX-License-Identifier: MIT
 *
 * GPT-2's pattern: where text is cut. Each case is written as its pieces. */
#include <stdlib.h>
#include <string.h>

#include "src/tokenizer/pattern.h"
#include "tests/support/support.h"

static sd_pattern *pattern;
static sd_matcher *matcher;

static int setup(void **state)
{
    bool jit = *(bool *)*state;
    sd_error err = {0};
    sd_assert_ok(sd_pattern_create(&pattern, jit, &err), &err);
    sd_assert_ok(sd_matcher_create(&matcher, pattern, &err), &err);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sd_matcher_free(matcher);
    sd_pattern_free(pattern);
    return 0;
}

static size_t next(const char *text, size_t len, size_t at)
{
    size_t piece = 0;
    sd_error err = {0};
    sd_assert_ok(sd_pattern_next(pattern, matcher, text, len, at, &piece, &err), &err);
    assert_true(piece >= 1 && piece <= len - at);
    return piece;
}

static void expect_pieces(const char *const *pieces)
{
    char text[512] = "";
    for (size_t i = 0; pieces[i]; i++) {
        strcat(text, pieces[i]);
    }
    size_t len = strlen(text), at = 0;
    for (size_t i = 0; pieces[i]; i++) {
        size_t n = next(text, len, at);
        if (n != strlen(pieces[i])) {
            fail_msg("in \"%s\" piece %zu is \"%.*s\", expected \"%s\"", text, i, (int)n, text + at, pieces[i]);
        }
        at += n;
    }
    assert_int_equal(at, len);
}

#define PIECES(...) expect_pieces((const char *const[]){__VA_ARGS__, NULL})

static void test_words_numbers_punctuation(void **state)
{
    (void)state;
    PIECES("The", " quick", " brown", " fox", ".");
    PIECES("abc", "123", "def", "4");
    PIECES("name", "[", "The", " Eagle", "],", " price", "[£", "20", "-", "25", "]");
    PIECES(" ", " hello");
    PIECES("a", "_", "b");
    PIECES(" 1", " !?", " x");
    PIECES("e", "\xCC\x81"); /* a combining accent is no letter */
    PIECES("\xE4\xB8\xAD\xE6\x96\x87", "\xE3\x80\x82", "\xE4\xB8\xAD");
    PIECES("x", "\xC2\xB2\xC2\xBD\xD9\xA1\xE2\x85\xA7", "y"); /* superscript, fraction, Arabic, Roman: all \p{N} */
    PIECES(" \xF0\x9F\x98\x80\xF0\x9F\x91\x8D\xF0\x9F\x8F\xBD", " ok");
}

static void test_contractions(void **state)
{
    (void)state;
    PIECES("it", "'s", " don", "'t", " we", "'re", " I", "'ve", " I", "'m", " you", "'ll", " he", "'d");
    PIECES("it", "'", "S"); /* capitals are none */
    PIECES("'s", "tand");   /* even at the beginning of a word */
    PIECES("x", "'", "x");
    PIECES("a", " '", "s"); /* the space belongs to the punctuation */
    PIECES("a", "''", "s"); /* punctuation is greedy */
    PIECES("a", "'ll", "ama");
    PIECES("a", "\xE2\x80\x99", "s");
}

static void test_white_space(void **state)
{
    (void)state;
    PIECES("a", "  ", " b");      /* the last space goes to the word */
    PIECES("a", "\n", "\n", "b"); /* any other white character stays behind, alone */
    PIECES("a", "\n\n", " b");
    PIECES("a", " ", "\n", "b");
    PIECES("a", "   ");
    PIECES("  ");
    PIECES("a", "\t", "\t", "b");
    PIECES("a", "\r\n", "\t", "b");
    PIECES("a", "\xC2\xA0", "b");
    PIECES("a", " \xE3\x80\x80", " b");
    PIECES("a", "\xE3\x80\x80", "\xE3\x80\x80", "1");
    PIECES("a", "  ", " !");
    PIECES("a", " ", " 1");
}

static size_t put_utf8(unsigned c, char *out)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, c >>= 6) {
        out[i] = (char)(0x80u | (c & 0x3Fu));
    }
    out[0] = (char)((n == 2 ? 0xC0u : n == 3 ? 0xE0u : 0xF0u) | c);
    return n;
}

/* Behind a newline, exactly the characters with Unicode's White_Space stay in the newline's piece. That leaves out
 * U+180E, U+200B and U+FEFF, and U+001C .. U+001F. */
static void test_every_white_character(void **state)
{
    (void)state;
    static const unsigned white[] = {0x9,    0xA,    0xB,    0xC,    0xD,    0x20,   0x85,   0xA0,   0x1680,
                                     0x2000, 0x2001, 0x2002, 0x2003, 0x2004, 0x2005, 0x2006, 0x2007, 0x2008,
                                     0x2009, 0x200A, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000};
    size_t found = 0;
    for (unsigned c = 0; c < 0x110000; c++) {
        if (c >= 0xD800 && c < 0xE000) {
            continue;
        }
        char text[8] = "\n";
        size_t len = 1 + put_utf8(c, text + 1);
        if (next(text, len, 0) == len) {
            if (found >= sizeof white / sizeof white[0] || white[found] != c) {
                fail_msg("U+%04X is taken for white space", c);
            }
            found++;
        }
    }
    assert_int_equal(found, sizeof white / sizeof white[0]);
}

/* Every character is in exactly one class: whatever is between, no text fails to be cut, and the pieces tile it. */
static void test_every_character_is_cut(void **state)
{
    (void)state;
    for (unsigned c = 0; c < 0x110000; c += c < 0x3000 ? 1 : 7) {
        if (c >= 0xD800 && c < 0xE000) {
            continue;
        }
        char text[16] = " ";
        size_t len = 1 + put_utf8(c, text + 1);
        len += put_utf8(c, text + len);
        for (size_t at = 0; at < len;) {
            at += next(text, len, at);
        }
    }
}

/* Neither the stack of the compiled pattern nor a limit of the interpreter ends a long run early. */
static void test_long_runs(void **state)
{
    (void)state;
    static const char *const units[] = {"a",       " ", "1", "=", "\n", "\xE4\xB8\xAD", "\xE3\x80\x80", "\xE2\x80\xA6",
                                        "\xC2\xBD"};
    const size_t repeats = 1000003;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        size_t unit = strlen(units[i]), len = unit * repeats;
        char *text = malloc(len + 1);
        assert_non_null(text);
        for (size_t k = 0; k < repeats; k++) {
            memcpy(text + k * unit, units[i], unit);
        }
        assert_int_equal(next(text, len, 0), len);
        text[len] = i == 0 || i == 5 ? '1' : 'a'; /* another class behind it: white space gives one character back */
        bool white = i == 1 || i == 4 || i == 6;
        assert_int_equal(next(text, len + 1, 0), white ? len - unit : len);
        free(text);
    }
}

int main(void)
{
    static bool with_jit = true, interpreted = false;
#define BOTH(name)                                                                                                     \
    {#name "@jit", name, setup, teardown, &with_jit}, {#name "@interpreted", name, setup, teardown, &interpreted}
    const struct CMUnitTest tests[] = {
        BOTH(test_words_numbers_punctuation), BOTH(test_contractions),           BOTH(test_white_space),
        BOTH(test_every_white_character),     BOTH(test_every_character_is_cut), BOTH(test_long_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
