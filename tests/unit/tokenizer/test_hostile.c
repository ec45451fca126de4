/* SPDX-License-Identifier: MIT
 *
 * Files that are broken, contradictory, or of another kind of tokenizer: each is refused with a sentence that names the
 * file and the thing, and nothing crashes. */
#include <string.h>

#include "src/base/rng.h"
#include "tests/support/support.h"
#include "tests/unit/tokenizer/toy.h"

static const char *const others[] = {"<s>", "<pad>", "</s>", "ab", "<\xE2\x82\xAC>"};
enum { N_OTHERS = 5 };
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
    sd_remove_temp_dir(dir);
    return 0;
}

/* The message is one valid line that holds both parts. */
static void expect_refused(int code, const char *part, const char *other)
{
    sd_tokenizer *tok = (sd_tokenizer *)dir;
    sd_error err = {0};
    sd_assert_fails(sd_tokenizer_load(&tok, dir, &err), code, &err, part);
    sd_assert_fails(err.code, code, &err, other);
    assert_null(tok);
    assert_null(strchr(err.message, '\n'));
}

static void write_good(void)
{
    toy_write_two_files(dir, others, N_OTHERS, "#version: 0.2\na b\n");
    toy_remove(dir, "tokenizer.json");
    toy_remove(dir, "tokenizer_config.json");
    toy_remove(dir, "special_tokens_map.json");
    toy_remove(dir, "added_tokens.json");
    toy_remove(dir, "config.json");
}

typedef struct bad_file {
    const char *file, *text; /* written over, or beside, a good vocab.json and merges.txt */
    int code;
    const char *part;
} bad_file;

static void expect_all_refused(const bad_file *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        write_good();
        sd_tokenizer_free(toy_load(dir));
        toy_write(dir, rows[i].file, rows[i].text);
        expect_refused(rows[i].code, rows[i].part, rows[i].file);
    }
}

static void test_vocab_and_merges(void **state)
{
    (void)state;
    static const bad_file rows[] = {
        {"vocab.json", "", SD_ERR_FORMAT, "not valid JSON"},
        {"vocab.json", "{\"a\": 1", SD_ERR_FORMAT, "not valid JSON"},
        {"vocab.json", "{\"a\": 1} x", SD_ERR_FORMAT, "not valid JSON"},
        {"vocab.json", "{\"a\": 1, \"a\": 2}", SD_ERR_FORMAT, "duplicate"},
        {"vocab.json", "{\"\xFF\": 1}", SD_ERR_FORMAT, "not valid JSON"},
        {"vocab.json", "[1, 2]", SD_ERR_FORMAT, "expected an object {token: id}, found an array"},
        {"vocab.json", "null", SD_ERR_FORMAT, "found null"},
        {"vocab.json", "{\"a\": \"1\"}", SD_ERR_FORMAT, "token \"a\": expected an integer id, found a string"},
        {"vocab.json", "{\"a\": 1.5}", SD_ERR_FORMAT, "a number that is not one"},
        {"vocab.json", "{\"a\": 1e300}", SD_ERR_FORMAT, "a number that is not one"},
        {"vocab.json", "{\"a\": -1}", SD_ERR_FORMAT, "token \"a\": id -1 is outside 0 .. 4194303"},
        {"vocab.json", "{\"a\": 4194304}", SD_ERR_FORMAT, "id 4194304 is outside"},
        {"vocab.json", "{\"a\": 9007199254740992}", SD_ERR_FORMAT, "is outside"},
        {"vocab.json", "{\"a\": 7, \"b\": 7}", SD_ERR_FORMAT, "token \"b\": id 7 already belongs to another token"},
        {"vocab.json", "{}", SD_ERR_UNSUPPORTED, "no token for byte 0x00"},
        {"vocab.json", "{\"a\": 4194303}", SD_ERR_UNSUPPORTED, "no token for byte 0x00"},
        {"merges.txt", "a b\na b\n", SD_ERR_FORMAT, "line 2: \"a\" and \"b\" already merge, by rule 1"},
        {"merges.txt", "#version: 0.2\na b\na b\n", SD_ERR_FORMAT, "line 3"},
        {"merges.txt", "#version: 0.2\na q!\n", SD_ERR_FORMAT,
         "line 2: the right part of the merge, \"q!\", is not in the vocab"},
        {"merges.txt", "q! a\n", SD_ERR_FORMAT, "line 1: the left part of the merge, \"q!\""},
        {"merges.txt", "b a\n", SD_ERR_FORMAT, "line 1: the result of the merge, \"ba\", is not in the vocabulary"},
        {"merges.txt", "a b\n\na b\n", SD_ERR_FORMAT, "line 2: expected two tokens"},
        {"merges.txt", "ab\n", SD_ERR_FORMAT, "line 1: expected two tokens with one space between them, found \"ab\""},
        {"merges.txt", "a b c\n", SD_ERR_FORMAT, "found \"a b c\""},
        {"merges.txt", "a  b\n", SD_ERR_FORMAT, "expected two tokens"},
        {"merges.txt", " ab\n", SD_ERR_FORMAT, "the left part of the merge is empty"},
        {"merges.txt", "ab \n", SD_ERR_FORMAT, "the right part of the merge is empty"},
        {"merges.txt", "\n#version: 0.2\n", SD_ERR_FORMAT, "line 1: expected two tokens"},
        {"merges.txt", "a b\n#version: 0.2\n", SD_ERR_FORMAT, "line 2: the left part of the merge, \"#version:\""},
        {"merges.txt", "a \xFF\n", SD_ERR_FORMAT, "not valid UTF-8"},
        {"merges.txt", "a \xC1\xA2\n", SD_ERR_FORMAT, "not valid UTF-8"}, /* an overlong "b" */
        {"merges.txt", "<\xE2\x82\xAC> a\n", SD_ERR_FORMAT, "is not written in the byte-level alphabet"},
        {"merges.txt", "a\tb\n", SD_ERR_FORMAT, "expected two tokens"},
    };
    expect_all_refused(rows, sizeof rows / sizeof rows[0]);
}

