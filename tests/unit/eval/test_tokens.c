/* SPDX-License-Identifier: MIT
 *
 * What each tokenizer makes of texts that its rules are about; lower case; numbers for words and n-grams. */
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/eval/tokens.h"
#include "tests/support/support.h"

/* The tokens of a text, with "|" between and "/" for a separator, compared with `want`. */
static void expect_case(sd_tokenization how, bool lowercase, const char *text, const char *want)
{
    sd_cutter cutter = {0};
    sd_sequences out = {0};
    sd_buf got = {0};
    sd_error err = {0};
    sd_assert_ok(sd_classes_create(&cutter.classes, &err), &err);
    sd_assert_ok(sd_cut(&cutter, how, lowercase, (sd_str){text, strlen(text)}, &out, &err), &err);
    assert_int_equal(out.n, 1);
    for (size_t i = 0; i < sd_sequence_len(&out, 0); i++) {
        const uint32_t item = sd_sequence_at(&out, 0)[i];
        sd_buf_add_str(&got, i ? "|" : "");
        if (item == 0) {
            sd_buf_add_str(&got, "/");
        } else if (how == SD_TOKENS_CHARS) {
            sd_unicode_put(&got, item - 1);
        } else {
            size_t len;
            const char *word = sd_lexicon_text(&cutter.lexicon, item, &len);
            sd_buf_add(&got, word, len);
        }
    }
    assert_string_equal(got.data ? got.data : "", want);
    sd_buf_free(&got);
    sd_sequences_free(&out);
    sd_classes_free(cutter.classes);
    sd_cutter_free(&cutter);
}

static void expect(sd_tokenization how, const char *text, const char *want) { expect_case(how, false, text, want); }

static void test_13a(void **state)
{
    (void)state;
    expect(SD_TOKENS_13A, "", "");
    expect(SD_TOKENS_13A, " \t\n", "");
    expect(SD_TOKENS_13A, "Hello, world!", "Hello|,|world|!");
    expect(SD_TOKENS_13A, "It's 3.5, or 1,000.", "It's|3.5|,|or|1,000|.");
    expect(SD_TOKENS_13A, "$5-10 well-known a-1 -2", "$|5|-|10|well-known|a-1|-2");
    expect(SD_TOKENS_13A, "&quot;a&quot; &amp;lt; x<skipped>y co-\nop a\nb", "\"|a|\"|<|xy|coop|a|b");
    expect(SD_TOKENS_13A, "wait... e.g..", "wait|.|.|.|e|.|g|.|.");
    expect(SD_TOKENS_13A, "(x)[y]{z}~`^_|\\", "(|x|)|[|y|]|{|z|}|~|`|^|_|||\\");
    expect(SD_TOKENS_13A, "\xC2\xABguillemets\xC2\xBB \xE2\x80\x9Cq\xE2\x80\x9D \xE5\x8C\x97\xE4\xBA\xAC\xE3\x80\x82",
           "\xC2\xABguillemets\xC2\xBB|\xE2\x80\x9Cq\xE2\x80\x9D|\xE5\x8C\x97\xE4\xBA\xAC\xE3\x80\x82");
    expect(SD_TOKENS_13A, "a\xC2\xA0" "b\xE2\x80\x83" "c", "a|b|c"); /* spaces of Unicode are white too */
    expect_case(SD_TOKENS_13A, true, "NASA \xC3\x89t\xC3\xA9", "nasa|\xC3\xA9t\xC3\xA9");
}

static void test_intl(void **state)
{
    (void)state;
    expect(SD_TOKENS_INTL, "", "");
    expect(SD_TOKENS_INTL, "a, b. 3.5 1,000", "a|,|b|.|3.5|1,000");
    expect(SD_TOKENS_INTL, "\xC2\xABx\xC2\xBB \xE5\x8C\x97\xE3\x80\x82" "5\xE2\x82\xAC",
           "\xC2\xAB|x|\xC2\xBB|\xE5\x8C\x97|\xE3\x80\x82|5|\xE2\x82\xAC");
    expect(SD_TOKENS_INTL, "well-known", "well|-|known");
    expect(SD_TOKENS_INTL, "end.", "end|.");
    expect(SD_TOKENS_INTL, "5.", "5."); /* a number before, nothing behind: as the original */
    expect(SD_TOKENS_INTL, "\xD9\xA3.\xD9\xA4", "\xD9\xA3.\xD9\xA4"); /* Arabic digits are numbers */
}

static void test_words(void **state)
{
    (void)state;
    expect(SD_TOKENS_NONE, "  a, b.\tC ", "a,|b.|C");
    expect(SD_TOKENS_ROUGE, "The Caf\xC3\xA9's 3.5-star D\xE2\x84\xAA", "the|caf|s|3|5|star|dk"); /* Kelvin sign */
    expect(SD_TOKENS_ROUGE, "\xE5\x8C\x97\xE4\xBA\xAC", "");
    expect(SD_TOKENS_STEMS, "Running runs ran the flies dies was", "run|run|ran|the|fli|die|was");
    expect(SD_TOKENS_SENTENCES, "a b\nc\n\n!\nd", "a|b|/|c|/|/|d|/"); /* "!" is a sentence without words */
    expect(SD_TOKENS_CHARS, "a \xC3\xA9\n\xE5\x8C\x97", "a|\xC3\xA9|\xE5\x8C\x97");
    expect(SD_TOKENS_CHRF_WORDS, "(hi) \"x y, - ...", "(hi|)|\"|x|y|,|-|..|.");
}

