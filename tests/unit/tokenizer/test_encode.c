/* SPDX-License-Identifier: MIT
 *
 * Text -> ids: bytes, malformed text, special and other added tokens, BOS, the calling convention. */
#include <stdlib.h>
#include <string.h>

#include "src/base/rng.h"
#include "src/base/utf8.h"
#include "tests/support/support.h"
#include "tests/unit/tokenizer/toy.h"

enum { PAD = 256, END, HE, LL, LLO, HELLO, SPACE_H, IMAGE, STRIPPED };

static char *dir;
static sd_tokenizer *tok;

/* Specials <pad> and </s>; "<image>" is added but not special; "<x>" swallows white space. */
static int setup(void **state)
{
    (void)state;
    static const char *const others[] = {"<pad>", "</s>", "he", "ll", "llo", "hello", "\xC4\xA0h"};
    dir = sd_make_temp_dir();
    toy_write_two_files(dir, others, 7, "#version: 0.2\nh e\nl l\nll o\nhe llo\n\xC4\xA0 h\n");
    toy_write(dir, "tokenizer_config.json",
              "{\"added_tokens_decoder\": {"
              "\"263\": {\"content\": \"<image>\", \"special\": false},"
              "\"264\": {\"content\": \"<x>\", \"special\": false, \"lstrip\": true, \"rstrip\": true}},"
              "\"bos_token\": \"</s>\", \"eos_token\": \"</s>\", \"pad_token\": {\"content\": \"<pad>\"},"
              "\"add_bos_token\": true, \"tokenizer_class\": \"GPT2Tokenizer\"}");
    tok = toy_load(dir);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sd_tokenizer_free(tok);
    sd_remove_temp_dir(dir);
    return 0;
}

static void test_merges(void **state)
{
    (void)state;
    TOY_EXPECT(tok, "hello", 0, HELLO);
    TOY_EXPECT(tok, "hell", 0, HE, LL);
}

/* "h e" ranks before "Ġ h": the space stays alone where an e follows. */
static void test_lower_rank_first(void **state)
{
    (void)state;
    TOY_EXPECT(tok, " hello", 0, ' ', HELLO);
    TOY_EXPECT(tok, " hx", 0, SPACE_H, 'x');
}

static void test_pieces_do_not_merge_across(void **state)
{
    (void)state;
    TOY_EXPECT(tok, "h\ne", 0, 'h', '\n', 'e');
    TOY_EXPECT(tok, "  hx", 0, ' ', SPACE_H, 'x');
    TOY_EXPECT(tok, "l1l", 0, 'l', '1', 'l');
}

static void test_empty(void **state)
{
    (void)state;
    size_t n = 99;
    sd_error err = {0};
    sd_assert_ok(sd_tokenizer_encode(tok, NULL, 0, 0, NULL, 0, &n, &err), &err);
    assert_int_equal(n, 0);
    TOY_EXPECT(tok, "", SD_ENCODE_BOS, END);
}

static void test_specials_only_when_asked_for(void **state)
{
    (void)state;
    TOY_EXPECT(tok, "</s>", 0, '<', '/', 's', '>');
    TOY_EXPECT(tok, "</s>", SD_ENCODE_SPECIALS, END);
    TOY_EXPECT(tok, "a</s>he<pad>", SD_ENCODE_SPECIALS, 'a', END, HE, PAD);
    TOY_EXPECT(tok, "<</s>></s", SD_ENCODE_SPECIALS, '<', END, '>', '<', '/', 's');
    TOY_EXPECT(tok, "</s></s>", SD_ENCODE_SPECIALS, END, END);
}

/* Added tokens that are not special are part of the vocabulary: text is always searched for them. */
static void test_other_added_tokens_always(void **state)
{
    (void)state;
    TOY_EXPECT(tok, "a<image>b", 0, 'a', IMAGE, 'b');
    TOY_EXPECT(tok, "a<image>b", SD_ENCODE_SPECIALS, 'a', IMAGE, 'b');
    TOY_EXPECT(tok, "h<image>e</s>", 0, 'h', IMAGE, 'e', '<', '/', 's', '>');
}

