/* SPDX-License-Identifier: MIT
 *
 * Hand-made tokenizers for these tests. A toy vocabulary has the byte b as id b, and its other tokens from 256 on. */
#ifndef SD_TESTS_TOKENIZER_TOY_H
#define SD_TESTS_TOKENIZER_TOY_H

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/buf.h"
#include "src/tokenizer/tokenizer.h"
#include "tests/support/support.h"

/* Appends byte b as byte-level files write it. Written from GPT-2's definition, not from the code under test: printable
 * Latin-1 stays, the others get U+0100, U+0101, ... in order. */
static inline void toy_add_byte(sd_buf *out, unsigned b)
{
    unsigned code = b, others = 0;
    for (unsigned i = 0; i <= b; i++) {
        int printable = (i >= 33 && i <= 126) || (i >= 161 && i <= 172) || i >= 174;
        if (i == b && !printable) {
            code = 256 + others;
        }
        others += !printable;
    }
    unsigned char utf8[2] = {(unsigned char)(0xC0u | code >> 6), (unsigned char)(0x80u | (code & 0x3Fu))};
    unsigned char ascii = (unsigned char)code;
    if (code < 0x80) {
        sd_buf_add(out, &ascii, 1);
    } else {
        sd_buf_add(out, utf8, 2);
    }
}

/* {token: id}: the 256 bytes, then the n others as the file is to write them. The caller owns it. */
static inline json_t *toy_vocab(const char *const *others, size_t n)
{
    json_t *vocab = json_object();
    for (unsigned b = 0; b < 256; b++) {
        sd_buf text = {0};
        toy_add_byte(&text, b);
        assert_int_equal(json_object_set_new(vocab, text.data, json_integer((json_int_t)b)), 0);
        sd_buf_free(&text);
    }
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(json_object_set_new(vocab, others[i], json_integer((json_int_t)(256 + i))), 0);
    }
    return vocab;
}

static inline void toy_write(const char *dir, const char *name, const char *text)
{
    char path[4096];
    assert_true(snprintf(path, sizeof path, "%s/%s", dir, name) < (int)sizeof path);
    sd_write_file(path, text, strlen(text));
}

static inline void toy_remove(const char *dir, const char *name)
{
    char path[4096];
    assert_true(snprintf(path, sizeof path, "%s/%s", dir, name) < (int)sizeof path);
    (void)remove(path);
}

/* Writes and releases json. */
static inline void toy_write_json(const char *dir, const char *name, json_t *json)
{
    char *text = json_dumps(json, JSON_COMPACT | JSON_ENCODE_ANY);
    assert_non_null(text);
    toy_write(dir, name, text);
    free(text);
    json_decref(json);
}

/* Parses JSON of a test, written with ' for ". */
static inline json_t *toy_json(const char *text)
{
    char *copy = strdup(text);
    for (char *c = copy; *c; c++) {
        *c = *c == '\'' ? '"' : *c;
    }
    json_error_t error;
    json_t *json = json_loads(copy, JSON_DECODE_ANY, &error);
    if (!json) {
        fail_msg("the test's own JSON: %s: %s", error.text, copy);
    }
    free(copy);
    return json;
}

/* vocab.json with the others, and merges.txt. */
static inline void toy_write_two_files(const char *dir, const char *const *others, size_t n, const char *merges)
{
    toy_write_json(dir, "vocab.json", toy_vocab(others, n));
    toy_write(dir, "merges.txt", merges);
}

/* A whole tokenizer.json. merges: a JSON array; patch (may be NULL) replaces top-level keys. All three are taken. */
static inline json_t *toy_tokenizer_json(json_t *vocab, json_t *merges, json_t *patch)
{
    json_t *root =
        toy_json("{'version': '1.0', 'truncation': null, 'padding': null, 'added_tokens': [], 'normalizer': null,"
                 " 'pre_tokenizer': {'type': 'ByteLevel', 'add_prefix_space': false, 'trim_offsets': true,"
                 "                   'use_regex': true},"
                 " 'post_processor': null, 'decoder': {'type': 'ByteLevel'},"
                 " 'model': {'type': 'BPE', 'dropout': null, 'unk_token': null, 'fuse_unk': false,"
                 "           'continuing_subword_prefix': null, 'end_of_word_suffix': null,"
                 "           'byte_fallback': false, 'ignore_merges': false}}");
    json_t *model = json_object_get(root, "model");
    assert_int_equal(json_object_set_new(model, "vocab", vocab), 0);
    assert_int_equal(json_object_set_new(model, "merges", merges), 0);
    if (patch) {
        assert_int_equal(json_object_update(root, patch), 0);
        json_decref(patch);
    }
    return root;
}

static inline sd_tokenizer *toy_load(const char *dir)
{
    sd_tokenizer *tok;
    sd_error err = {0};
    sd_assert_ok(sd_tokenizer_load(&tok, dir, &err), &err);
    return tok;
}

/* Encodes `len` bytes and compares with the n wanted ids. */
static inline void toy_expect(const sd_tokenizer *tok, const char *text, size_t len, unsigned flags,
                              const int32_t *want, size_t n)
{
    int32_t ids[512];
    size_t n_ids;
    sd_error err = {0};
    sd_assert_ok(sd_tokenizer_encode(tok, text, len, flags, ids, 512, &n_ids, &err), &err);
    int equal = n_ids == n;
    for (size_t i = 0; equal && i < n; i++) {
        equal = ids[i] == want[i];
    }
    if (!equal) {
        print_error("\"%.*s\" with flags %u:\n found   ", (int)len, text, flags);
        for (size_t i = 0; i < n_ids && i < 512; i++) {
            print_error(" %d", ids[i]);
        }
        print_error("\n expected");
        for (size_t i = 0; i < n; i++) {
            print_error(" %d", want[i]);
        }
        print_error("\n");
        fail();
    }
}

#define TOY_EXPECT(tok, text, flags, ...)                                                                              \
    toy_expect((tok), (text), strlen(text), (flags), (const int32_t[]){__VA_ARGS__},                                   \
               sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

#endif
