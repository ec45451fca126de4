/* SPDX-License-Identifier: MIT
 *
 * The ids that Hugging Face gives 2,000 strange strings with the embedded model's tokenizer
 * (reference/make_fixtures.py): {"text": ..., "ids": [...]} a line, no special token added or spelled out. */
#include <string.h>

#include "src/base/file.h"
#include "tests/support/support.h"
#include "tests/unit/tokenizer/toy.h"

static const char fixture[] = "tests/fixtures/tokenizer-golden/e2e-24l.jsonl";
static const char model[] = "models/e2e-24l";
enum { LEAST = 1000 };

static sd_tokenizer *tok;

static void check_line(const char *line, size_t len, int number)
{
    json_error_t error;
    json_t *root = json_loadb(line, len, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &error);
    const json_t *text = json_object_get(root, "text"), *list = json_object_get(root, "ids");
    if (!json_is_string(text) || !json_is_array(list)) {
        fail_msg("%s:%d: expected {\"text\": string, \"ids\": array}: %s", fixture, number,
                 root ? "another form" : error.text);
    }
    const char *bytes = json_string_value(text);
    size_t n_bytes = json_string_length(text), n_ids, n_text;
    int32_t *ids = malloc((n_bytes + 1) * sizeof *ids);
    char *decoded = malloc(n_bytes + 1);
    assert_true(ids && decoded);
    sd_error err = {0};
    sd_assert_ok(sd_tokenizer_encode(tok, bytes, n_bytes, 0, ids, n_bytes, &n_ids, &err), &err);
    size_t same = 0;
    while (same < n_ids && same < json_array_size(list) &&
           json_integer_value(json_array_get(list, same)) == ids[same]) {
        same++;
    }
    if (same < n_ids || same < json_array_size(list)) {
        fail_msg("%s:%d: %zu ids, expected %zu; the first that differs is number %zu. Text: %s", fixture, number, n_ids,
                 json_array_size(list), same, bytes);
    }
    sd_assert_ok(sd_tokenizer_decode(tok, ids, n_ids, decoded, n_bytes + 1, &n_text, &err), &err);
    assert_int_equal(n_text, n_bytes);
    assert_memory_equal(decoded, bytes, n_bytes);
    free(ids);
    free(decoded);
    json_decref(root);
}

static void test_golden(void **state)
{
    (void)state;
    sd_file file;
    sd_error err = {0};
    sd_assert_ok(sd_file_open(&file, fixture, false, &err), &err);
    tok = toy_load(model);
    int lines = 0;
    for (size_t at = 0; at < file.size; lines++) {
        const char *line = (const char *)file.data + at;
        const char *end = memchr(line, '\n', file.size - at);
        size_t len = end ? (size_t)(end - line) : file.size - at;
        check_line(line, len, lines + 1);
        at += len + 1;
    }
    assert_true(lines >= LEAST);
    sd_tokenizer_free(tok);
    sd_file_close(&file);
}

/* The embedded model's own: BOS is </s>, put once. */
static void test_embedded_bos(void **state)
{
    (void)state;
    tok = toy_load(model);
    assert_int_equal(sd_tokenizer_size(tok), 1500);
    assert_true(sd_tokenizer_adds_bos(tok));
    assert_int_equal(sd_tokenizer_bos(tok), 2);
    assert_int_equal(sd_tokenizer_eos(tok), 2);
    TOY_EXPECT(tok, "</s>", SD_ENCODE_BOS | SD_ENCODE_SPECIALS, 2);
    TOY_EXPECT(tok, "", SD_ENCODE_BOS, 2);
    for (int id = 0; id < 4; id++) {
        assert_true(sd_tokenizer_is_special(tok, id));
    }
    assert_false(sd_tokenizer_is_special(tok, 4));
    sd_tokenizer_free(tok);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_golden), cmocka_unit_test(test_embedded_bos)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