static void test_strip(void **state)
{
    (void)state;
    TOY_EXPECT(tok, "a \n<x>\t b", 0, 'a', STRIPPED, 'b');
    TOY_EXPECT(tok, "a\xE3\x80\x80\xC2\xA0<x>\xE2\x80\xA8\xC2\x85z", 0, 'a', STRIPPED, 'z');
    static const char *const white[] = {
        "\t", "\n", "\v", "\f", "\r", " ", "\xC2\x85", "\xC2\xA0", "\xE1\x9A\x80", "\xE2\x80\x80",
        "\xE2\x80\x81", "\xE2\x80\x82", "\xE2\x80\x83", "\xE2\x80\x84", "\xE2\x80\x85", "\xE2\x80\x86",
        "\xE2\x80\x87", "\xE2\x80\x88", "\xE2\x80\x89", "\xE2\x80\x8A", "\xE2\x80\xA8", "\xE2\x80\xA9",
        "\xE2\x80\xAF", "\xE2\x81\x9F", "\xE3\x80\x80"};
    for (size_t i = 0; i < sizeof white / sizeof white[0]; i++) {
        char text[32];
        (void)snprintf(text, sizeof text, "a%s%s<x>%sb", white[i], white[i], white[i]);
        TOY_EXPECT(tok, text, 0, 'a', STRIPPED, 'b');
    }
    TOY_EXPECT(tok, "<x>\xE2\x80\x8B", 0, STRIPPED, 0xE2, 0x80, 0x8B); /* zero width: not white */
    TOY_EXPECT(tok, "\x80<x>\x85", 0, 0x80, STRIPPED, 0x85);           /* nor half of a character */
    TOY_EXPECT(tok, "<x> <x>", 0, STRIPPED, STRIPPED);
    TOY_EXPECT(tok, "  <x>  ", 0, STRIPPED);
    TOY_EXPECT(tok, "<image> <x>", 0, IMAGE, STRIPPED);
}

static void test_bos_once(void **state)
{
    (void)state;
    assert_true(sd_tokenizer_adds_bos(tok));
    TOY_EXPECT(tok, "hello", SD_ENCODE_BOS, END, HELLO);
    TOY_EXPECT(tok, "</s>hello", SD_ENCODE_BOS | SD_ENCODE_SPECIALS, END, HELLO); /* it brings its own */
    TOY_EXPECT(tok, "</s></s>", SD_ENCODE_BOS | SD_ENCODE_SPECIALS, END, END);
    TOY_EXPECT(tok, "a</s>", SD_ENCODE_BOS | SD_ENCODE_SPECIALS, END, 'a', END);
    TOY_EXPECT(tok, "</s>", SD_ENCODE_BOS, END, '<', '/', 's', '>');
}

static void test_every_byte(void **state)
{
    (void)state;
    for (int b = 0; b < 256; b++) {
        char c = (char)(unsigned char)b;
        const int32_t want = b;
        toy_expect(tok, &c, 1, 0, &want, 1);
        char text[8];
        size_t len;
        sd_error err = {0};
        sd_assert_ok(sd_tokenizer_decode(tok, &want, 1, text, sizeof text, &len, &err), &err);
        if (b < 128) {
            assert_int_equal(len, 1);
            assert_int_equal((unsigned char)text[0], b);
        } else {
            assert_int_equal(len, 3);
            assert_string_equal(text, "\xEF\xBF\xBD");
        }
    }
}

/* A malformed sequence is a piece of its own, and its neighbours are cut as if the text ended there. */
static void test_malformed_text(void **state)
{
    (void)state;
    TOY_EXPECT(tok, "he\xFFllo", 0, HE, 0xFF, LLO);
    TOY_EXPECT(tok, "h\xE4\xB8", 0, 'h', 0xE4, 0xB8);                                 /* cut at the end */
    TOY_EXPECT(tok, "\xE4\xB8h\xC0\x80\x65", 0, 0xE4, 0xB8, 'h', 0xC0, 0x80, 'e');   /* cut inside; overlong */
    TOY_EXPECT(tok, "\xED\xA0\x80</s>", SD_ENCODE_SPECIALS, 0xED, 0xA0, 0x80, END); /* a surrogate */
}

