/* SPDX-License-Identifier: MIT
 *
 * Merging against the definition, over random merges in random order, for pieces short and long; and that long pieces
 * take no more than about linear time. */
#include <stdlib.h>
#include <string.h>

#include "src/base/rng.h"
#include "src/tokenizer/bpe.h"
#include "tests/support/support.h"
#include "tests/unit/tokenizer/toy.h"

static void start_vocab(sd_vocab *vocab)
{
    sd_error err = {0};
    *vocab = (sd_vocab){0};
    for (unsigned b = 0; b < 256; b++) {
        sd_buf text = {0};
        toy_add_byte(&text, b);
        sd_assert_ok(sd_vocab_add(vocab, b, text.data, text.len, &err), &err);
        sd_buf_free(&text);
    }
    sd_assert_ok(sd_vocab_index_bytes(vocab, &err), &err);
}

/* The definition, as slow as it reads: while some neighbours merge, join the leftmost pair of the lowest rank. */
static size_t merge_by_definition(const sd_vocab *vocab, const char *piece, size_t len, int32_t *ids)
{
    size_t n = len;
    for (size_t i = 0; i < len; i++) {
        ids[i] = (unsigned char)piece[i];
    }
    for (;;) {
        uint32_t lowest = SD_MAP_NONE;
        size_t at = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            uint32_t rank = sd_vocab_rank(vocab, ids[i], ids[i + 1]);
            if (rank < lowest) {
                lowest = rank;
                at = i;
            }
        }
        if (lowest == SD_MAP_NONE) {
            return n;
        }
        ids[at] = vocab->merged[lowest];
        memmove(ids + at + 1, ids + at + 2, (n - at - 2) * sizeof *ids);
        n--;
    }
}

/* Random pairs of known tokens, in random order: ranks need not grow with length, as they do in trained ones. */
static void add_random_merges(sd_vocab *vocab, sd_rng *rng, int n_merges)
{
    enum { MAX = 400 };
    char tokens[MAX + 4][16] = {"a", "b", "c", "d"}, pairs[MAX][2][16];
    int n_tokens = 4, n_pairs = 0, next_id = 256;
    sd_error err = {0};
    for (int tries = 0; n_pairs < n_merges && tries < 100 * n_merges; tries++) {
        const char *a = tokens[sd_rng_below(rng, (uint64_t)n_tokens)];
        const char *b = tokens[sd_rng_below(rng, (uint64_t)n_tokens)];
        char joined[32];
        bool known = false;
        (void)snprintf(joined, sizeof joined, "%s%s", a, b);
        for (int i = 0; i < n_pairs; i++) {
            known |= strcmp(pairs[i][0], a) == 0 && strcmp(pairs[i][1], b) == 0;
        }
        if (known || strlen(joined) > 12) {
            continue;
        }
        strcpy(pairs[n_pairs][0], a);
        strcpy(pairs[n_pairs++][1], b);
        int32_t id;
        sd_assert_ok(sd_vocab_find(vocab, joined, strlen(joined), &id, &err), &err);
        if (id < 0) {
            sd_assert_ok(sd_vocab_add(vocab, next_id++, joined, strlen(joined), &err), &err);
            strcpy(tokens[n_tokens++], joined);
        }
    }
    for (int left = n_pairs; left > 0; left--) {
        size_t i = (size_t)sd_rng_below(rng, (uint64_t)left);
        const char *a = pairs[i][0], *b = pairs[i][1];
        sd_assert_ok(sd_vocab_add_merge(vocab, a, strlen(a), b, strlen(b), &err), &err);
        memmove(pairs[i], pairs[i + 1], ((size_t)left - i - 1) * sizeof pairs[0]);
    }
}

