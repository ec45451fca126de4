/* SPDX-License-Identifier: MIT
 *
 * What is read from which file of a model directory, and what follows for special tokens and BOS. */
#include <string.h>

#include "src/tokenizer/pattern.h"
#include "tests/support/support.h"
#include "tests/unit/tokenizer/toy.h"

/* The vocabulary of every directory here. */
enum { S = 256, PAD, END, UNK, AB, ABC, ADDED };
static const char *const others[] = {"<s>", "<pad>", "</s>", "<unk>", "ab", "abc"};
static const char merges[] = "#version: 0.2\na b\nab c\n";

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

static void write_two_files(void) { toy_write_two_files(dir, others, 6, merges); }

/* tokenizer.json with the vocabulary above; patch replaces top-level keys. */
static void write_tokenizer_json(const char *patch)
{
    toy_write_json(dir, "tokenizer.json",
                   toy_tokenizer_json(toy_vocab(others, 6), toy_json("['a b', ['ab', 'c']]"),
                                      patch ? toy_json(patch) : NULL));
}

static void check_and_free(sd_tokenizer *tok, int bos, int eos, bool adds_bos)
{
    assert_int_equal(sd_tokenizer_bos(tok), bos);
    assert_int_equal(sd_tokenizer_eos(tok), eos);
    assert_int_equal(sd_tokenizer_adds_bos(tok), adds_bos);
    if (adds_bos) {
        TOY_EXPECT(tok, "abc", SD_ENCODE_BOS, bos, ABC);
    } else {
        TOY_EXPECT(tok, "abc", SD_ENCODE_BOS, ABC);
    }
    TOY_EXPECT(tok, "abc", 0, ABC);
    sd_tokenizer_free(tok);
}

static void test_two_files_alone(void **state)
{
    (void)state;
    write_two_files();
    sd_tokenizer *tok = toy_load(dir);
    assert_int_equal(sd_tokenizer_size(tok), 262);
    assert_false(sd_tokenizer_is_special(tok, END)); /* nothing says so */
    TOY_EXPECT(tok, "abcab", 0, ABC, AB);
    TOY_EXPECT(tok, "</s>", SD_ENCODE_SPECIALS, '<', '/', 's', '>');
    check_and_free(tok, -1, -1, false);
}

static void test_merges_text_forms(void **state)
{
    (void)state;
    static const char *const forms[] = {"a b\nab c\n", "a b\nab c", "#version: 0.2\r\na b\r\nab c\r\n",
                                        "#version: 0.2 - from a trainer\na b\nab c\n\n\n", "a b\r\nab c\r\n\r\n"};
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        toy_write_two_files(dir, others, 6, forms[i]);
        sd_tokenizer *tok = toy_load(dir);
        TOY_EXPECT(tok, "abc", 0, ABC);
        sd_tokenizer_free(tok);
    }
    toy_write_two_files(dir, others, 6, ""); /* bytes only is a vocabulary too */
    sd_tokenizer *tok = toy_load(dir);
    TOY_EXPECT(tok, "abc", 0, 'a', 'b', 'c');
    sd_tokenizer_free(tok);
}

/* "#" and "# #" are tokens and merges like any other; only a first line that begins with "#version" is not one. */
static void test_merges_of_number_signs(void **state)
{
    (void)state;
    static const char *const signs[] = {"##"};
    toy_write_two_files(dir, signs, 1, "# #\n");
    sd_tokenizer *tok = toy_load(dir);
    TOY_EXPECT(tok, "###", 0, 256, '#');
    sd_tokenizer_free(tok);
}

static void test_tokenizer_json_alone(void **state)
{
    (void)state;
    write_tokenizer_json(NULL);
    sd_tokenizer *tok = toy_load(dir);
    assert_int_equal(sd_tokenizer_size(tok), 262);
    TOY_EXPECT(tok, "abcab it's", 0, ABC, AB, ' ', 'i', 't', '\'', 's');
    check_and_free(tok, -1, -1, false);
}

/* A file of 2020: no type, no byte_fallback, no use_regex. */
static void test_old_tokenizer_json(void **state)
{
    (void)state;
    json_t *model =
        toy_json("{'dropout': null, 'unk_token': '', 'continuing_subword_prefix': '', 'end_of_word_suffix': ''}");
    assert_int_equal(json_object_set_new(model, "vocab", toy_vocab(others, 6)), 0);
    assert_int_equal(json_object_set_new(model, "merges", toy_json("['a b', 'ab c']")), 0);
    json_t *root = toy_json("{'pre_tokenizer': {'type': 'ByteLevel', 'add_prefix_space': false}, 'decoder': {'type': "
                            "'ByteLevel'}}");
    assert_int_equal(json_object_set_new(root, "model", model), 0);
    toy_write_json(dir, "tokenizer.json", root);
    check_and_free(toy_load(dir), -1, -1, false);
}

