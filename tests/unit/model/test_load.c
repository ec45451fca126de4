/* SPDX-License-Identifier: MIT
 *
 * From a directory to packed weights: stored types, weight types, mapped or read, what sd_model_info says, memory that
 * is not there, and the options. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/buf.h"
#include "src/model/model.h"
#include "tests/unit/model/logits.h"

static sd_tiny_model make(const sd_tiny_options *options)
{
    sd_tiny_model tiny;
    sd_tiny_make(&tiny, options);
    return tiny;
}

/* ---- types ---- */

/* Values that the narrow type holds must mean the same whatever type the file stores them in. */
static void stored_types_hold_the_same_values(void **state)
{
    (void)state;
    const sd_dtype narrow[] = {SD_DTYPE_F16, SD_DTYPE_BF16}, wide[] = {SD_DTYPE_F32, SD_DTYPE_F64};
    for (int n = 0; n < 2; n++) {
        sd_tiny_model tiny = make(&(sd_tiny_options){.seed = 3, .dtype = narrow[n]});
        logits expected = logits_of_tiny(&tiny);
        for (int w = 0; w < 2; w++) {
            for (size_t i = 0; i < tiny.n; i++) {
                sd_tiny_set_dtype(&tiny.tensors[i], wide[w]);
            }
            logits got = logits_of_tiny(&tiny);
            assert_same_logits(&got, &expected);
        }
        for (size_t i = 0; i < tiny.n; i++) { /* and a file may mix them */
            sd_tiny_set_dtype(&tiny.tensors[i], i % 3 == 0 ? narrow[n] : wide[i % 2]);
        }
        logits got = logits_of_tiny(&tiny);
        assert_same_logits(&got, &expected);
        sd_tiny_clear(&tiny);
    }
}

static sd_weight_type chosen(const sd_tiny_model *tiny, sd_weight_type asked)
{
    sd_model *model = sd_tiny_load(tiny, &(sd_model_options){.weights = asked, .threads = 1});
    sd_model_info info;
    sd_model_get_info(model, &info);
    sd_model_free(model);
    return info.weights;
}

static void auto_keeps_bf16_and_widens_the_rest(void **state)
{
    (void)state;
    const sd_dtype stored[] = {SD_DTYPE_F32, SD_DTYPE_F16, SD_DTYPE_F64, SD_DTYPE_BF16};
    for (int i = 0; i < 4; i++) {
        sd_tiny_model tiny = make(&(sd_tiny_options){.seed = 3, .n_layers = 1, .dtype = stored[i]});
        assert_int_equal(chosen(&tiny, SD_WEIGHTS_AUTO), i == 3 ? SD_WEIGHTS_BF16 : SD_WEIGHTS_F32);
        assert_int_equal(chosen(&tiny, SD_WEIGHTS_F32), SD_WEIGHTS_F32);
        assert_int_equal(chosen(&tiny, SD_WEIGHTS_BF16), SD_WEIGHTS_BF16);
        sd_tiny_clear(&tiny);
    }
}

/* bf16 weights of an f32 file are its matrices rounded, and nothing else: vectors and positions stay f32. A level may
 * round the inputs of products too; the products of rounded matrices are then the same bits. */
static void bf16_weights_are_rounded_matrices(void **state)
{
    (void)state;
    sd_tiny_model tiny = make(&(sd_tiny_options){.seed = 4, .hidden = 27, .embed = 11, .ffn = 31, .untied = true});
    logits exact = logits_of_tiny(&tiny);
    const sd_model_options bf16 = {.weights = SD_WEIGHTS_BF16, .kv = SD_KV_F32, .threads = 1};
    sd_model *model = sd_tiny_load(&tiny, &bf16);
    logits got = logits_of(model);
    const bool inputs_too = model->kernels->pack_input[SD_W_BF16] != NULL;
    sd_model_free(model);
    for (size_t i = 0; i < tiny.n; i++) {
        sd_tiny_tensor *t = &tiny.tensors[i];
        if (t->rank == 2 && !strstr(t->name, "positions")) {
            sd_tiny_set_dtype(t, SD_DTYPE_BF16);
            sd_tiny_set_dtype(t, SD_DTYPE_F32);
        }
    }
    logits rounded = logits_of_tiny(&tiny);
    sd_assert_close(got.values, rounded.values, TINY_VOCAB, inputs_too ? 0.1 : 1e-4, 0, "bf16 weights");
    model = sd_tiny_load(&tiny, &bf16);
    logits again = logits_of(model);
    sd_model_free(model);
    assert_same_logits(&again, &got);
    assert_other_logits(&got, &exact);
    sd_tiny_clear(&tiny);
}