static void test_against_the_definition(void **state)
{
    (void)state;
    sd_rng rng;
    sd_rng_seed(&rng, 11);
    for (int round = 0; round < 60; round++) {
        sd_vocab vocab;
        start_vocab(&vocab);
        add_random_merges(&vocab, &rng, 5 + (int)sd_rng_below(&rng, 300));
        sd_bpe bpe = {0};
        sd_error err = {0};
        for (int k = 0; k < 200; k++) {
            char piece[300];
            int32_t want[300], got[300];
            size_t len = 1 + (size_t)sd_rng_below(&rng, k % 2 ? 40 : 300);
            for (size_t i = 0; i < len; i++) {
                piece[i] = (char)('a' + sd_rng_below(&rng, k % 5 ? 4 : 1));
            }
            size_t n = merge_by_definition(&vocab, piece, len, want);
            sd_id_sink sink = {got, 300, 0};
            sd_assert_ok(sd_bpe_encode(&bpe, &vocab, piece, len, &sink, &err), &err);
            assert_int_equal(sink.n, n);
            assert_memory_equal(got, want, n * sizeof *got);
        }
        sd_bpe_free(&bpe);
        sd_vocab_free(&vocab);
    }
}

/* A token is marked exactly if its own bytes merge to it: "abc" is in the vocabulary, but "b c" comes first and there
 * is no "a bc"; no merge gives "xy" at all. */
static void test_marks_whole_tokens(void **state)
{
    (void)state;
    sd_vocab vocab;
    sd_error err = {0};
    start_vocab(&vocab);
    static const char *const tokens[] = {"ab", "abc", "bc", "xy"};
    for (size_t i = 0; i < 4; i++) {
        sd_assert_ok(sd_vocab_add(&vocab, 256 + (int)i, tokens[i], strlen(tokens[i]), &err), &err);
    }
    sd_assert_ok(sd_vocab_add_merge(&vocab, "b", 1, "c", 1, &err), &err);
    sd_assert_ok(sd_vocab_add_merge(&vocab, "a", 1, "b", 1, &err), &err);
    sd_assert_ok(sd_vocab_add_merge(&vocab, "ab", 2, "c", 1, &err), &err);
    sd_assert_ok(sd_bpe_mark_whole(&vocab, &err), &err);
    for (int id = 0; id < 260; id++) {
        bool whole = id < 256 || id == 256 || id == 258;
        assert_int_equal((vocab.tokens[id].flags & SD_TOKEN_WHOLE) != 0, whole);
    }
    sd_vocab_free(&vocab);
}

/* 4 million bytes without a place to split: about a second by n log n, hours by n^2 (CTest's limit ends those). */
static void test_long_piece(void **state)
{
    (void)state;
    const size_t len = 4000001;
    sd_vocab vocab;
    sd_error err = {0};
    start_vocab(&vocab);
    char token[65];
    memset(token, 'a', sizeof token);
    for (size_t n = 1, id = 256; n <= 32; n *= 2, id++) {
        sd_assert_ok(sd_vocab_add(&vocab, (int64_t)id, token, 2 * n, &err), &err);
        sd_assert_ok(sd_vocab_add_merge(&vocab, token, n, token, n, &err), &err);
    }
    char *piece = malloc(len);
    int32_t *ids = malloc(len * sizeof *ids);
    assert_true(piece && ids);
    memset(piece, 'a', len);
    sd_bpe bpe = {0};
    sd_id_sink sink = {ids, len, 0};
    sd_assert_ok(sd_bpe_encode(&bpe, &vocab, piece, len, &sink, &err), &err);
    assert_int_equal(sink.n, len / 64 + 1); /* 64 a's each, and the odd one */
    for (size_t i = 0; i < sink.n; i++) {
        assert_int_equal(ids[i], i + 1 < sink.n ? 261 : 'a');
    }
    sd_bpe_free(&bpe);
    sd_vocab_free(&vocab);
    free(piece);
    free(ids);
}

