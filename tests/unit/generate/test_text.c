/* SPDX-License-Identifier: MIT
 *
 * A row's growing text: stop strings over token borders, what may be handed on when, characters cut by tokens; and over
 * random tokens that the pieces handed on are the final text, and both what a slow definition says. */
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/generate/text.h"
#include "tests/support/random_schedule.h"
#include "tests/support/support.h"

enum { MOST = 4096 };

/* What a caller receives while tokens come. */
typedef struct stream {
    sd_text text;
    char got[MOST];
    size_t len;
    bool stopped;
} stream;

static const char *take(stream *s)
{
    size_t len;
    const char *piece = sd_text_take(&s->text, &len);
    assert_non_null(piece);
    assert_true(s->len + len < MOST);
    assert_true(sd_utf8_valid(piece, len)); /* whole characters */
    memcpy(s->got + s->len, piece, len);
    s->len += len;
    s->got[s->len] = '\0';
    return s->got;
}

static stream *start(const char *const *stop, int n_stop)
{
    stream *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->text = (sd_text){.stop = stop, .n_stop = n_stop};
    assert_string_equal(take(s), "");
    return s;
}

/* Adds a token and returns all that was handed on so far. */
static const char *add(stream *s, const char *token)
{
    s->stopped = sd_text_add(&s->text, token, strlen(token));
    return take(s);
}

/* Ends the row and checks that what was handed on is the text. */
static void finish(stream *s, const char *expected, bool stopped)
{
    assert_int_equal(sd_text_finish(&s->text), stopped);
    take(s);
    assert_string_equal(s->got, expected);
    assert_int_equal(s->text.out.len, strlen(expected));
    assert_string_equal(s->text.out.data ? s->text.out.data : "", expected);
    sd_text_clear(&s->text);
    sd_text_clear(&s->text); /* twice is once */
    free(s);
}

/* ---- stop strings ---- */

static void text_without_stops_is_handed_on_at_once(void **state)
{
    (void)state;
    stream *s = start(NULL, 0);
    assert_string_equal(add(s, "Hello"), "Hello");
    assert_string_equal(add(s, ""), "Hello");
    assert_string_equal(add(s, ", world"), "Hello, world");
    finish(s, "Hello, world", false);
    finish(start(NULL, 0), "", false);
}

static void a_stop_over_token_borders_is_found_and_left_out(void **state)
{
    (void)state;
    const char *const stop[] = {"\n\nUser:"};
    stream *s = start(stop, 1);
    assert_string_equal(add(s, "Fine."), "Fine.");
    assert_string_equal(add(s, "\n"), "Fine.");
    assert_string_equal(add(s, "\nUs"), "Fine.");
    assert_false(s->stopped);
    assert_string_equal(add(s, "er: what"), "Fine.");
    assert_true(s->stopped);
    assert_string_equal(add(s, "ever"), "Fine."); /* it takes nothing more */
    assert_true(s->stopped);
    finish(s, "Fine.", true);
}

static void a_beginning_that_comes_to_nothing_is_handed_on(void **state)
{
    (void)state;
    const char *const stop[] = {"<end>"};
    stream *s = start(stop, 1);
    assert_string_equal(add(s, "a <e"), "a ");
    assert_string_equal(add(s, "n"), "a ");
    assert_string_equal(add(s, "try> b"), "a <entry> b");
    assert_string_equal(add(s, "<en<end"), "a <entry> b<en"); /* only the second may still become one */
    assert_string_equal(add(s, "."), "a <entry> b<en<end.");
    assert_string_equal(add(s, "<end"), "a <entry> b<en<end.");
    finish(s, "a <entry> b<en<end.<end", false); /* at the end nothing can follow */
}

static void a_stop_inside_one_token_cuts_it(void **state)
{
    (void)state;
    const char *const stop[] = {"STOP"};
    stream *s = start(stop, 1);
    assert_string_equal(add(s, "before STOP after"), "before ");
    assert_true(s->stopped);
    finish(s, "before ", true);
    s = start(stop, 1);
    assert_string_equal(add(s, "STOP"), "");
    finish(s, "", true);
}

