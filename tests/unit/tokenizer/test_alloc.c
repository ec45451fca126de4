/* SPDX-License-Identifier: MIT
 *
 * Every allocation of loading, encoding and decoding fails once: SD_ERR_MEMORY with a message, nothing leaked (the
 * address sanitizer looks), and the next try works. */
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "tests/support/support.h"
#include "tests/unit/tokenizer/toy.h"

static const char *const others[] = {"<s>", "<pad>", "</s>", "ab"};
static char *dir;

static int setup(void **state)
{
    (void)state;
    dir = sd_make_temp_dir();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sd_alloc_fail_at(0);
    sd_remove_temp_dir(dir);
    return 0;
}

/* One try with the n-th allocation failing. True if it came that far. */
static bool load_failing_at(long n)
{
    sd_tokenizer *tok = (sd_tokenizer *)dir;
    sd_error err = {0};
    sd_alloc_fail_at(n);
    int rc = sd_tokenizer_load(&tok, dir, &err);
    bool failed = sd_alloc_count() >= n;
    sd_alloc_fail_at(0);
    if (rc == SD_OK) { /* the end; or the pattern's compiler went without machine code, which changes no result */
        TOY_EXPECT(tok, "</s>ab it's", SD_ENCODE_SPECIALS | SD_ENCODE_BOS, 258, 259, ' ', 'i', 't', '\'', 's');
    } else {
        sd_assert_fails(rc, SD_ERR_MEMORY, &err, "memory");
        assert_null(tok);
    }
    sd_tokenizer_free(tok);
    return failed;
}

static void fail_every_allocation_of_loading(long expected)
{
    long n = 1;
    while (load_failing_at(n)) {
        n++;
    }
    assert_true(n > expected); /* the hook is in use */
}

static void test_two_files(void **state)
{
    (void)state;
    toy_write_two_files(dir, others, 4, "a b\n");
    toy_write(dir, "added_tokens.json", "{\"<new>\": 260}");
    toy_write(dir, "special_tokens_map.json", "{\"bos_token\": \"</s>\", \"additional_special_tokens\": [\"<new>\"]}");
    toy_write(dir, "tokenizer_config.json",
              "{\"added_tokens_decoder\": {\"300\": {\"content\": \"<much newer>\"}},"
              " \"eos_token\": {\"content\": \"</s>\"},"
              " \"add_bos_token\": true}");
    toy_write(dir, "config.json", "{\"model_type\": \"opt\"}");
    fail_every_allocation_of_loading(20);
}

static void test_config_ids(void **state)
{
    (void)state;
    toy_write_two_files(dir, others, 4, "a b\n");
    toy_write(dir, "config.json", "{\"model_type\": \"opt\", \"bos_token_id\": 258, \"eos_token_id\": 256}");
    fail_every_allocation_of_loading(15);
}

static void test_tokenizer_json(void **state)
{
    (void)state;
    toy_write_json(dir, "tokenizer.json",
                   toy_tokenizer_json(toy_vocab(others, 4), toy_json("['a b']"),
                                      toy_json("{'added_tokens': [{'id': 258, 'content': '</s>', 'special': true},"
                                               " {'id': 260, 'content': 'a long added token'}],"
                                               " 'post_processor': {'type': 'TemplateProcessing', 'single':"
                                               " [{'SpecialToken': {'id': '</s>'}}, {'Sequence': {'id': 'A'}}],"
                                               " 'special_tokens': {'</s>': {'ids': [258]}}}}")));
    fail_every_allocation_of_loading(15);
}

static void test_encode_and_decode(void **state)
{
    (void)state;
    toy_write_two_files(dir, others, 4, "a b\n");
    toy_write(dir, "tokenizer_config.json",
              "{\"bos_token\": \"</s>\", \"add_bos_token\": true, \"add_prefix_space\": true}");
    sd_tokenizer *tok = toy_load(dir);
    /* a long piece, a longer one, malformed text, a special token: all that ever allocates */
    char text[2000];
    memset(text, 'a', sizeof text);
    memcpy(text + 500, " \xFF</s>1", 7);
    int32_t ids[2001], want[2001];
    size_t n, n_want, len;
    char decoded[2100];
    sd_error err = {0};
    const unsigned flags = SD_ENCODE_BOS | SD_ENCODE_SPECIALS;
    sd_assert_ok(sd_tokenizer_encode(tok, text, sizeof text, flags, want, 2001, &n_want, &err), &err);
    for (long at = 1;; at++) {
        sd_alloc_fail_at(at);
        int rc = sd_tokenizer_encode(tok, text, sizeof text, flags, ids, 2001, &n, &err);
        bool failed = sd_alloc_count() >= at;
        sd_alloc_fail_at(0);
        if (!failed) {
            assert_true(at > 5);
            sd_assert_ok(rc, &err);
            assert_int_equal(n, n_want);
            assert_memory_equal(ids, want, n * sizeof *ids);
            break;
        }
        sd_assert_fails(rc, SD_ERR_MEMORY, &err, "memory");
        assert_int_equal(n, 0);
    }
    for (long at = 1;; at++) {
        sd_alloc_fail_at(at);
        int rc = sd_tokenizer_decode(tok, want, n_want, decoded, sizeof decoded, &len, &err);
        bool failed = sd_alloc_count() >= at;
        sd_alloc_fail_at(0);
        if (!failed) {
            assert_true(at > 1);
            sd_assert_ok(rc, &err);
            break;
        }
        sd_assert_fails(rc, SD_ERR_MEMORY, &err, "memory");
        assert_int_equal(len, 0);
    }
    sd_tokenizer_free(tok);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {CASE(test_two_files), CASE(test_config_ids), CASE(test_tokenizer_json),
                                       CASE(test_encode_and_decode)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
