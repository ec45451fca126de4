/* SPDX-License-Identifier: MIT
 *
 * Checkpoints as they are found: any prefix, heads that are tied, absent, there twice or alone, tables with more rows
 * than needed; and every tensor that is missing, misshapen, of a wrong type or out of place, each named. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/unit/model/logits.h"

static char warnings[4096];

static void collect(void *user, const char *message)
{
    (void)user;
    size_t used = strlen(warnings);
    (void)snprintf(warnings + used, sizeof warnings - used, "%s\n", message);
}

/* Logits of a model that loads, and what was said while loading in `warnings`. */
static logits loads(const sd_tiny_model *tiny)
{
    warnings[0] = '\0';
    sd_set_log(collect, NULL);
    logits result = logits_of_tiny(tiny);
    sd_set_log(NULL, NULL);
    return result;
}

static void assert_warned(const char *part)
{
    if (!strstr(warnings, part)) {
        fail_msg("warned \"%s\", expected \"%s\"", warnings, part);
    }
}

/* The message must name the tensor (or whatever `name` is) and hold `part`. */
static void refuses(const sd_tiny_model *tiny, int code, const char *name, const char *part)
{
    char *dir = sd_make_temp_dir();
    sd_tiny_write(tiny, dir);
    sd_model *model;
    sd_error err = {0};
    int rc = sd_model_load(&model, dir, NULL, &err);
    sd_assert_fails(rc, code, &err, name);
    sd_assert_fails(rc, code, &err, part);
    sd_assert_fails(rc, code, &err, dir);
    assert_null(model);
    sd_remove_temp_dir(dir);
}

static sd_tiny_model make(const sd_tiny_options *options)
{
    sd_tiny_model tiny;
    sd_tiny_make(&tiny, options);
    return tiny;
}

static sd_tiny_model usual(void) { return make(&(sd_tiny_options){.seed = 1}); }

static void copy_values(const sd_tiny_tensor *to, const sd_tiny_tensor *from)
{
    memcpy(to->values, from->values, (size_t)(from->shape[0] * from->shape[1]) * sizeof(float));
}

/* ---- names ---- */

static void any_of_the_prefixes_is_found(void **state)
{
    (void)state;
    sd_tiny_model with = usual();
    logits expected = loads(&with);
    assert_string_equal(warnings, "");
    const char *const others[] = {"decoder.", ""};
    for (int i = 0; i < 2; i++) {
        sd_tiny_model tiny = make(&(sd_tiny_options){.seed = 1, .prefix = others[i]});
        logits got = loads(&tiny);
        assert_same_logits(&got, &expected);
        sd_tiny_clear(&tiny);
    }
    sd_tiny_clear(&with);
}

static void strange_names_are_shown(void **state)
{
    (void)state;
    sd_tiny_model tiny = make(&(sd_tiny_options){.seed = 1, .prefix = "transformer."});
    refuses(&tiny, SD_ERR_FORMAT, "model.decoder.layers.0.fc1.weight", "found \"transformer.embed_positions.weight\"");
    sd_tiny_clear(&tiny);
    tiny = usual();
    while (tiny.n > 0) {
        sd_tiny_remove(&tiny, tiny.tensors[0].name);
    }
    refuses(&tiny, SD_ERR_FORMAT, "none of the 0 tensors", "found \"nothing\"");
    sd_tiny_clear(&tiny);
}

static void tensors_without_a_place_are_named(void **state)
{
    (void)state;
    const char *const extra[] = {
        "model.decoder.layers.5.fc1.weight", /* one layer more than config.json says */
        "model.decoder.layers.-1.fc1.weight", "model.decoder.layers.00.fc1.weight", "model.decoder.layers.0.fc3.weight",
        "model.decoder.layers.4294967296.fc1.weight", "model.decoder.layers..fc1.weight", "decoder.layers.0.fc1.weight",
        "model.decoder.project_in.weight", "model.encoder.embed_tokens.weight", "rotary.inv_freq", "m",
    };
    for (size_t i = 0; i < sizeof extra / sizeof *extra; i++) {
        sd_tiny_model tiny = usual();
        (void)sd_tiny_add(&tiny, extra[i], 4, 3);
        refuses(&tiny, SD_ERR_FORMAT, extra[i], "has no place");
        sd_tiny_clear(&tiny);
    }
    sd_tiny_model tiny = usual(); /* what a flag rules out is out of place too */
    tiny.options.no_bias = true;
    refuses(&tiny, SD_ERR_FORMAT, "fc1.bias", "(and others) has no place");
    tiny.options.no_bias = false;
    tiny.options.no_final_norm = true;
    refuses(&tiny, SD_ERR_FORMAT, "final_layer_norm", "has no place");
    tiny.options.no_final_norm = false;
    tiny.options.n_layers = 4;
    refuses(&tiny, SD_ERR_FORMAT, "layers.4.", "(4 layers)");
    sd_tiny_clear(&tiny);
}

