/* SPDX-License-Identifier: MIT
 *
 * Ids -> text, whole and streamed token by token: never half a character, and the same bytes either way. */
#include <string.h>

#include "src/base/rng.h"
#include "src/base/utf8.h"
#include "tests/support/support.h"
#include "tests/unit/tokenizer/toy.h"

enum { END = 256, ZHONG, HALF, SPACE_A, HOLE, AFTER_HOLE, ADDED, SIZE };

static char *dir;
static sd_tokenizer *tok;

/* "中" is E4 B8 AD, written "ä¸Ń": one token for all of it and one for its first two bytes. Id 260 is a hole. */
static int setup(void **state)
{
    (void)state;
    static const char *const others[] = {"</s>", "\xC3\xA4\xC2\xB8\xC5\x83", "\xC3\xA4\xC2\xB8", "\xC4\xA0\x61"};
    dir = sd_make_temp_dir();
    json_t *vocab = toy_vocab(others, 4);
    assert_int_equal(json_object_set_new(vocab, "z!", json_integer(AFTER_HOLE)), 0);
    toy_write_json(dir, "vocab.json", vocab);
    toy_write(dir, "merges.txt", "\xC3\xA4 \xC2\xB8\n\xC3\xA4\xC2\xB8 \xC5\x83\n\xC4\xA0 a\nz !\n");
    toy_write(dir, "tokenizer_config.json",
              "{\"eos_token\": \"</s>\", \"added_tokens_decoder\": "
              "{\"262\": {\"content\": \"two words\xE2\x82\xAC\"}}}");
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

static void expect_text(const int32_t *ids, size_t n, const char *want)
{
    char text[256];
    size_t len = 0;
    sd_error err = {0};
    sd_assert_ok(sd_tokenizer_decode(tok, ids, n, text, sizeof text, &len, &err), &err);
    assert_string_equal(text, want);
    assert_int_equal(len, strlen(want));
}

#define EXPECT_TEXT(want, ...)                                                                                         \
    expect_text((const int32_t[]){__VA_ARGS__}, sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t), want)

static void expect_piece(int32_t id, const char *want, size_t want_len)
{
    size_t len = 99;
    const char *piece = sd_tokenizer_piece(tok, id, &len);
    assert_non_null(piece);
    assert_int_equal(len, want_len);
    assert_memory_equal(piece, want, want_len);
}

static void test_pieces(void **state)
{
    (void)state;
    assert_int_equal(sd_tokenizer_size(tok), SIZE);
    expect_piece('x', "x", 1);
    expect_piece(0, "\0", 1);
    expect_piece(0xFF, "\xFF", 1);
    expect_piece(ZHONG, "\xE4\xB8\xAD", 3);
    expect_piece(HALF, "\xE4\xB8", 2);
    expect_piece(SPACE_A, " a", 2);
    expect_piece(ADDED, "two words\xE2\x82\xAC", 12); /* holds characters outside the alphabet: its own bytes */
    expect_piece(END, "", 0);
    expect_piece(HOLE, "", 0);
    expect_piece(SIZE, "", 0);
    expect_piece(-1, "", 0);
    expect_piece(INT32_MAX, "", 0);
    expect_piece(INT32_MIN, "", 0);
}

static void test_special(void **state)
{
    (void)state;
    assert_true(sd_tokenizer_is_special(tok, END));
    assert_false(sd_tokenizer_is_special(tok, ADDED));
    assert_false(sd_tokenizer_is_special(tok, HOLE));
    assert_false(sd_tokenizer_is_special(tok, -1));
    assert_false(sd_tokenizer_is_special(tok, SIZE));
    assert_int_equal(sd_tokenizer_eos(tok), END);
    assert_int_equal(sd_tokenizer_bos(tok), -1);
    assert_false(sd_tokenizer_adds_bos(tok));
}

static void test_whole(void **state)
{
    (void)state;
    EXPECT_TEXT("x a\xE4\xB8\xAD!", 'x', SPACE_A, ZHONG, '!');
    EXPECT_TEXT("\xE4\xB8\xAD", HALF, 0xAD);
    EXPECT_TEXT("a", END, 'a', END, HOLE, -5, SIZE, INT32_MAX); /* no text of their own, and no garbage */
    EXPECT_TEXT("\xE4\xB8\xAD", HALF, END, 0xAD);               /* a special token does not interrupt a character */
    expect_text(NULL, 0, "");
}