static void of_several_stops_the_earliest_counts(void **state)
{
    (void)state;
    const char *const stop[] = {"cde", "bc", "xyz"};
    stream *s = start(stop, 3);
    assert_string_equal(add(s, "abcdef"), "a");
    finish(s, "a", true);
    s = start(stop, 3);
    assert_string_equal(add(s, "acdebc"), "a");
    finish(s, "a", true);
    s = start(stop, 3); /* "b" might begin a stop, and then "c" ends it, before "cde" could */
    assert_string_equal(add(s, "ab"), "a");
    assert_string_equal(add(s, "c"), "a");
    finish(s, "a", true);
}

static void stops_that_begin_alike_or_repeat_themselves_are_found(void **state)
{
    (void)state;
    const char *const repeat[] = {"aab"}, *const alike[] = {"ab", "abab c"};
    stream *s = start(repeat, 1);
    assert_string_equal(add(s, "aa"), "");
    assert_string_equal(add(s, "a"), "a");
    assert_string_equal(add(s, "a"), "aa");
    assert_string_equal(add(s, "b"), "aa");
    finish(s, "aa", true);
    s = start(alike, 2);
    assert_string_equal(add(s, "xa"), "x");
    assert_string_equal(add(s, "b"), "x");
    finish(s, "x", true);
}

/* ---- characters ---- */

static void a_character_over_tokens_is_handed_on_whole(void **state)
{
    (void)state;
    stream *s = start(NULL, 0);
    assert_string_equal(add(s, "\xF0\x9F"), "");
    assert_string_equal(add(s, "\x98"), "");
    assert_string_equal(add(s, "\x80!"), "😀!");
    assert_string_equal(add(s, "é\xE2\x82"), "😀!é");
    finish(s, "😀!é\xEF\xBF\xBD", false); /* cut off by the end: U+FFFD, once */
}

static void malformed_bytes_become_replacements(void **state)
{
    (void)state;
    stream *s = start(NULL, 0);
    assert_string_equal(add(s, "a\xFFz"), "a\xEF\xBF\xBDz");
    assert_string_equal(add(s, "\xE2\x82"), "a\xEF\xBF\xBDz");
    assert_string_equal(add(s, "b"), "a\xEF\xBF\xBDz\xEF\xBF\xBD"
                                     "b");
    finish(s, "a\xEF\xBF\xBDz\xEF\xBF\xBD"
              "b", false);
}

static void stops_may_hold_any_character(void **state)
{
    (void)state;
    const char *const stop[] = {"ö→😀", "\xEF\xBF\xBD"};
    stream *s = start(stop, 2);
    assert_string_equal(add(s, "x\xC3"), "x");
    assert_string_equal(add(s, "\xB6→"), "x");
    assert_string_equal(add(s, "\xF0\x9F\x98"), "x");
    assert_string_equal(add(s, "\x81"), "xö→😁");
    assert_string_equal(add(s, "ö→\xF0\x9F\x98\x80"), "xö→😁");
    finish(s, "xö→😁", true);
    s = start(stop, 2); /* a stop that only the flush at the end completes */
    assert_string_equal(add(s, "x\xE2"), "x");
    finish(s, "x", true);
}

/* ---- the definition ---- */

/* All that the bytes say so far; an unfinished character at the end is left out, or replaced if nothing follows. */
static size_t decode(char *out, const char *bytes, size_t n, bool over)
{
    size_t len = 0;
    for (size_t i = 0; i < n;) {
        int step = sd_utf8_next((const unsigned char *)bytes + i, n - i);
        if (step == 0 && !over) {
            break;
        }
        if (step > 0) {
            memcpy(out + len, bytes + i, (size_t)step);
            len += (size_t)step;
            i += (size_t)step;
        } else {
            memcpy(out + len, "\xEF\xBF\xBD", 3);
            len += 3;
            i += step == 0 ? n - i : (size_t)-step;
        }
    }
    out[len] = '\0';
    return len;
}

/* The first place of any stop string; len if there is none. No NUL in these tests. */
static size_t first_stop(const char *text, size_t len, const char *const *stop, int n_stop)
{
    size_t first = len;
    for (int i = 0; i < n_stop; i++) {
        const char *at = strstr(text, stop[i]);
        first = at && (size_t)(at - text) < first ? (size_t)(at - text) : first;
    }
    return first;
}