static void leftovers_of_the_training_toolkit_are_not_weights(void **state)
{
    (void)state;
    sd_tiny_model tiny = usual();
    logits expected = loads(&tiny);
    (void)sd_tiny_add(&tiny, "model.decoder.version", 1, 0);
    (void)sd_tiny_add(&tiny, "model.decoder.embed_positions._float_tensor", 1, 0);
    logits got = loads(&tiny);
    assert_same_logits(&got, &expected);
    sd_tiny_clear(&tiny);
}

/* ---- the head ---- */

static void a_tied_head_may_be_there_or_not(void **state)
{
    (void)state;
    static const char *const names[] = {"lm_head.weight", "model.lm_head.weight"};
    for (int i = 0; i < 2; i++) {
        sd_tiny_model tiny = usual();
        logits alone = loads(&tiny);
        sd_tiny_tensor *head = sd_tiny_add(&tiny, names[i], TINY_VOCAB, 24);
        copy_values(head, sd_tiny_find(&tiny, "embed_tokens.weight"));
        logits both = loads(&tiny);
        assert_string_equal(warnings, "");
        assert_same_logits(&both, &alone);

        sd_tiny_remove(&tiny, "embed_tokens.weight"); /* it is the other one that some tools drop */
        logits head_only = loads(&tiny);
        assert_same_logits(&head_only, &alone);
        sd_tiny_clear(&tiny);
    }
}

static void a_tied_head_that_differs_is_ignored_aloud(void **state)
{
    (void)state;
    sd_tiny_model tiny = usual();
    logits alone = loads(&tiny);
    (void)sd_tiny_add(&tiny, "lm_head.weight", TINY_VOCAB, 24);
    logits both = loads(&tiny);
    assert_warned("\"lm_head.weight\" differs from \"model.decoder.embed_tokens.weight\"");
    assert_same_logits(&both, &alone);
    sd_tiny_clear(&tiny);
}

static void an_untied_head_must_be_there(void **state)
{
    (void)state;
    sd_tiny_model tiny = usual();
    logits tied = loads(&tiny);
    tiny.options.untied = true;
    refuses(&tiny, SD_ERR_FORMAT, "\"lm_head.weight\" is missing", "tie_word_embeddings false");
    (void)sd_tiny_add(&tiny, "lm_head.weight", TINY_VOCAB, 24);
    logits untied = loads(&tiny);
    assert_string_equal(warnings, "");
    assert_other_logits(&untied, &tied);
    sd_tiny_remove(&tiny, "embed_tokens.weight");
    refuses(&tiny, SD_ERR_FORMAT, "\"model.decoder.embed_tokens.weight\" is missing", "missing");
    sd_tiny_clear(&tiny);
    tiny = usual();
    sd_tiny_remove(&tiny, "embed_tokens.weight"); /* tied, and neither is there */
    refuses(&tiny, SD_ERR_FORMAT, "\"model.decoder.embed_tokens.weight\" is missing", "missing");
    sd_tiny_clear(&tiny);
}

/* ---- rows of the tables ---- */

static void the_embedding_says_how_large_the_vocabulary_is(void **state)
{
    (void)state;
    sd_tiny_model tiny = usual();
    logits expected = loads(&tiny);
    for (int said = TINY_VOCAB - 5; said <= TINY_VOCAB + 7; said += 12) {
        tiny.options.vocab = said;
        logits got = loads(&tiny);
        assert_warned("has 70 rows where config.json says vocab_size");
        assert_same_logits(&got, &expected);
        sd_model *model = sd_tiny_load(&tiny, NULL);
        sd_model_info info;
        sd_model_get_info(model, &info);
        assert_int_equal(info.vocab_size, TINY_VOCAB);
        sd_model_free(model);
    }
    sd_tiny_clear(&tiny);

    tiny = make(&(sd_tiny_options){.seed = 1, .untied = true});
    sd_tiny_reshape(sd_tiny_find(&tiny, "lm_head.weight"), TINY_VOCAB + 1, 24);
    refuses(&tiny, SD_ERR_FORMAT, "lm_head.weight", "has shape [71, 24]; config.json calls for [70, 24]");
    sd_tiny_clear(&tiny);
}

static void the_position_table_has_two_rows_in_front(void **state)
{
    (void)state;
    sd_tiny_model tiny = usual();
    sd_tiny_tensor *t = sd_tiny_find(&tiny, "embed_positions.weight");
    logits expected = loads(&tiny);
    float *saved = malloc(50 * 24 * sizeof *saved);
    assert_non_null(saved);
    memcpy(saved, t->values, 50 * 24 * sizeof *saved);
    sd_tiny_reshape(t, 60, 24); /* spare rows are allowed: they are never reached */
    memcpy(t->values, saved, 50 * 24 * sizeof *saved);
    logits spare = loads(&tiny);
    assert_same_logits(&spare, &expected);
    sd_tiny_reshape(t, 49, 24);
    refuses(&tiny, SD_ERR_FORMAT, "embed_positions.weight", "has 49 rows; max_position_embeddings 48 needs 50, 2 more");
    sd_tiny_reshape(t, 50, 23);
    refuses(&tiny, SD_ERR_FORMAT, "embed_positions.weight", "has shape [50, 23]; config.json calls for [50, 24]");
    sd_tiny_reshape(t, 50, 0);
    refuses(&tiny, SD_ERR_FORMAT, "embed_positions.weight", "has shape [50]; config.json calls for [50, 24]");
    free(saved);
    sd_tiny_clear(&tiny);
}

