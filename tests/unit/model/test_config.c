/* SPDX-License-Identifier: MIT
 *
 * config.json: the published OPT sizes, every flag, what older files leave out, and every way to be wrong, each
 * answered with the key and what was expected. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/model/model.h"
#include "tests/support/support.h"

static char warnings[4096]; /* what the library said, one line each */

static void collect(void *user, const char *message)
{
    (void)user;
    size_t used = strlen(warnings);
    (void)snprintf(warnings + used, sizeof warnings - used, "%s\n", message);
}

/* The six sizes that must be there, and nothing else. */
static json_t *least(void)
{
    json_t *json = json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i}", "model_type", "opt", "num_hidden_layers", 7,
                             "hidden_size", 48, "num_attention_heads", 4, "ffn_dim", 100, "vocab_size", 300,
                             "max_position_embeddings", 64);
    assert_non_null(json);
    return json;
}

/* Reads and releases json. */
static int parse(sd_config *config, json_t *json, sd_error *err)
{
    char *text = json_dumps(json, JSON_ENCODE_ANY);
    assert_non_null(text);
    warnings[0] = '\0';
    sd_set_log(collect, NULL);
    int rc = sd_config_parse(config, text, strlen(text), "some/config.json", err);
    sd_set_log(NULL, NULL);
    free(text);
    json_decref(json);
    return rc;
}

static sd_config good(json_t *json)
{
    sd_config c;
    sd_error err = {0};
    sd_assert_ok(parse(&c, json, &err), &err);
    return c;
}

static void fails(json_t *json, int code, const char *first, const char *second)
{
    sd_config c;
    sd_error err = {0};
    int rc = parse(&c, json, &err);
    sd_assert_fails(rc, code, &err, first);
    sd_assert_fails(rc, code, &err, second);
    sd_assert_fails(rc, code, &err, "some/config.json");
}

static json_t *with(const char *key, json_t *value)
{
    json_t *json = least();
    assert_int_equal(json_object_set_new(json, key, value), 0);
    return json;
}

/* ---- what is read ---- */

static void the_published_sizes_are_read(void **state)
{
    (void)state;
    const struct {
        int layers, hidden, heads, ffn, embed, head_dim;
        bool pre_norm;
    } sizes[] = {
        {12, 768, 12, 3072, 768, 64, true},    {24, 1024, 16, 4096, 512, 64, false},
        {24, 2048, 32, 8192, 2048, 64, true},  {32, 2560, 32, 10240, 2560, 80, true},
        {32, 4096, 32, 16384, 4096, 128, true},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        sd_config c = good(json_pack(
            "{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:b, s:b, s:s, s:i, s:i, s:i, s:s, s:s, s:f, s:[s], s:b}",
            "model_type", "opt", "num_hidden_layers", sizes[i].layers, "hidden_size", sizes[i].hidden,
            "num_attention_heads", sizes[i].heads, "ffn_dim", sizes[i].ffn, "vocab_size", 50272,
            "max_position_embeddings", 2048, "word_embed_proj_dim", sizes[i].embed, "do_layer_norm_before",
            sizes[i].pre_norm, "_remove_final_layer_norm", 0, "activation_function", "relu", "bos_token_id", 2,
            "eos_token_id", 2, "pad_token_id", 1, "prefix", "</s>", "torch_dtype", "float16", "dropout", 0.1,
            "architectures", "OPTForCausalLM", "use_cache", 1));
        assert_string_equal(warnings, "");
        assert_string_equal(c.arch, "opt");
        assert_int_equal(c.n_layers, sizes[i].layers);
        assert_int_equal(c.hidden, sizes[i].hidden);
        assert_int_equal(c.n_heads, sizes[i].heads);
        assert_int_equal(c.head_dim, sizes[i].head_dim);
        assert_int_equal(c.ffn, sizes[i].ffn);
        assert_int_equal(c.embed, sizes[i].embed);
        assert_int_equal(c.vocab, 50272);
        assert_int_equal(c.max_positions, 2048);
        assert_int_equal(c.position_offset, 2);
        assert_int_equal(c.pre_norm, sizes[i].pre_norm);
        assert_int_equal(c.final_norm, sizes[i].pre_norm); /* opt-350m has none */
        assert_true(c.bias && c.norm_affine && c.tied);
        assert_int_equal(c.activation, SD_MLP_RELU);
        assert_true(c.norm_eps == 1e-5f);
        assert_int_equal(c.bos_id, 2);
        assert_int_equal(c.eos_id, 2);
        assert_int_equal(c.pad_id, 1);
    }
}