/* Where what must be held back begins: the earliest end part that is a proper beginning of a stop string. */
static size_t held_from(const char *text, size_t len, const char *const *stop, int n_stop)
{
    for (size_t at = 0; at < len; at++) {
        for (int i = 0; i < n_stop; i++) {
            if (strlen(stop[i]) > len - at && strncmp(text + at, stop[i], len - at) == 0) {
                return at;
            }
        }
    }
    return len;
}

/* Pieces of characters, of stop strings and of nothing special. */
static const char *const tokens[] = {"a", "b", "ab", "ba", "aab", "c", "", "é", "\xC3", "\xA9", "\xF0\x9F", "\x98\x80",
                                     "\xE2\x82\xAC", "\xE2", "\x82", "\xAC", "\xFF", "bbab", "😀a", "\xF0"};
static const char *const stops[] = {"abab", "aabb", "bé", "€", "a😀", "\uFFFDb", "bb", "éé",
                                    "cc", "ca", "cab"};

static void random_tokens_give_the_text_of_the_definition(void **state)
{
    (void)state;
    sd_rng rng;
    sd_rng_seed(&rng, 1);
    int cut = 0, ended = 0;
    for (int i = 0; i < 20000; i++) {
        const char *stop[3];
        int n_stop = sd_random_int(&rng, 0, 3), n = sd_random_int(&rng, 0, 20);
        for (int k = 0; k < n_stop; k++) {
            stop[k] = stops[sd_random_int(&rng, 0, (int)(sizeof stops / sizeof *stops) - 1)];
        }
        stream *s = start(stop, n_stop);
        char bytes[256] = "", text[1024] = "";
        size_t len = 0, at = 0;
        for (int t = 0; t < n && at == len; t++) {
            const char *token = tokens[sd_random_int(&rng, 0, (int)(sizeof tokens / sizeof *tokens) - 1)];
            strcat(bytes, token);
            add(s, token);
            len = decode(text, bytes, strlen(bytes), false);
            at = first_stop(text, len, stop, n_stop);
            assert_int_equal(s->stopped, at < len);
            size_t ready = at < len ? at : held_from(text, len, stop, n_stop);
            assert_int_equal(s->len, ready);
            assert_memory_equal(s->got, text, ready);
        }
        cut += at < len;
        if (at == len) {
            len = decode(text, bytes, strlen(bytes), true);
            at = first_stop(text, len, stop, n_stop);
            ended += at == len;
        }
        text[at] = '\0';
        finish(s, text, at < len);
    }
    assert_true(cut > 2000 && ended > 2000); /* both were tried */
}

/* ---- memory ---- */

static void an_allocation_that_fails_is_kept(void **state)
{
    (void)state;
    const char *const stop[] = {"zz"};
    for (long n = 1; n <= 3; n++) {
        stream *s = start(stop, 1);
        sd_alloc_fail_at(n);
        for (int i = 0; i < 40 && !s->text.out.failed; i++) {
            (void)sd_text_add(&s->text, "0123456789", 10);
        }
        sd_alloc_fail_at(0);
        assert_true(s->text.out.failed); /* the loop looks at this after every token */
        assert_false(sd_text_add(&s->text, "zz", 2));
        assert_false(sd_text_finish(&s->text));
        take(s);
        sd_text_clear(&s->text);
        free(s);
    }
}

int main(void)
{
    sd_skip_unless_level();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_without_stops_is_handed_on_at_once),
        cmocka_unit_test(a_stop_over_token_borders_is_found_and_left_out),
        cmocka_unit_test(a_beginning_that_comes_to_nothing_is_handed_on),
        cmocka_unit_test(a_stop_inside_one_token_cuts_it),
        cmocka_unit_test(of_several_stops_the_earliest_counts),
        cmocka_unit_test(stops_that_begin_alike_or_repeat_themselves_are_found),
        cmocka_unit_test(a_character_over_tokens_is_handed_on_whole),
        cmocka_unit_test(malformed_bytes_become_replacements),
        cmocka_unit_test(stops_may_hold_any_character),
        cmocka_unit_test(random_tokens_give_the_text_of_the_definition),
        cmocka_unit_test(an_allocation_that_fails_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