/* ---- ways of loading ---- */

static void reading_threads_and_mapping_give_the_same_model(void **state)
{
    (void)state;
    sd_tiny_model tiny = make(&(sd_tiny_options){.seed = 5, .hidden = 72, .ffn = 200, .n_layers = 2});
    const sd_model_options ways[] = {{.threads = 1}, {.threads = 1, .no_mmap = true}, {.threads = 3}, {.threads = 0}};
    sd_model *first = sd_tiny_load(&tiny, &ways[0]);
    logits expected = logits_of(first);
    for (size_t i = 1; i < sizeof ways / sizeof *ways; i++) {
        sd_model *model = sd_tiny_load(&tiny, &ways[i]);
        logits got = logits_of(model);
        assert_same_logits(&got, &expected);
        assert_true(sd_model_fingerprint(model) == sd_model_fingerprint(first));
        sd_model_free(model);
    }
    sd_model_free(first);
    sd_tiny_clear(&tiny);
}

static uint64_t fingerprint(const sd_tiny_model *tiny, sd_weight_type weights)
{
    sd_model *model = sd_tiny_load(tiny, &(sd_model_options){.weights = weights, .threads = 1});
    uint64_t print = sd_model_fingerprint(model);
    sd_model_free(model);
    return print;
}

static void fingerprints_tell_models_apart(void **state)
{
    (void)state;
    sd_tiny_model tiny = make(&(sd_tiny_options){.seed = 6}), other = make(&(sd_tiny_options){.seed = 7});
    uint64_t print = fingerprint(&tiny, SD_WEIGHTS_F32);
    assert_true(print == fingerprint(&tiny, SD_WEIGHTS_F32));
    assert_true(print != fingerprint(&other, SD_WEIGHTS_F32));
    assert_true(print != fingerprint(&tiny, SD_WEIGHTS_BF16));
    tiny.options.activation = "gelu";
    assert_true(print != fingerprint(&tiny, SD_WEIGHTS_F32));
    sd_tiny_clear(&tiny);
    sd_tiny_clear(&other);
}

/* ---- what the caller is told ---- */

static int64_t count_values(const sd_tiny_model *tiny)
{
    int64_t n = 0;
    for (size_t i = 0; i < tiny->n; i++) {
        n += tiny->tensors[i].shape[0] * tiny->tensors[i].shape[1];
    }
    return n;
}