/* ---- every tensor, with everything wrong that one can have ---- */

static const sd_tiny_options kinds[] = {{.seed = 1, .n_layers = 2},
                                        {.seed = 2, .n_layers = 2, .post_norm = true, .embed = 10, .untied = true}};

static void every_missing_tensor_is_named(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        sd_tiny_model tiny = make(&kinds[k]);
        for (size_t i = 0; i < tiny.n; i++) {
            sd_tiny_tensor saved = tiny.tensors[i];
            tiny.tensors[i] = tiny.tensors[--tiny.n]; /* gone, for as long as it takes */
            refuses(&tiny, SD_ERR_FORMAT, saved.name, "is missing");
            tiny.tensors[tiny.n++] = tiny.tensors[i];
            tiny.tensors[i] = saved;
        }
        sd_tiny_clear(&tiny);
    }
}

static void a_missing_final_norm_says_which_flag_allows_it(void **state)
{
    (void)state;
    sd_tiny_model tiny = usual();
    sd_tiny_remove(&tiny, "final_layer_norm.weight");
    sd_tiny_remove(&tiny, "final_layer_norm.bias");
    refuses(&tiny, SD_ERR_FORMAT, "\"model.decoder.final_layer_norm.weight\" is missing",
            "\"_remove_final_layer_norm\": true");
    tiny.options.no_final_norm = true;
    (void)loads(&tiny);
    assert_string_equal(warnings, "");
    sd_tiny_clear(&tiny);
}

static void every_misshapen_tensor_is_named(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        sd_tiny_model tiny = make(&kinds[k]);
        for (size_t i = 0; i < tiny.n; i++) {
            sd_tiny_tensor *t = &tiny.tensors[i], saved = *t;
            bool matrix = t->rank == 2, positions = strstr(t->name, "positions");
            const int64_t wrong[][2] = {
                {t->shape[0], matrix ? 0 : t->shape[0]},                  /* another rank */
                {t->shape[0], matrix ? t->shape[1] + 1 : 1},              /* a column more, a vector as a column */
                {t->shape[0] - 1, matrix ? t->shape[1] : 0},              /* a row less */
                {matrix ? t->shape[1] : 1, t->shape[0]},                  /* transposed */
            };
            for (int w = 0; w < 4; w++) {
                bool square = matrix && w == 3 && t->shape[0] == t->shape[1];
                bool resized = w == 2 && strstr(t->name, "embed_tokens"); /* a vocabulary of another size: not wrong */
                if (square || resized) {
                    continue;
                }
                t->values = NULL;
                sd_tiny_reshape(t, wrong[w][0], wrong[w][1]);
                refuses(&tiny, SD_ERR_FORMAT, saved.name, positions && w >= 2 ? "rows; max_position" : "has shape [");
                free(t->values);
                *t = saved;
            }
        }
        sd_tiny_clear(&tiny);
    }
}

static void every_tensor_of_another_type_is_named(void **state)
{
    (void)state;
    const sd_dtype types[] = {SD_DTYPE_I32, SD_DTYPE_I64, SD_DTYPE_I16, SD_DTYPE_I8, SD_DTYPE_U8, SD_DTYPE_BOOL};
    sd_tiny_model tiny = make(&kinds[1]);
    for (size_t i = 0; i < tiny.n; i++) {
        sd_tiny_tensor *t = &tiny.tensors[i];
        t->dtype = types[i % 6];
        refuses(&tiny, SD_ERR_UNSUPPORTED, t->name, "expected F32, F16, BF16 or F64");
        t->dtype = SD_DTYPE_F32;
    }
    (void)loads(&tiny);
    sd_tiny_clear(&tiny);
}

int main(void)
{
    sd_skip_unless_level();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_of_the_prefixes_is_found),
        cmocka_unit_test(strange_names_are_shown),
        cmocka_unit_test(tensors_without_a_place_are_named),
        cmocka_unit_test(leftovers_of_the_training_toolkit_are_not_weights),
        cmocka_unit_test(a_tied_head_may_be_there_or_not),
        cmocka_unit_test(a_tied_head_that_differs_is_ignored_aloud),
        cmocka_unit_test(an_untied_head_must_be_there),
        cmocka_unit_test(the_embedding_says_how_large_the_vocabulary_is),
        cmocka_unit_test(the_position_table_has_two_rows_in_front),
        cmocka_unit_test(every_missing_tensor_is_named),
        cmocka_unit_test(a_missing_final_norm_says_which_flag_allows_it),
        cmocka_unit_test(every_misshapen_tensor_is_named),
        cmocka_unit_test(every_tensor_of_another_type_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