/* Vocabulary and merges from the two files; added tokens and the template from tokenizer.json. */
static void test_both(void **state)
{
    (void)state;
    static const char *const different[] = {"zz"};
    write_two_files();
    toy_write_json(dir, "tokenizer.json",
                   toy_tokenizer_json(toy_vocab(different, 1), toy_json("['z z']"),
                                      toy_json("{'added_tokens': [{'id': 258, 'content': '</s>', 'special': true},"
                                               "  {'id': 262, 'content': 'extra', 'special': false}]}")));
    sd_tokenizer *tok = toy_load(dir);
    assert_int_equal(sd_tokenizer_size(tok), 263);
    TOY_EXPECT(tok, "abczzextra</s>", SD_ENCODE_SPECIALS, ABC, 'z', 'z', ADDED, END);
    sd_tokenizer_free(tok);
    /* and its pipeline still has to be GPT-2's */
    write_tokenizer_json("{'normalizer': {'type': 'NFC'}}");
    sd_error err = {0};
    sd_assert_fails(sd_tokenizer_load(&tok, dir, &err), SD_ERR_UNSUPPORTED, &err, "NFC");
    assert_null(tok);
}

static void test_template_bos(void **state)
{
    (void)state;
    static const char template[] =
        "{'post_processor': {'type': 'TemplateProcessing', 'single': [{'SpecialToken': {'id': '</s>', 'type_id': 0}},"
        " {'Sequence': {'id': 'A', 'type_id': 0}}], 'pair': [],"
        " 'special_tokens': {'</s>': {'id': '</s>', 'ids': [258], 'tokens': ['</s>']}}}}";
    write_tokenizer_json(template);
    check_and_free(toy_load(dir), END, -1, true);
    /* with add_bos_token as well, and a BOS in the text: still one */
    toy_write(dir, "tokenizer_config.json",
              "{\"add_bos_token\": true, \"bos_token\": \"</s>\", \"eos_token\": \"</s>\"}");
    sd_tokenizer *tok = toy_load(dir);
    TOY_EXPECT(tok, "abc", SD_ENCODE_BOS, END, ABC);
    TOY_EXPECT(tok, "</s>abc", SD_ENCODE_BOS | SD_ENCODE_SPECIALS, END, ABC);
    check_and_free(tok, END, END, true);
    /* the template decides which token it is, and that there is one */
    toy_write(dir, "tokenizer_config.json", "{\"add_bos_token\": false, \"bos_token\": \"<s>\"}");
    check_and_free(toy_load(dir), END, -1, true);
}

static void test_template_in_a_sequence_and_without_special(void **state)
{
    (void)state;
    write_tokenizer_json("{'post_processor': {'type': 'Sequence', 'processors': [{'type': 'ByteLevel'},"
                         " {'type': 'TemplateProcessing',"
                         "  'single': [{'SpecialToken': {'id': '<s>'}}, {'Sequence': {'id': 'A'}}],"
                         "  'special_tokens': {'<s>': {'ids': [256]}}}]}}");
    check_and_free(toy_load(dir), S, -1, true);
    write_tokenizer_json("{'post_processor': {'type': 'TemplateProcessing', 'single': [{'Sequence': {'id': 'A'}}],"
                         " 'special_tokens': {}}}");
    check_and_free(toy_load(dir), -1, -1, false);
    write_tokenizer_json("{'post_processor': {'type': 'ByteLevel', 'trim_offsets': false}}");
    check_and_free(toy_load(dir), -1, -1, false);
}