static void flags_that_are_missing_or_null_are_opts(void **state)
{
    (void)state;
    static const char *const optional[] = {"word_embed_proj_dim", "do_layer_norm_before", "enable_bias",
                                           "layer_norm_elementwise_affine", "tie_word_embeddings",
                                           "_remove_final_layer_norm", "activation_function"};
    json_t *json = least();
    for (int nulls = 0; nulls < 2; nulls++) {
        sd_config c = good(json);
        assert_int_equal(c.embed, 48);
        assert_true(c.pre_norm && c.final_norm && c.bias && c.norm_affine && c.tied);
        assert_int_equal(c.activation, SD_MLP_RELU);
        json = least();
        for (size_t i = 0; i < sizeof optional / sizeof *optional; i++) {
            assert_int_equal(json_object_set_new(json, optional[i], json_null()), 0);
        }
    }
    json_decref(json);
}

static void every_flag_is_read(void **state)
{
    (void)state;
    assert_false(good(with("do_layer_norm_before", json_false())).pre_norm);
    assert_false(good(with("do_layer_norm_before", json_false())).final_norm);
    assert_true(good(with("do_layer_norm_before", json_true())).final_norm);
    assert_false(good(with("_remove_final_layer_norm", json_true())).final_norm);
    assert_true(good(with("_remove_final_layer_norm", json_true())).pre_norm);
    assert_false(good(with("enable_bias", json_false())).bias);
    assert_false(good(with("layer_norm_elementwise_affine", json_false())).norm_affine);
    assert_false(good(with("tie_word_embeddings", json_false())).tied);
    assert_int_equal(good(with("word_embed_proj_dim", json_integer(20))).embed, 20);
    assert_int_equal(good(with("activation_function", json_string("relu"))).activation, SD_MLP_RELU);
    assert_int_equal(good(with("activation_function", json_string("gelu"))).activation, SD_MLP_GELU);
    assert_int_equal(good(with("activation_function", json_string("gelu_new"))).activation, SD_MLP_GELU_TANH);
    assert_int_equal(good(with("activation_function", json_string("gelu_pytorch_tanh"))).activation, SD_MLP_GELU_TANH);
    assert_int_equal(good(with("num_hidden_layers", json_real(9.0))).n_layers, 9); /* JSON has one kind of number */
}

static void special_ids_may_be_absent(void **state)
{
    (void)state;
    sd_config c = good(least()); /* a file that does not say means OPT's */
    assert_int_equal(c.bos_id, 2);
    assert_int_equal(c.eos_id, 2);
    assert_int_equal(c.pad_id, 1);
    assert_int_equal(good(with("bos_token_id", json_integer(0))).bos_id, 0);
    assert_int_equal(good(with("eos_token_id", json_integer(50118))).eos_id, 50118);
    assert_int_equal(good(with("eos_token_id", json_integer(-1))).eos_id, -1);
    /* a file that says null means none, as in the program that wrote it */
    assert_int_equal(good(with("bos_token_id", json_null())).bos_id, -1);
    assert_int_equal(good(with("eos_token_id", json_null())).eos_id, -1);
    assert_int_equal(good(with("pad_token_id", json_null())).pad_id, -1);
}

static void unknown_keys_are_named_in_a_warning(void **state)
{
    (void)state;
    (void)good(least());
    assert_string_equal(warnings, "");
    json_t *json = with("rope_theta", json_real(1e4));
    assert_int_equal(json_object_set_new(json, "sliding_window", json_null()), 0);
    (void)good(json);
    assert_non_null(strstr(warnings, "some/config.json: key \"rope_theta\""));
    assert_non_null(strstr(warnings, "key \"sliding_window\""));
}

/* ---- what is refused ---- */

static void a_missing_size_is_named(void **state)
{
    (void)state;
    static const char *const required[] = {"model_type", "num_hidden_layers", "hidden_size", "num_attention_heads",
                                           "ffn_dim", "vocab_size", "max_position_embeddings"};
    for (size_t i = 0; i < sizeof required / sizeof *required; i++) {
        json_t *json = least();
        assert_int_equal(json_object_del(json, required[i]), 0);
        fails(json, SD_ERR_FORMAT, required[i], "is missing");
    }
    /* names of the time before OPT was published: said, not guessed */
    json_t *old = json_pack("{s:s, s:i, s:i}", "model_type", "opt", "d_model", 768, "decoder_layers", 12);
    fails(old, SD_ERR_FORMAT, "\"num_hidden_layers\"", "is missing");
}