static void test_ptb(void **state)
{
    (void)state;
    expect(SD_TOKENS_PTB, "It isn't \xC2\xA3" "20-25, is it? They'll go.", "it|is|n't|#|20-25|is|it|they|'ll|go");
    expect(SD_TOKENS_PTB, "A family-friendly 3-star pub (cheap) at 3.30pm",
           "a|family-friendly|3-star|pub|-lrb-|cheap|-rrb-|at|3.30|pm");
    expect(SD_TOKENS_PTB, "Mr. X, e.g. a U.S.A. firm. cannot and/or 50%",
           "mr.|x|e.g.|a|u.s.a.|firm|can|not|and/or|50|%");
    expect(SD_TOKENS_PTB, "\xE2\x80\x9CHi\xE2\x80\x9D \xE2\x80\x94 ... -- http://a.b/c?d", "hi|http://a.b/c?d");
    expect(SD_TOKENS_PTB, "", "");
}

static void lower_is(const char *text, const char *want)
{
    sd_buf got = {0};
    sd_unicode_lower(&got, text, strlen(text));
    assert_string_equal(got.data ? got.data : "", want);
    sd_buf_free(&got);
}

static void test_lower(void **state)
{
    (void)state;
    lower_is("", "");
    lower_is("AbC-1Z", "abc-1z");
    lower_is("\xC3\x89\xC3\xA9\xC4\x80\xC4\x81", "\xC3\xA9\xC3\xA9\xC4\x81\xC4\x81");             /* a run of step 2 */
    lower_is("\xD0\x9C\xD0\xBE", "\xD0\xBC\xD0\xBE");                                             /* Cyrillic */
    lower_is("\xC4\xB0x", "i\xCC\x87x");                                                          /* I with a dot */
    lower_is("\xCE\x9F\xCE\xA3", "\xCE\xBF\xCF\x82");                                             /* a final sigma */
    lower_is("\xCE\x9F\xCE\xA3'\xCE\x91", "\xCE\xBF\xCF\x83'\xCE\xB1");                           /* across a ' */
    lower_is("\xCE\xA3", "\xCF\x83");                                                             /* a lone one */
    lower_is("\xF0\x90\x90\x80", "\xF0\x90\x90\xA8");                                             /* Deseret */
    lower_is("\xE1\xBA\x9E \xE2\x84\xAA", "\xC3\x9F k");                                          /* to fewer bytes */
}

static void test_characters(void **state)
{
    (void)state;
    static const uint32_t points[] = {0, 0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF};
    for (size_t i = 0; i < sizeof points / sizeof *points; i++) {
        sd_buf text = {0};
        size_t at = 0;
        sd_unicode_put(&text, points[i]);
        assert_int_equal(sd_unicode_next(text.data, text.len, &at), points[i]);
        assert_int_equal(at, text.len);
        sd_buf_free(&text);
    }
    assert_int_equal(sd_unicode_trim("a \xE3\x80\x80\x1C", 6), 1);
    assert_int_equal(sd_unicode_trim(" ", 1), 0);
}

static void test_grams(void **state)
{
    (void)state;
    sd_grams grams = {0};
    sd_bag bag = {0};
    static const uint32_t items[] = {5, 5, 5, 7, 0, 5, 7};
    sd_bag_fill(&bag, &grams, items, 7, 1, 3);
    /* 5 four times, 7 twice, 5 5 twice, 5 7 twice, 5 5 5 once, 5 5 7 once: nothing across the separator */
    static const int counts[3][2] = {{4, 2}, {2, 2}, {1, 1}};
    int seen[3] = {0};
    assert_int_equal(bag.n, 6);
    for (size_t i = 0; i < bag.n; i++) {
        const int order = bag.items[i].order;
        assert_int_equal(bag.items[i].count, counts[order - 1][seen[order - 1]++]);
    }
    sd_grams_clear(&grams);
    sd_bag_fill(&bag, &grams, items, 2, 2, 2);
    assert_int_equal(bag.n, 1);
    assert_int_equal(bag.items[0].count, 1);
    for (uint32_t i = 1; i < 5000; i++) { /* the table grows and keeps what it had */
        const uint32_t first = sd_grams_add(&grams, 0, i);
        assert_int_equal(sd_grams_add(&grams, 0, i), first);
        assert_int_not_equal(sd_grams_add(&grams, first, i), first);
    }
    sd_bag_free(&bag);
    sd_grams_free(&grams);
}

static void test_stems(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"caresses", "caress"}, {"ponies", "poni"},   {"ties", "tie"},          {"cats", "cat"},
        {"feed", "feed"},       {"agreed", "agre"},   {"plastered", "plaster"}, {"bled", "bled"},
        {"motoring", "motor"},  {"sing", "sing"},     {"conflated", "conflat"}, {"hopping", "hop"},
        {"falling", "fall"},    {"filing", "file"},   {"happy", "happi"},       {"enjoy", "enjoy"},
        {"relational", "relat"}, {"skies", "sky"},    {"dying", "die"},         {"spied", "spi"},
        {"died", "die"},        {"radically", "radic"}, {"yyyying", "yyyi"},    {"controll", "control"},
        {"adoption", "adopt"},  {"theology", "theolog"}, {"ab", "ab"},          {"aed", "a"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        char word[32];
        (void)snprintf(word, sizeof word, "%s", pairs[i][0]);
        word[sd_porter_stem(word, strlen(word))] = '\0';
        assert_string_equal(word, pairs[i][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_13a),        cmocka_unit_test(test_intl),  cmocka_unit_test(test_words),
        cmocka_unit_test(test_ptb),        cmocka_unit_test(test_lower), cmocka_unit_test(test_characters),
        cmocka_unit_test(test_grams),      cmocka_unit_test(test_stems),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