static void test_other_files(void **state)
{
    (void)state;
    static const bad_file rows[] = {
        {"tokenizer_config.json", "{\"bos_token\": 7}", SD_ERR_FORMAT, "bos_token: expected a string or an object"},
        {"tokenizer_config.json", "{\"bos_token\": \"<x>\"}", SD_ERR_FORMAT, "special token \"<x>\" has no id"},
        {"tokenizer_config.json", "{\"bos_token\": \"\"}", SD_ERR_FORMAT, "empty"},
        {"tokenizer_config.json", "{\"bos_token\": {}}", SD_ERR_FORMAT, "\"content\" is missing"},
        {"tokenizer_config.json", "{\"bos_token\": {\"content\": \"<s>\", \"lstrip\": 1}}", SD_ERR_FORMAT, "lstrip"},
        {"tokenizer_config.json", "{\"pad_token\": {\"content\": \"<pad>\", \"single_word\": true}}",
         SD_ERR_UNSUPPORTED, "single_word"},
        {"tokenizer_config.json", "{\"add_bos_token\": true}", SD_ERR_FORMAT, "no file says which token it is"},
        {"tokenizer_config.json", "{\"add_bos_token\": \"yes\", \"bos_token\": \"<s>\"}", SD_ERR_FORMAT,
         "add_bos_token"},
        {"tokenizer_config.json", "{\"add_prefix_space\": 0}", SD_ERR_FORMAT, "add_prefix_space"},
        {"tokenizer_config.json", "{\"additional_special_tokens\": \"<s>\"}", SD_ERR_FORMAT, "expected a list"},
        {"tokenizer_config.json", "{\"additional_special_tokens\": [[]]}", SD_ERR_FORMAT, "found an array"},
        {"tokenizer_config.json", "{\"tokenizer_class\": \"Qwen2Tokenizer\"}", SD_ERR_UNSUPPORTED, "Qwen2Tokenizer"},
        {"tokenizer_config.json", "{\"tokenizer_class\": 3}", SD_ERR_FORMAT, "tokenizer_class"},
        {"tokenizer_config.json", "{\"added_tokens_decoder\": []}", SD_ERR_FORMAT, "expected an object"},
        {"tokenizer_config.json", "{\"added_tokens_decoder\": {\"x\": {\"content\": \"q\"}}}", SD_ERR_FORMAT,
         "as the key"},
        {"tokenizer_config.json", "{\"added_tokens_decoder\": {\"-1\": {\"content\": \"q\"}}}", SD_ERR_FORMAT,
         "as the key"},
        {"tokenizer_config.json", "{\"added_tokens_decoder\": {\"12z\": {\"content\": \"q\"}}}", SD_ERR_FORMAT,
         "as the key"},
        {"tokenizer_config.json", "{\"added_tokens_decoder\": {\"99999999999999999999\": {\"content\": \"q\"}}}",
         SD_ERR_FORMAT, "as the key"},
        {"tokenizer_config.json", "{\"added_tokens_decoder\": {\"258\": {\"content\": \"qqq\"}}}", SD_ERR_FORMAT,
         "id 258 already belongs to another token"},
        {"tokenizer_config.json", "{\"added_tokens_decoder\": {\"400\": {\"content\": \"</s>\"}}}", SD_ERR_FORMAT,
         "its id is 400 here and 258 in the vocabulary"},
        {"tokenizer_config.json", "{\"added_tokens_decoder\": {\"400\": 5}}", SD_ERR_FORMAT, "found a number"},
        {"tokenizer_config.json", "7", SD_ERR_FORMAT, "expected a JSON object, found a number"},
        {"special_tokens_map.json", "{\"eos_token\": \"<gone>\"}", SD_ERR_FORMAT, "<gone>"},
        {"special_tokens_map.json", "[]", SD_ERR_FORMAT, "found an array"},
        {"added_tokens.json", "{\"<new>\": \"262\"}", SD_ERR_FORMAT, "<new>"},
        {"added_tokens.json", "{\"<new>\": 97}", SD_ERR_FORMAT, "id 97 already belongs to another token"},
        {"added_tokens.json", "{\"\": 300}", SD_ERR_FORMAT, "empty text"},
        {"config.json", "{\"model_type\": 1}", SD_ERR_FORMAT, "model_type"},
        {"config.json", "{\"model_type\": \"opt\"}", SD_ERR_FORMAT, "no file says which token it is"},
        {"config.json", "{", SD_ERR_FORMAT, "not valid JSON"},
        {"tokenizer.json", "", SD_ERR_FORMAT, "not valid JSON"},
        {"tokenizer.json", "{}", SD_ERR_UNSUPPORTED, "decoder: found nothing"},
    };
    expect_all_refused(rows, sizeof rows / sizeof rows[0]);
}