static void test_pre_tokenizer_sequences(void **state)
{
    (void)state;
    write_tokenizer_json("{'pre_tokenizer': {'type': 'Sequence', 'pretokenizers':"
                         " [{'type': 'ByteLevel', 'add_prefix_space': false}]}}");
    check_and_free(toy_load(dir), -1, -1, false);
    json_t *split = toy_json("{'type': 'Split', 'behavior': 'Isolated', 'invert': false}");
    json_t *regex = json_object();
    json_object_set_new(regex, "Regex", json_string(sd_pattern_gpt2));
    json_object_set_new(split, "pattern", regex);
    json_t *patch = toy_json("{'pre_tokenizer': {'type': 'Sequence', 'pretokenizers': ["
                             "{'type': 'ByteLevel', 'add_prefix_space': false, 'use_regex': false}]}}");
    json_array_insert_new(json_object_get(json_object_get(patch, "pre_tokenizer"), "pretokenizers"), 0, split);
    static const char *const reach[] = {"a\xC4\xA0"};
    toy_write_json(dir, "tokenizer.json", toy_tokenizer_json(toy_vocab(reach, 1), toy_json("['a \xC4\xA0']"), patch));
    sd_tokenizer *tok = toy_load(dir);
    TOY_EXPECT(tok, "a b", 0, 'a', ' ', 'b'); /* it is cut: the merge does not reach over */
    TOY_EXPECT(tok, "a ", 0, 'a', ' ');
    sd_tokenizer_free(tok);
}

/* Without the pattern, all text is one piece: merges reach over spaces. */
static void test_no_pattern(void **state)
{
    (void)state;
    static const char *const reach[] = {"a\xC4\xA0"};
    toy_write_json(dir, "tokenizer.json",
                   toy_tokenizer_json(toy_vocab(reach, 1), toy_json("[]"),
                                      toy_json("{'pre_tokenizer': {'type': 'ByteLevel', 'add_prefix_space': false,"
                                               " 'use_regex': false}}")));
    toy_write_json(dir, "vocab.json", toy_vocab(reach, 1));
    toy_write(dir, "merges.txt", "a \xC4\xA0\n");
    sd_tokenizer *tok = toy_load(dir);
    TOY_EXPECT(tok, "a b", 0, 256, 'b');
    sd_tokenizer_free(tok);
    toy_remove(dir, "tokenizer.json");
    tok = toy_load(dir);
    TOY_EXPECT(tok, "a b", 0, 'a', ' ', 'b');
    sd_tokenizer_free(tok);
}

static void test_prefix_space(void **state)
{
    (void)state;
    write_tokenizer_json("{'pre_tokenizer': {'type': 'ByteLevel', 'add_prefix_space': true},"
                         " 'added_tokens': [{'id': 258, 'content': '</s>', 'special': true}]}");
    sd_tokenizer *tok = toy_load(dir);
    TOY_EXPECT(tok, "abc", 0, ' ', ABC);
    TOY_EXPECT(tok, " abc", 0, ' ', ABC);
    TOY_EXPECT(tok, "\nabc", 0, ' ', '\n', ABC);
    TOY_EXPECT(tok, "ab</s>c", SD_ENCODE_SPECIALS, ' ', AB, END, ' ', 'c'); /* every stretch gets its own */
    TOY_EXPECT(tok, "\xFF", 0, ' ', 0xFF);
    size_t n;
    assert_int_equal(sd_tokenizer_encode(tok, "", 0, 0, NULL, 0, &n, NULL), SD_OK);
    assert_int_equal(n, 0);
    sd_tokenizer_free(tok);
    toy_write(dir, "tokenizer_config.json", "{\"add_prefix_space\": false}"); /* the configuration has the last word */
    tok = toy_load(dir);
    TOY_EXPECT(tok, "abc", 0, ABC);
    sd_tokenizer_free(tok);
    toy_remove(dir, "tokenizer.json");
    write_two_files();
    toy_write(dir, "tokenizer_config.json", "{\"add_prefix_space\": true}");
    tok = toy_load(dir);
    TOY_EXPECT(tok, "abc", 0, ' ', ABC);
    sd_tokenizer_free(tok);
}