static void test_counts_beyond_the_room(void **state)
{
    (void)state;
    sd_vocab vocab;
    sd_error err = {0};
    start_vocab(&vocab);
    int32_t ids[3] = {-7, -7, -7};
    sd_id_sink sink = {ids, 2, 0};
    sd_bpe bpe = {0};
    sd_assert_ok(sd_bpe_encode(&bpe, &vocab, "wxyz", 4, &sink, &err), &err);
    assert_int_equal(sink.n, 4);
    assert_int_equal(ids[0], 'w');
    assert_int_equal(ids[1], 'x');
    assert_int_equal(ids[2], -7);
    sd_bpe_free(&bpe);
    sd_vocab_free(&vocab);
}

/* The map under all of this: many keys, some of them neighbours, found again, and others not. */
static void test_map(void **state)
{
    (void)state;
    sd_map map = {0};
    assert_int_equal(sd_map_get(&map, 0), SD_MAP_NONE);
    for (uint32_t i = 0; i < 20000; i++) {
        assert_true(sd_map_insert(&map, (uint64_t)(i % 2 ? i : i << 16) << (i % 3 ? 0 : 30), i));
    }
    for (uint32_t i = 0; i < 20000; i++) {
        assert_int_equal(sd_map_get(&map, (uint64_t)(i % 2 ? i : i << 16) << (i % 3 ? 0 : 30)), i);
        assert_int_equal(sd_map_get(&map, UINT64_MAX - i), SD_MAP_NONE);
    }
    assert_true(2 * map.n <= map.mask + 1);
    sd_map_free(&map);
}

/* The key of sd_vocab.by_bytes for a token of 16 bytes. */
static uint64_t hash_of_16(const uint64_t words[2])
{
    uint64_t h = 2 * 16 + 1;
    h = sd_map_mix(h ^ words[0]) * 0xD6E8FEB86659FD93u;
    h = sd_map_mix(h ^ words[1]) * 0xD6E8FEB86659FD93u;
    return sd_map_mix(h) * 0xD6E8FEB86659FD93u;
}

static void add_16(sd_vocab *vocab, int id, const uint64_t words[2])
{
    sd_buf text = {0};
    sd_error err = {0};
    for (size_t i = 0; i < 16; i++) {
        toy_add_byte(&text, ((const unsigned char *)words)[i]);
    }
    sd_assert_ok(sd_vocab_add(vocab, id, text.data, text.len, &err), &err);
    sd_buf_free(&text);
}

/* Two tokens with the same hash, made by undoing in the second word what the first one changes, are still two tokens,
 * and a third byte string with that hash is none. */
static void test_tokens_of_equal_hash(void **state)
{
    (void)state;
    uint64_t words[3][2] = {{11, 7}, {12, 0}, {13, 0}};
    uint64_t first = sd_map_mix((2 * 16 + 1) ^ words[0][0]) * 0xD6E8FEB86659FD93u;
    for (size_t i = 1; i < 3; i++) {
        words[i][1] = words[0][1] ^ first ^ (sd_map_mix((2 * 16 + 1) ^ words[i][0]) * 0xD6E8FEB86659FD93u);
        assert_true(hash_of_16(words[i]) == hash_of_16(words[0]));
    }
    sd_vocab vocab;
    start_vocab(&vocab);
    add_16(&vocab, 300, words[0]);
    add_16(&vocab, 301, words[1]);
    assert_int_equal(sd_map_get(&vocab.by_bytes, hash_of_16(words[0])), 300); /* the hash here is the hash there */
    assert_int_equal(sd_vocab_of_bytes(&vocab, (const char *)words[0], 16), 300);
    assert_int_equal(sd_vocab_of_bytes(&vocab, (const char *)words[1], 16), 301);
    assert_int_equal(sd_vocab_of_bytes(&vocab, (const char *)words[2], 16), -1);
    sd_vocab_free(&vocab);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_map),
        cmocka_unit_test(test_tokens_of_equal_hash),
        cmocka_unit_test(test_against_the_definition),
        cmocka_unit_test(test_marks_whole_tokens),
        cmocka_unit_test(test_long_piece),
        cmocka_unit_test(test_counts_beyond_the_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