static void round_trip(const char *text, size_t len)
{
    int32_t ids[128];
    char decoded[512];
    size_t n, decoded_len;
    sd_error err = {0};
    sd_assert_ok(sd_tokenizer_encode(tok, text, len, 0, ids, 128, &n, &err), &err);
    sd_assert_ok(sd_tokenizer_decode(tok, ids, n, decoded, sizeof decoded, &decoded_len, &err), &err);
    sd_buf want = {0};
    sd_utf8_sanitize(&want, text, len);
    assert_int_equal(decoded_len, want.len);
    if (want.len) {
        assert_memory_equal(decoded, want.data, want.len);
    }
    sd_buf_free(&want);
}

static void test_decode_of_encode_is_the_sanitised_text(void **state)
{
    (void)state;
    sd_rng rng;
    sd_rng_seed(&rng, 5);
    static const unsigned char likely[] = {'h',  'e',  'l',  'o',  ' ',  '\n', 0xE4, 0xB8,
                                           0xAD, 0xF0, 0x9F, 0x98, 0x80, 0xC3, 0xA9};
    for (int k = 0; k < 20000; k++) {
        char text[64];
        size_t len = (size_t)sd_rng_below(&rng, sizeof text);
        for (size_t i = 0; i < len; i++) {
            text[i] = (char)(k % 2 ? (unsigned char)sd_rng_below(&rng, 256)
                                   : likely[sd_rng_below(&rng, sizeof likely)]);
        }
        round_trip(text, len);
    }
}

static void test_room(void **state)
{
    (void)state;
    int32_t ids[4] = {-7, -7, -7, -7};
    size_t n = 0;
    sd_error err = {0};
    sd_assert_fails(sd_tokenizer_encode(tok, "hello!?", 7, SD_ENCODE_BOS, NULL, 0, &n, &err), SD_ERR_LIMIT, &err,
                    "4 tokens");
    assert_int_equal(n, 4);
    sd_assert_fails(sd_tokenizer_encode(tok, "hello!?", 7, SD_ENCODE_BOS, ids, 3, &n, &err), SD_ERR_LIMIT, &err,
                    "room for 3");
    assert_int_equal(n, 4);
    assert_int_equal(ids[2], '!');
    assert_int_equal(ids[3], -7);
    sd_assert_ok(sd_tokenizer_encode(tok, "hello!?", 7, SD_ENCODE_BOS, ids, 4, &n, &err), &err);
    assert_int_equal(ids[3], '?');
    assert_int_equal(sd_tokenizer_encode(tok, "hello!?", 7, 0, ids, 1, &n, NULL), SD_ERR_LIMIT); /* err may be NULL */
}

static void test_unknown_flags(void **state)
{
    (void)state;
    size_t n = 9;
    sd_error err = {0};
    sd_assert_fails(sd_tokenizer_encode(tok, "a", 1, 4, NULL, 0, &n, &err), SD_ERR_ARG, &err, "0x4");
    assert_int_equal(n, 0);
}

/* Text with NULs in it is text. */
static void test_nul_bytes(void **state)
{
    (void)state;
    const int32_t want[] = {'a', 0, 0, 'b'};
    toy_expect(tok, "a\0\0b", 4, 0, want, 4);
}

/* Two megabytes without spaces, of letters that do not merge: the whole path, with the output counted only. */
static void test_long_text(void **state)
{
    (void)state;
    const size_t characters = 700000;
    char *text = malloc(3 * characters);
    assert_non_null(text);
    for (size_t i = 0; i < characters; i++) {
        memcpy(text + 3 * i, "\xE4\xB8\xAD", 3);
    }
    size_t n;
    sd_error err = {0};
    assert_int_equal(sd_tokenizer_encode(tok, text, 3 * characters, 0, NULL, 0, &n, &err), SD_ERR_LIMIT);
    assert_int_equal(n, 3 * characters);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_merges),
        cmocka_unit_test(test_lower_rank_first),
        cmocka_unit_test(test_pieces_do_not_merge_across),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_specials_only_when_asked_for),
        cmocka_unit_test(test_other_added_tokens_always),
        cmocka_unit_test(test_strip),
        cmocka_unit_test(test_bos_once),
        cmocka_unit_test(test_every_byte),
        cmocka_unit_test(test_malformed_text),
        cmocka_unit_test(test_decode_of_encode_is_the_sanitised_text),
        cmocka_unit_test(test_room),
        cmocka_unit_test(test_unknown_flags),
        cmocka_unit_test(test_nul_bytes),
        cmocka_unit_test(test_long_text),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