/* What OPT's repositories ship: two files, roles as objects, a length limit beyond 64 bits. */
static void test_opt_configuration(void **state)
{
    (void)state;
    write_two_files();
    toy_write(dir, "config.json",
              "{\"model_type\": \"opt\", \"bos_token_id\": 2, \"eos_token_id\": 2, \"prefix\": \"</s>\"}");
    toy_write(dir, "special_tokens_map.json",
              "{\"bos_token\": {\"content\": \"</s>\", \"lstrip\": false, \"normalized\": true, \"rstrip\": false,"
              " \"single_word\": false}, \"eos_token\": \"</s>\", \"unk_token\": \"</s>\", \"pad_token\": \"<pad>\"}");
    toy_write(dir, "tokenizer_config.json",
              "{\"errors\": \"replace\", \"unk_token\": {\"content\": \"</s>\", \"__type\": \"AddedToken\"},"
              " \"bos_token\": {\"content\": \"</s>\", \"normalized\": true}, \"eos_token\": {\"content\": \"</s>\"},"
              " \"pad_token\": {\"content\": \"<pad>\"}, \"add_prefix_space\": false, \"add_bos_token\": true,"
              " \"model_max_length\": 1000000000000000019884624838656, \"tokenizer_class\": \"GPT2Tokenizer\"}");
    sd_tokenizer *tok = toy_load(dir);
    assert_true(sd_tokenizer_is_special(tok, END));
    assert_true(sd_tokenizer_is_special(tok, PAD));
    assert_false(sd_tokenizer_is_special(tok, S));
    TOY_EXPECT(tok, "<pad>ab", SD_ENCODE_SPECIALS | SD_ENCODE_BOS, END, PAD, AB);
    check_and_free(tok, END, END, true);
}

/* Rows: tokenizer_config.json (NULL: none), config.json, and what follows. Two files each. */
static void test_who_adds_bos(void **state)
{
    (void)state;
    static const struct {
        const char *config, *model;
        int bos, eos;
        bool adds_bos;
    } rows[] = {
        {"{'add_bos_token': true, 'bos_token': '<s>'}", NULL, S, -1, true},
        {"{'add_bos_token': false, 'bos_token': '<s>'}", NULL, S, -1, false},
        {"{'bos_token': '<s>'}", NULL, S, -1, false},
        {"{'bos_token': '<s>', 'eos_token': '</s>'}", "{'model_type': 'gpt2'}", S, END, false},
        {"{'bos_token': '</s>', 'tokenizer_class': 'GPT2Tokenizer'}", "{'model_type': 'opt'}", END, -1, true},
        {"{'bos_token': '</s>', 'add_bos_token': false}", "{'model_type': 'opt'}", END, -1, false},
        {"{'bos_token': '</s>', 'add_bos_token': null}", "{'model_type': 'opt'}", END, -1, true},
        {NULL, "{'model_type': 'opt', 'bos_token_id': 258, 'eos_token_id': 258}", END, END, true},
        {NULL, "{'model_type': 'gpt2', 'bos_token_id': 256, 'eos_token_id': 258}", S, END, false},
        {"{'eos_token': '<s>', 'bos_token': '<s>'}", "{'model_type': 'gpt2', 'bos_token_id': 258}", S, S, false},
        /* ids that no special token can have: out of the vocabulary, text, not an id at all */
        {NULL, "{'model_type': 'gpt2', 'bos_token_id': 50256, 'eos_token_id': 99}", -1, -1, false},
        {NULL, "{'model_type': 'gpt2', 'bos_token_id': null, 'eos_token_id': [258]}", -1, -1, false},
        {NULL, "{'model_type': 'gpt2', 'bos_token_id': -1, 'eos_token_id': 2.5}", -1, -1, false},
    };
    write_two_files();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        toy_remove(dir, "tokenizer_config.json");
        toy_remove(dir, "config.json");
        if (rows[i].config) {
            toy_write_json(dir, "tokenizer_config.json", toy_json(rows[i].config));
        }
        if (rows[i].model) {
            toy_write_json(dir, "config.json", toy_json(rows[i].model));
        }
        sd_tokenizer *tok = toy_load(dir);
        assert_true(rows[i].bos < 0 || sd_tokenizer_is_special(tok, rows[i].bos));
        assert_true(rows[i].eos < 0 || sd_tokenizer_is_special(tok, rows[i].eos));
        check_and_free(tok, rows[i].bos, rows[i].eos, rows[i].adds_bos);
    }
}

/* A bare GPT-2: its one special token is known by name, and nothing is put in front. */
static void test_bare_gpt2(void **state)
{
    (void)state;
    static const char *const gpt2[] = {"<|endoftext|>"};
    toy_write_two_files(dir, gpt2, 1, "");
    sd_tokenizer *tok = toy_load(dir);
    assert_int_equal(sd_tokenizer_eos(tok), 256);
    assert_true(sd_tokenizer_is_special(tok, 256));
    assert_false(sd_tokenizer_adds_bos(tok));
    TOY_EXPECT(tok, "a<|endoftext|>", SD_ENCODE_SPECIALS | SD_ENCODE_BOS, 'a', 256);
    sd_tokenizer_free(tok);
}