static void test_malformed_is_replaced(void **state)
{
    (void)state;
    EXPECT_TEXT("\xEF\xBF\xBD", HALF); /* cut by the end: one replacement for the two bytes */
    EXPECT_TEXT("\xEF\xBF\xBDz!", HALF, AFTER_HOLE);
    EXPECT_TEXT("\xEF\xBF\xBD\xEF\xBF\xBD", HALF, HALF);
    /* a surrogate: no byte continues the one before */
    EXPECT_TEXT("\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD", 0xED, 0xA0, 0x80);
    EXPECT_TEXT("\xEF\xBF\xBD\x61", 0xC3, 'a');
}

/* The other way, a malformed sequence is one piece, whose bytes may merge like any others. */
static void test_malformed_is_one_piece(void **state)
{
    (void)state;
    TOY_EXPECT(tok, "\xE4\xB8", 0, HALF);
    TOY_EXPECT(tok, "\xE4\xB8z!", 0, HALF, 'z', '!');
    TOY_EXPECT(tok, "\xE4\xB8\xE4\xB8\xAD", 0, HALF, ZHONG);
    TOY_EXPECT(tok, "\xE4\xE4\xB8", 0, 0xE4, HALF);
}

static void test_room(void **state)
{
    (void)state;
    const int32_t ids[] = {ZHONG, 'a'};
    char text[5] = {'#', '#', '#', '#', '#'};
    size_t len = 0;
    sd_error err = {0};
    sd_assert_fails(sd_tokenizer_decode(tok, ids, 2, NULL, 0, &len, &err), SD_ERR_LIMIT, &err, "4 bytes");
    assert_int_equal(len, 4);
    len = 0;
    sd_assert_fails(sd_tokenizer_decode(tok, ids, 2, text, 4, &len, &err), SD_ERR_LIMIT, &err, "room for 4");
    assert_int_equal(len, 4); /* a NUL needs a place too */
    assert_int_equal(text[0], '#');
    sd_assert_ok(sd_tokenizer_decode(tok, ids, 2, text, 5, &len, &err), &err);
    assert_string_equal(text, "\xE4\xB8\xAD\x61");
}

/* Random ids, any ids: the stream gives whole characters at every step, and in the end what the whole decode gives. */
static void test_stream_equals_whole(void **state)
{
    (void)state;
    sd_rng rng;
    sd_rng_seed(&rng, 3);
    for (int round = 0; round < 5000; round++) {
        int32_t ids[40];
        size_t n = (size_t)sd_rng_below(&rng, 41);
        sd_utf8_stream stream = {0};
        sd_buf streamed = {0};
        for (size_t i = 0; i < n; i++) {
            static const int32_t likely[] = {HALF, 0xAD, ZHONG, 0xF0, 0x9F, 0x98, 0x80, 0xE4, END, 'a', ADDED, HOLE};
            ids[i] = round % 2 ? (int32_t)sd_rng_below(&rng, SIZE + 3) : likely[sd_rng_below(&rng, 12)];
            size_t before = streamed.len, len;
            const char *piece = sd_tokenizer_piece(tok, ids[i], &len);
            sd_utf8_push(&stream, piece, len, &streamed);
            if (streamed.len > before) {
                assert_true(sd_utf8_valid(streamed.data + before, streamed.len - before));
            }
        }
        sd_utf8_flush(&stream, &streamed);
        char text[1024];
        size_t len;
        sd_error err = {0};
        sd_assert_ok(sd_tokenizer_decode(tok, ids, n, text, sizeof text, &len, &err), &err);
        assert_int_equal(len, streamed.len);
        assert_memory_equal(text, streamed.data ? streamed.data : "", len);
        sd_buf_free(&streamed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_special),
        cmocka_unit_test(test_whole),
        cmocka_unit_test(test_malformed_is_replaced),
        cmocka_unit_test(test_malformed_is_one_piece),
        cmocka_unit_test(test_room),
        cmocka_unit_test(test_stream_equals_whole),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