static void wrong_types_are_named(void **state)
{
    (void)state;
    static const char *const integers[] = {
        "num_hidden_layers", "hidden_size", "num_attention_heads", "ffn_dim", "vocab_size", "max_position_embeddings",
        "word_embed_proj_dim", "bos_token_id", "eos_token_id", "pad_token_id"};
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++) {
        fails(with(integers[i], json_string("12")), SD_ERR_FORMAT, integers[i], "expected an integer, found a string");
        fails(with(integers[i], json_true()), SD_ERR_FORMAT, integers[i], "expected an integer, found a boolean");
        fails(with(integers[i], json_array()), SD_ERR_FORMAT, integers[i], "expected an integer, found an array");
        fails(with(integers[i], json_real(12.5)), SD_ERR_FORMAT, integers[i], "expected an integer, found a number");
        fails(with(integers[i], json_real(1e300)), SD_ERR_FORMAT, integers[i], "expected an integer, found a number");
        fails(with(integers[i], json_integer(INT64_C(1) << 40)), SD_ERR_FORMAT, integers[i], "1099511627776 is out");
        fails(with(integers[i], json_integer(-2)), SD_ERR_FORMAT, integers[i], "-2 is outside");
        if (i < 7) {
            fails(with(integers[i], json_integer(0)), SD_ERR_FORMAT, integers[i], "0 is outside 1");
        }
    }
    static const char *const flags[] = {"do_layer_norm_before", "enable_bias", "layer_norm_elementwise_affine",
                                        "tie_word_embeddings", "_remove_final_layer_norm"};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        fails(with(flags[i], json_integer(1)), SD_ERR_FORMAT, flags[i], "expected true or false, found a number");
        fails(with(flags[i], json_string("true")), SD_ERR_FORMAT, flags[i], "expected true or false, found a string");
    }
    fails(with("activation_function", json_integer(3)), SD_ERR_FORMAT, "activation_function", "expected a string");
    fails(with("activation_function", json_string("swish")), SD_ERR_UNSUPPORTED, "\"swish\"", "expected relu, gelu");
    fails(with("model_type", json_integer(3)), SD_ERR_FORMAT, "model_type", "expected a string, found a number");
    fails(with("model_type", json_string("llama")), SD_ERR_UNSUPPORTED, "\"llama\"", "expected \"opt\"");
    fails(with("model_type", json_string("OPT")), SD_ERR_UNSUPPORTED, "\"OPT\"", "expected \"opt\"");
    fails(with("num_attention_heads", json_integer(5)), SD_ERR_FORMAT, "48 is not a multiple", "_attention_heads, 5");
}

static void what_is_no_object_is_refused(void **state)
{
    (void)state;
    fails(json_array(), SD_ERR_FORMAT, "expected a JSON object", "an array");
    fails(json_integer(3), SD_ERR_FORMAT, "expected a JSON object", "a number");
    fails(json_null(), SD_ERR_FORMAT, "expected a JSON object", "null");
    const char *const broken[] = {
        "", " ", "{", "{\"model_type\": \"opt\"", "{\"a\": 1} x", "{\"a\": 1, \"a\": 2}", "{\"vocab_size\": 1e999}",
        "{\"a\": \"\xFF\"}", "nonsense", "{'a': 1}", "{\"a\": 01}"};
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        sd_config c;
        sd_error err = {0};
        sd_assert_fails(sd_config_parse(&c, broken[i], strlen(broken[i]), "its name", &err), SD_ERR_FORMAT, &err,
                        "its name: not valid JSON at line");
    }
}

static void directories_without_a_config_are_named(void **state)
{
    (void)state;
    sd_config c;
    sd_error err = {0};
    char *dir = sd_make_temp_dir(), path[4096];
    (void)snprintf(path, sizeof path, "%s/none", dir);
    sd_assert_fails(sd_config_load(&c, path, &err), SD_ERR_ARG, &err, "no such directory; expected a model directory");
    sd_assert_fails(sd_config_load(&c, dir, &err), SD_ERR_IO, &err, "config.json");
    sd_write_file(path, "text", 4);
    sd_assert_fails(sd_config_load(&c, path, &err), SD_ERR_ARG, &err, "is a file; expected a model directory");
    (void)snprintf(path, sizeof path, "%s/config.json", dir);
    sd_write_file(path, "", 0);
    sd_assert_fails(sd_config_load(&c, dir, &err), SD_ERR_FORMAT, &err, path);
    sd_remove_temp_dir(dir);
}

int main(void)
{
    sd_skip_unless_level();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_published_sizes_are_read),
        cmocka_unit_test(flags_that_are_missing_or_null_are_opts),
        cmocka_unit_test(every_flag_is_read),
        cmocka_unit_test(special_ids_may_be_absent),
        cmocka_unit_test(unknown_keys_are_named_in_a_warning),
        cmocka_unit_test(a_missing_size_is_named),
        cmocka_unit_test(wrong_types_are_named),
        cmocka_unit_test(what_is_no_object_is_refused),
        cmocka_unit_test(directories_without_a_config_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