static void test_added_tokens_json(void **state)
{
    (void)state;
    write_two_files();
    toy_write(dir, "added_tokens.json", "{\"<new>\": 262, \"</s>\": 258}");
    toy_write(dir, "special_tokens_map.json", "{\"eos_token\": \"</s>\", \"additional_special_tokens\": [\"<new>\"]}");
    sd_tokenizer *tok = toy_load(dir);
    assert_int_equal(sd_tokenizer_size(tok), 263);
    assert_true(sd_tokenizer_is_special(tok, ADDED));
    TOY_EXPECT(tok, "a<new>", SD_ENCODE_SPECIALS, 'a', ADDED);
    check_and_free(tok, -1, END, false);
    toy_write(dir, "special_tokens_map.json", "{\"extra_special_tokens\": {\"name\": {\"content\": \"<new>\"}}}");
    tok = toy_load(dir);
    assert_true(sd_tokenizer_is_special(tok, ADDED));
    assert_false(sd_tokenizer_is_special(tok, END));
    sd_tokenizer_free(tok);
}

/* The longest of the tokens that begin at the leftmost place, as in the reference. */
static void test_overlapping_added_tokens(void **state)
{
    (void)state;
    write_tokenizer_json("{'added_tokens': [{'id': 262, 'content': 'xx', 'special': false, 'normalized': false},"
                         " {'id': 263, 'content': 'xxyy', 'special': false, 'normalized': false},"
                         " {'id': 264, 'content': 'yz', 'special': true},"
                         " {'id': 265, 'content': 'yzq', 'special': false},"
                         " {'id': 266, 'content': '<r>', 'rstrip': true},"
                         " {'id': 267, 'content': '  ', 'lstrip': true}]}");
    sd_tokenizer *tok = toy_load(dir);
    TOY_EXPECT(tok, "xxxyy", 0, 262, 'x', 'y', 'y'); /* leftmost wins, though "xxyy" begins one later */
    TOY_EXPECT(tok, "xxyy", 0, 263);
    TOY_EXPECT(tok, "xxyz", SD_ENCODE_SPECIALS, 262, 264);
    TOY_EXPECT(tok, "yzq", SD_ENCODE_SPECIALS, 264, 'q'); /* special ones first, the "normalized" ones in the rest */
    TOY_EXPECT(tok, "yzq", 0, 265);
    TOY_EXPECT(tok, "a  b", 0, 'a', 267, 'b');
    TOY_EXPECT(tok, "<r>  b", 0, 266, 'b'); /* the white token is gone with the rest of the white space */
    sd_tokenizer_free(tok);
}

static void test_directories_that_are_not(void **state)
{
    (void)state;
    sd_tokenizer *tok = (sd_tokenizer *)dir;
    sd_error err = {0};
    sd_assert_fails(sd_tokenizer_load(&tok, "/nonexistent/model", &err), SD_ERR_IO, &err, "/nonexistent/model");
    assert_null(tok);
    sd_assert_fails(sd_tokenizer_load(&tok, NULL, &err), SD_ERR_ARG, &err, "directory");
    sd_assert_fails(sd_tokenizer_load(&tok, dir, &err), SD_ERR_IO, &err,
                    "expected vocab.json and merges.txt, or tokenizer.json");
    toy_write(dir, "merges.txt", merges);
    sd_assert_fails(sd_tokenizer_load(&tok, dir, &err), SD_ERR_IO, &err, "found only merges.txt");
    toy_remove(dir, "merges.txt");
    toy_write_json(dir, "vocab.json", toy_vocab(others, 6));
    sd_assert_fails(sd_tokenizer_load(&tok, dir, &err), SD_ERR_IO, &err, "found only vocab.json");
    sd_tokenizer_free(NULL);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_two_files_alone),
        CASE(test_merges_text_forms),
        CASE(test_merges_of_number_signs),
        CASE(test_tokenizer_json_alone),
        CASE(test_old_tokenizer_json),
        CASE(test_both),
        CASE(test_template_bos),
        CASE(test_template_in_a_sequence_and_without_special),
        CASE(test_pre_tokenizer_sequences),
        CASE(test_no_pattern),
        CASE(test_prefix_space),
        CASE(test_opt_configuration),
        CASE(test_who_adds_bos),
        CASE(test_bare_gpt2),
        CASE(test_added_tokens_json),
        CASE(test_overlapping_added_tokens),
        CASE(test_directories_that_are_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