static void the_info_is_the_models(void **state)
{
    (void)state;
    sd_tiny_model tiny = make(&(sd_tiny_options){.seed = 8, .hidden = 64, .n_heads = 4, .ffn = 128, .vocab = 192});
    sd_model *model = sd_tiny_load(&tiny, &(sd_model_options){.threads = 2});
    sd_model_info info;
    sd_model_get_info(model, &info);
    assert_string_equal(info.arch, "opt");
    assert_int_equal(info.n_layers, 5);
    assert_int_equal(info.hidden_size, 64);
    assert_int_equal(info.n_heads, 4);
    assert_int_equal(info.head_dim, 16);
    assert_int_equal(info.ffn_size, 128);
    assert_int_equal(info.vocab_size, 192);
    assert_int_equal(info.max_positions, 48);
    assert_int_equal(info.bos_id, 2);
    assert_int_equal(info.eos_id, 2);
    assert_int_equal(info.pad_id, 1);
    assert_int_equal(info.threads, 2);
    /* sizes that fill their panels, so that packing adds nothing */
    assert_int_equal(info.n_params, count_values(&tiny));
    assert_int_equal(info.weight_bytes, 4 * count_values(&tiny));
    assert_int_equal(info.layer_bytes, 4 * (4 * 64 * 64 + 2 * 64 * 128));
    assert_int_equal(info.head_bytes, 4 * 192 * 64);
    sd_model_free(model);

    model = sd_tiny_load(&tiny, &(sd_model_options){.threads = 1, .weights = SD_WEIGHTS_BF16});
    sd_model_get_info(model, &info);
    assert_int_equal(info.n_params, count_values(&tiny));
    assert_int_equal(info.layer_bytes, 2 * (4 * 64 * 64 + 2 * 64 * 128));
    assert_int_equal(info.head_bytes, 2 * 192 * 64);
    sd_model_free(model);
    sd_tiny_clear(&tiny);

    tiny = make(&(sd_tiny_options){.seed = 8, .untied = true, .embed = 10, .post_norm = true});
    model = sd_tiny_load(&tiny, &(sd_model_options){.threads = 1});
    sd_model_get_info(model, &info);
    assert_int_equal(info.n_params, count_values(&tiny));
    sd_model_free(model);
    sd_tiny_clear(&tiny);
}

static void options_and_directories_are_checked(void **state)
{
    (void)state;
    sd_model_options o;
    sd_model_options_default(&o);
    assert_int_equal(o.weights, SD_WEIGHTS_AUTO);
    assert_int_equal(o.threads, 0);
    assert_false(o.no_mmap);
    sd_model *model;
    sd_error err = {0};
    char *dir = sd_make_temp_dir();
    o.threads = -1;
    sd_assert_fails(sd_model_load(&model, dir, &o, &err), SD_ERR_ARG, &err, "threads -1");
    o = (sd_model_options){.weights = (sd_weight_type)9};
    sd_assert_fails(sd_model_load(&model, dir, &o, &err), SD_ERR_ARG, &err, "weights 9");
    assert_null(model);
    sd_assert_fails(sd_model_load(&model, dir, NULL, &err), SD_ERR_IO, &err, "config.json");
    assert_int_equal(sd_model_load(&model, dir, NULL, NULL), SD_ERR_IO);

    char path[4096];
    sd_tiny_model tiny = make(&(sd_tiny_options){.seed = 9, .n_layers = 1});
    sd_tiny_write(&tiny, dir);
    (void)snprintf(path, sizeof path, "%s/model.safetensors", dir);
    assert_int_equal(remove(path), 0);
    assert_int_not_equal(sd_model_load(&model, dir, NULL, &err), SD_OK);
    assert_non_null(strstr(err.message, dir));
    assert_null(model);
    sd_tiny_clear(&tiny);
    sd_remove_temp_dir(dir);
    sd_model_free(NULL);
}

/* ---- memory ---- */

static void an_allocation_that_fails_is_an_error(void **state)
{
    (void)state;
    const sd_tiny_options kinds[] = {{.seed = 10, .n_layers = 2},
                                     {.seed = 11, .n_layers = 1, .post_norm = true, .embed = 10, .untied = true}};
    for (int k = 0; k < 2; k++) {
        sd_tiny_model tiny = make(&kinds[k]);
        char *dir = sd_make_temp_dir();
        sd_tiny_write(&tiny, dir);
        const sd_model_options options = {.threads = 2, .no_mmap = k == 1};
        int rc = SD_ERR_MEMORY;
        long n = 0;
        while (rc != SD_OK) {
            sd_model *model;
            sd_error err = {0};
            sd_alloc_fail_at(++n);
            rc = sd_model_load(&model, dir, &options, &err);
            sd_alloc_fail_at(0);
            if (rc == SD_OK) {
                sd_model_free(model);
            } else {
                sd_assert_fails(rc, SD_ERR_MEMORY, &err, "out of memory");
                assert_null(model);
            }
        }
        assert_true(n > 40);
        sd_remove_temp_dir(dir);
        sd_tiny_clear(&tiny);
    }
}