#define SPECIAL "{'SpecialToken': {'id': '</s>', 'type_id': 0}}"
#define TEXT "{'Sequence': {'id': 'A', 'type_id': 0}}"
#define TEMPLATE(single, ids)                                                                                          \
    "{'post_processor': {'type': 'TemplateProcessing', 'single': [" single "],"                                        \
    " 'special_tokens': {'</s>': {'ids': " ids "}}}}"

/* Top-level keys of a tokenizer.json that is good without them. */
static void test_pipelines(void **state)
{
    (void)state;
    static const struct {
        const char *patch;
        int code;
        const char *part;
    } rows[] = {
        {"{'normalizer': {'type': 'NFC'}}", SD_ERR_UNSUPPORTED, "normalizer: found NFC; expected null"},
        {"{'normalizer': {'type': 'Sequence', 'normalizers': []}}", SD_ERR_UNSUPPORTED, "found Sequence"},
        {"{'normalizer': 3}", SD_ERR_UNSUPPORTED, "found a number"},
        {"{'decoder': null}", SD_ERR_UNSUPPORTED, "decoder: found null"},
        {"{'decoder': {'type': 'WordPiece'}}", SD_ERR_UNSUPPORTED, "decoder: found WordPiece"},
        {"{'decoder': {'type': ['ByteLevel']}}", SD_ERR_UNSUPPORTED, "an object without a type"},
        {"{'pre_tokenizer': null}", SD_ERR_UNSUPPORTED, "pre_tokenizer: found null"},
        {"{'pre_tokenizer': {'type': 'Metaspace'}}", SD_ERR_UNSUPPORTED, "found Metaspace"},
        {"{'pre_tokenizer': {'type': 'Whitespace'}}", SD_ERR_UNSUPPORTED, "found Whitespace"},
        {"{'pre_tokenizer': {'type': 'ByteLevel', 'use_regex': 1}}", SD_ERR_FORMAT, "use_regex"},
        {"{'pre_tokenizer': {'type': 'ByteLevel', 'add_prefix_space': 'no'}}", SD_ERR_FORMAT, "add_prefix_space"},
        {"{'pre_tokenizer': {'type': 'Sequence', 'pretokenizers': []}}", SD_ERR_UNSUPPORTED, "Sequence of 0"},
        {"{'pre_tokenizer': {'type': 'Sequence'}}", SD_ERR_UNSUPPORTED, "Sequence of 0"},
        {"{'pre_tokenizer': {'type': 'Sequence', 'pretokenizers': [{'type': 'Digits'}, {'type': 'ByteLevel'}]}}",
         SD_ERR_UNSUPPORTED, "begins with Digits"},
        {"{'pre_tokenizer': {'type': 'Sequence', 'pretokenizers': ["
         "{'type': 'Split', 'pattern': {'Regex': '\\\\p{N}{1,3}'},"
         " 'behavior': 'Isolated', 'invert': false}, {'type': 'ByteLevel', 'use_regex': false}]}}",
         SD_ERR_UNSUPPORTED, "Split with the pattern \"\\p{N}{1,3}\"; the only one supported is GPT-2's"},
        {"{'pre_tokenizer': {'type': 'Sequence', 'pretokenizers': [{'type': 'Split', 'pattern': {'String': ' '},"
         " 'behavior': 'Isolated'}, {'type': 'ByteLevel'}]}}",
         SD_ERR_UNSUPPORTED, "not a Regex"},
        {"{'post_processor': {'type': 'BertProcessing'}}", SD_ERR_UNSUPPORTED, "post_processor: found BertProcessing"},
        {"{'post_processor': {'type': 'Sequence', 'processors': [{'type': 'RobertaProcessing'}]}}", SD_ERR_UNSUPPORTED,
         "RobertaProcessing"},
        {"{'post_processor': {'type': 'Sequence', 'processors': [{'type': 'TemplateProcessing', 'single': [" TEXT "]},"
         " {'type': 'TemplateProcessing', 'single': [" TEXT "]}]}}",
         SD_ERR_UNSUPPORTED, "with TemplateProcessing as part 1"},
        {TEMPLATE(TEXT ", " SPECIAL, "[258]"), SD_ERR_UNSUPPORTED, "has 2 parts"},
        {TEMPLATE(SPECIAL ", " TEXT ", " SPECIAL, "[258]"), SD_ERR_UNSUPPORTED, "has 3 parts"},
        {TEMPLATE(SPECIAL ", " SPECIAL, "[258]"), SD_ERR_UNSUPPORTED, "has 2 parts"},
        {TEMPLATE(SPECIAL, "[258]"), SD_ERR_UNSUPPORTED, "has 1 parts"},
        {"{'post_processor': {'type': 'TemplateProcessing'}}", SD_ERR_UNSUPPORTED, "has 0 parts"},
        {TEMPLATE(SPECIAL ", " TEXT, "null"), SD_ERR_FORMAT, "special_tokens[\"</s>\"].ids: expected an array"},
        {TEMPLATE(SPECIAL ", " TEXT, "[258, 258]"), SD_ERR_FORMAT, "one id"},
        {TEMPLATE(SPECIAL ", " TEXT, "[9999]"), SD_ERR_FORMAT, "one id"},
        {TEMPLATE(SPECIAL ", " TEXT, "['</s>']"), SD_ERR_FORMAT, "one id"},
        {"{'added_tokens': 5}", SD_ERR_FORMAT, "added_tokens: expected an array, found a number"},
        {"{'added_tokens': [5]}", SD_ERR_FORMAT, "added_tokens[0]"},
        {"{'added_tokens': [{'id': 256, 'content': '<s>'}, {'content': '<pad>'}]}", SD_ERR_FORMAT,
         "added_tokens[1]: key \"id\" is missing"},
        {"{'added_tokens': [{'id': -3, 'content': '<s>'}]}", SD_ERR_FORMAT, "added_tokens[0]"},
        {"{'added_tokens': [{'id': 5000000, 'content': '<q>'}]}", SD_ERR_FORMAT, "5000000"},
        {"{'added_tokens': [{'id': 256, 'content': '</s>'}]}", SD_ERR_FORMAT, "its id is 256 here and 258"},
        {"{'added_tokens': [{'id': 300, 'content': ''}]}", SD_ERR_FORMAT, "empty"},
        {"{'added_tokens': [{'id': 300, 'content': 'q', 'single_word': true}]}", SD_ERR_UNSUPPORTED, "single_word"},
        {"{'model': null}", SD_ERR_UNSUPPORTED, "model: found null"},
        {"{'model': {'type': 'Unigram', 'vocab': []}}", SD_ERR_UNSUPPORTED, "model: found Unigram"},
        {"{'model': {'type': 'WordPiece', 'merges': []}}", SD_ERR_UNSUPPORTED, "model: found WordPiece"},
        {"{'model': {'type': 'BPE', 'vocab': {}, 'merges': []}}", SD_ERR_UNSUPPORTED, "no token for byte 0x00"},
        {"{'model': {'type': 'BPE', 'merges': []}}", SD_ERR_FORMAT, "found nothing"},
        {"{'model': {'type': 'BPE', 'vocab': ['a', 'b'], 'merges': []}}", SD_ERR_FORMAT, "found an array"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        toy_write_json(dir, "tokenizer.json",
                       toy_tokenizer_json(toy_vocab(others, N_OTHERS), toy_json("['a b']"), NULL));
        sd_tokenizer_free(toy_load(dir));
        toy_write_json(dir, "tokenizer.json",
                       toy_tokenizer_json(toy_vocab(others, N_OTHERS), toy_json("['a b']"), toy_json(rows[i].patch)));
        expect_refused(rows[i].code, rows[i].part, "tokenizer.json: ");
    }
}

/* Keys of "model", and its merges. */
static void test_models(void **state)
{
    (void)state;
    static const struct {
        const char *patch;
        int code;
        const char *part;
    } rows[] = {
        {"{'dropout': 0.1}", SD_ERR_UNSUPPORTED, "model.dropout is 0.1"},
        {"{'dropout': 'much'}", SD_ERR_FORMAT, "dropout"},
        {"{'byte_fallback': true}", SD_ERR_UNSUPPORTED, "model.byte_fallback is true"},
        {"{'ignore_merges': true}", SD_ERR_UNSUPPORTED, "model.ignore_merges is true"},
        {"{'continuing_subword_prefix': '##'}", SD_ERR_UNSUPPORTED, "model.continuing_subword_prefix is \"##\""},
        {"{'end_of_word_suffix': '</w>'}", SD_ERR_UNSUPPORTED, "model.end_of_word_suffix is \"</w>\""},
        {"{'end_of_word_suffix': 5}", SD_ERR_FORMAT, "end_of_word_suffix"},
        {"{'merges': 'a b'}", SD_ERR_FORMAT, "model.merges: expected an array, found a string"},
        {"{'merges': null}", SD_ERR_FORMAT, "found null"},
        {"{'merges': ['ab']}", SD_ERR_FORMAT, "model.merges[0]: expected \"left right\""},
        {"{'merges': ['a b c']}", SD_ERR_FORMAT, "model.merges[0]"},
        {"{'merges': ['a b', 7]}", SD_ERR_FORMAT, "model.merges[1]"},
        {"{'merges': [['a']]}", SD_ERR_FORMAT, "found an array"},
        {"{'merges': [['a', 'b', 'c']]}", SD_ERR_FORMAT, "found an array"},
        {"{'merges': [['a', 1]]}", SD_ERR_FORMAT, "found an array"},
        {"{'merges': [['a', '']]}", SD_ERR_FORMAT, "model.merges[0]: the right part of the merge is empty"},
        {"{'merges': [' ab']}", SD_ERR_FORMAT, "the left part of the merge is empty"},
        {"{'merges': ['a b', ['a', 'b']]}", SD_ERR_FORMAT, "model.merges[1]: \"a\" and \"b\" already merge"},
        {"{'merges': ['a c']}", SD_ERR_FORMAT, "the result of the merge, \"ac\""},
        {"{'type': 3}", SD_ERR_UNSUPPORTED, "model: found an object without a type"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        json_t *root = toy_tokenizer_json(toy_vocab(others, N_OTHERS), toy_json("['a b']"), NULL);
        json_t *patch = toy_json(rows[i].patch);
        assert_int_equal(json_object_update(json_object_get(root, "model"), patch), 0);
        json_decref(patch);
        toy_write_json(dir, "tokenizer.json", root);
        expect_refused(rows[i].code, rows[i].part, "tokenizer.json: ");
    }
}

/* A message shows the beginning of a long token, cut between characters. */
static void test_long_tokens_in_messages(void **state)
{
    (void)state;
    sd_buf line = {0};
    sd_buf_add_str(&line, "a x");
    for (int i = 0; i < 100000; i++) {
        sd_buf_add_str(&line, "\xC4\xA0");
    }
    write_good();
    toy_write(dir, "merges.txt", line.data);
    sd_tokenizer *tok;
    sd_error err = {0};
    sd_assert_fails(sd_tokenizer_load(&tok, dir, &err), SD_ERR_FORMAT, &err, "\xC4\xA0\", is not in the vocabulary");
    assert_true(strlen(err.message) < 300);
    sd_buf_free(&line);
}

/* Good files with bytes changed, cut and doubled at random: any outcome but a crash. What loads must encode. */
static void test_random_damage(void **state)
{
    (void)state;
    sd_rng rng;
    sd_rng_seed(&rng, 9);
    int loaded = 0;
    for (int k = 0; k < 1500; k++) {
        json_t *root = toy_tokenizer_json(toy_vocab(others, N_OTHERS), toy_json("['a b']"),
                                          toy_json("{'added_tokens': [{'id': 258, 'content': '</s>', 'special': true},"
                                                   " {'id': 400, 'content': 'x y', 'lstrip': true, 'rstrip': true}]}"));
        char *text = json_dumps(root, JSON_INDENT(1));
        json_decref(root);
        size_t len = strlen(text);
        for (int hits = 1 + (int)sd_rng_below(&rng, 3); hits > 0; hits--) {
            static const char likely[] = "\"{}[]:,0123456789-e \\u\n\xFF";
            text[sd_rng_below(&rng, len)] = likely[sd_rng_below(&rng, sizeof likely - 1)];
        }
        text[k % 4 ? len : sd_rng_below(&rng, len)] = '\0';
        toy_write(dir, "tokenizer.json", text);
        free(text);
        sd_tokenizer *tok;
        sd_error err = {0};
        if (sd_tokenizer_load(&tok, dir, &err) == SD_OK) {
            int32_t ids[16];
            size_t n;
            sd_assert_ok(sd_tokenizer_encode(tok, "ab </s> x y", 11, SD_ENCODE_SPECIALS, ids, 16, &n, &err), &err);
            loaded++;
        } else {
            assert_true(err.message[0] != '\0');
        }
        sd_tokenizer_free(tok);
    }
    assert_true(loaded > 50 && loaded < 1400); /* else this tests one side only */
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_vocab_and_merges), CASE(test_other_files),
        CASE(test_pipelines),        CASE(test_models),
        CASE(test_long_tokens_in_messages), CASE(test_random_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