static void add_header(sd_buf *out, const char *name, int64_t rows, int64_t columns, uint64_t *at)
{
    uint64_t end = *at + 2 * (uint64_t)rows * (uint64_t)columns;
    sd_buf_printf(out, "%s\"%s\":{\"dtype\":\"F16\",\"shape\":[%lld,%lld],\"data_offsets\":[%llu,%llu]}",
                  out->len > 9 ? "," : "", name, (long long)rows, (long long)columns, (unsigned long long)*at,
                  (unsigned long long)end);
    *at = end;
}

/* A file of half a terabyte that takes no room: all holes behind its header. The machine cannot hold the model, and
 * must say so before it tries. */
static void a_model_larger_than_the_machine_is_refused(void **state)
{
    (void)state;
    const int64_t vocab = 1 << 22, width = 1 << 16;
    const double physical = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGE_SIZE);
    if (physical > 1.1e12) {
        print_message("this machine could hold the model\n");
        skip();
    }
    char *dir = sd_make_temp_dir(), path[4096];
    sd_tiny_model tiny = make(&(sd_tiny_options){.n_layers = 1, .no_bias = true, .no_affine = true});
    tiny.options.vocab = (int)vocab;
    tiny.options.hidden = tiny.options.embed = (int)width;
    tiny.options.n_heads = 1024;
    char *config = sd_tiny_config(&tiny);
    (void)snprintf(path, sizeof path, "%s/config.json", dir);
    sd_write_file(path, config, strlen(config));
    free(config);

    sd_buf header = {0};
    uint64_t at = 0, length = 0;
    sd_buf_add(&header, &length, sizeof length);
    sd_buf_add_str(&header, "{");
    for (size_t i = 0; i < tiny.n; i++) {
        const sd_tiny_tensor *t = &tiny.tensors[i]; /* every 24 of the tiny model is the width here, every 70 the ids */
        add_header(&header, t->name, t->shape[0] == 70 ? vocab : t->shape[0] == 24 ? width : t->shape[0],
                   t->shape[1] == 24 ? width : t->shape[1], &at);
    }
    sd_buf_add_str(&header, "}");
    assert_false(header.failed);
    length = header.len - sizeof length;
    memcpy(header.data, &length, sizeof length);
    (void)snprintf(path, sizeof path, "%s/model.safetensors", dir);
    sd_write_file(path, header.data, header.len);
    bool sparse = truncate(path, (off_t)(header.len + at)) == 0;
    if (sparse) {
        sd_model *model;
        sd_error err = {0};
        sd_assert_fails(sd_model_load(&model, dir, NULL, &err), SD_ERR_MEMORY, &err, "weights need 1168.3 GB as f32");
        assert_null(model);
    }
    sd_buf_free(&header);
    sd_tiny_clear(&tiny);
    sd_remove_temp_dir(dir);
    if (!sparse) {
        print_message("the file system has no sparse files of half a terabyte\n");
        skip();
    }
}

int main(void)
{
    sd_skip_unless_level();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stored_types_hold_the_same_values),
        cmocka_unit_test(auto_keeps_bf16_and_widens_the_rest),
        cmocka_unit_test(bf16_weights_are_rounded_matrices),
        cmocka_unit_test(reading_threads_and_mapping_give_the_same_model),
        cmocka_unit_test(fingerprints_tell_models_apart),
        cmocka_unit_test(the_info_is_the_models),
        cmocka_unit_test(options_and_directories_are_checked),
        cmocka_unit_test(an_allocation_that_fails_is_an_error),
        cmocka_unit_test(a_model_larger_than_the_machine_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
