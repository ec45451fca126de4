/* SPDX-License-Identifier: MIT */
#include "tests/support/tiny_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/half.h"
#include "src/base/rng.h"
#include "tests/support/support.h"

/* ---- tensors ---- */

static size_t count(const sd_tiny_tensor *t) { return (size_t)t->shape[0] * (size_t)(t->rank == 2 ? t->shape[1] : 1); }

void sd_tiny_reshape(sd_tiny_tensor *t, int64_t rows, int64_t columns)
{
    t->rank = columns ? 2 : 1;
    t->shape[0] = rows;
    t->shape[1] = columns ? columns : 1;
    free(t->values);
    t->values = calloc(count(t), sizeof *t->values);
    assert_non_null(t->values);
    for (size_t i = 0; i < count(t); i++) {
        t->values[i] = 0.25f;
    }
}

void sd_tiny_set_dtype(sd_tiny_tensor *t, sd_dtype dtype)
{
    t->dtype = dtype;
    for (size_t i = 0; i < count(t); i++) {
        float x = t->values[i];
        t->values[i] = dtype == SD_DTYPE_F16                              ? sd_f16_to_f32(sd_f32_to_f16(x))
                       : dtype == SD_DTYPE_BF16                           ? sd_bf16_to_f32(sd_f32_to_bf16(x))
                       : dtype == SD_DTYPE_F32 || dtype == SD_DTYPE_F64 ? x
                                                                          : 0.0f;
    }
}

/* About normal: twelve uniform numbers have variance 1. */
static float noise(sd_rng *rng)
{
    double sum = -6;
    for (int i = 0; i < 12; i++) {
        sum += sd_rng_double(rng);
    }
    return (float)sum;
}

/* Sizes at which every operation shows in the logits: gains and biases too, and attention that is not flat. */
static void fill(sd_tiny_tensor *t, sd_rng *rng)
{
    bool norm = strstr(t->name, "layer_norm"), bias = strstr(t->name, "bias"), table = strstr(t->name, "embed");
    float scale = norm || bias ? 0.2f : table ? 0.6f : 1.2f / sqrtf((float)t->shape[1]);
    float middle = norm && !bias ? 1.0f : 0.0f;
    for (size_t i = 0; i < count(t); i++) {
        t->values[i] = middle + scale * noise(rng);
    }
}

sd_tiny_tensor *sd_tiny_add(sd_tiny_model *tiny, const char *whole_name, int64_t rows, int64_t columns)
{
    tiny->tensors = realloc(tiny->tensors, (tiny->n + 1) * sizeof *tiny->tensors);
    assert_non_null(tiny->tensors);
    sd_tiny_tensor *t = &tiny->tensors[tiny->n];
    *t = (sd_tiny_tensor){0};
    assert_true(snprintf(t->name, sizeof t->name, "%s", whole_name) < (int)sizeof t->name);
    sd_tiny_reshape(t, rows, columns);
    sd_rng rng;
    sd_rng_seed(&rng, tiny->options.seed * 1000 + tiny->n);
    fill(t, &rng);
    sd_tiny_set_dtype(t, tiny->options.dtype);
    tiny->n++;
    return t;
}

sd_tiny_tensor *sd_tiny_find(const sd_tiny_model *tiny, const char *name)
{
    size_t prefix = strlen(tiny->options.prefix);
    for (size_t i = 0; i < tiny->n; i++) {
        const char *whole = tiny->tensors[i].name;
        bool prefixed = strncmp(whole, tiny->options.prefix, prefix) == 0;
        if (strcmp(whole, name) == 0 || (prefixed && strcmp(whole + prefix, name) == 0)) {
            return &tiny->tensors[i];
        }
    }
    return NULL;
}

void sd_tiny_remove(sd_tiny_model *tiny, const char *name)
{
    sd_tiny_tensor *t = sd_tiny_find(tiny, name);
    assert_non_null(t);
    free(t->values);
    *t = tiny->tensors[--tiny->n];
}

/* ---- a whole model ---- */

static void add(sd_tiny_model *tiny, const char *name, int rows, int columns)
{
    char whole[80];
    assert_true(snprintf(whole, sizeof whole, "%s%s", tiny->options.prefix, name) < (int)sizeof whole);
    (void)sd_tiny_add(tiny, whole, rows, columns);
}

static void add_linear(sd_tiny_model *tiny, int layer, const char *name, int rows, int columns)
{
    char whole[80];
    (void)snprintf(whole, sizeof whole, "layers.%d.%s.weight", layer, name);
    add(tiny, whole, rows, columns);
    if (!tiny->options.no_bias) {
        (void)snprintf(whole, sizeof whole, "layers.%d.%s.bias", layer, name);
        add(tiny, whole, rows, 0);
    }
}

static void add_layer_norm(sd_tiny_model *tiny, int layer, const char *name)
{
    static const char *const parts[] = {"weight", "bias"};
    for (int i = 0; i < 2 && !tiny->options.no_affine; i++) {
        char whole[80];
        (void)snprintf(whole, sizeof whole, "layers.%d.%s.%s", layer, name, parts[i]);
        add(tiny, whole, tiny->options.hidden, 0);
    }
}

static int usual(int value, int otherwise) { return value ? value : otherwise; }

void sd_tiny_make(sd_tiny_model *tiny, const sd_tiny_options *options)
{
    *tiny = (sd_tiny_model){.options = *options};
    sd_tiny_options *o = &tiny->options;
    o->n_layers = usual(o->n_layers, 5);
    o->hidden = usual(o->hidden, 24);
    o->n_heads = usual(o->n_heads, 3);
    o->ffn = usual(o->ffn, 40);
    o->vocab = usual(o->vocab, 70);
    o->max_positions = usual(o->max_positions, 48);
    o->embed = usual(o->embed, o->hidden);
    o->activation = o->activation ? o->activation : "relu";
    o->prefix = o->prefix ? o->prefix : "model.decoder.";
    add(tiny, "embed_tokens.weight", o->vocab, o->embed);
    add(tiny, "embed_positions.weight", o->max_positions + 2, o->hidden);
    if (o->embed != o->hidden) {
        add(tiny, "project_in.weight", o->hidden, o->embed);
        add(tiny, "project_out.weight", o->embed, o->hidden);
    }
    if (!o->post_norm && !o->no_final_norm && !o->no_affine) {
        add(tiny, "final_layer_norm.weight", o->hidden, 0);
        add(tiny, "final_layer_norm.bias", o->hidden, 0);
    }
    for (int l = 0; l < o->n_layers; l++) {
        add_layer_norm(tiny, l, "self_attn_layer_norm");
        add_linear(tiny, l, "self_attn.q_proj", o->hidden, o->hidden);
        add_linear(tiny, l, "self_attn.k_proj", o->hidden, o->hidden);
        add_linear(tiny, l, "self_attn.v_proj", o->hidden, o->hidden);
        add_linear(tiny, l, "self_attn.out_proj", o->hidden, o->hidden);
        add_layer_norm(tiny, l, "final_layer_norm");
        add_linear(tiny, l, "fc1", o->ffn, o->hidden);
        add_linear(tiny, l, "fc2", o->hidden, o->ffn);
    }
    if (o->untied) {
        (void)sd_tiny_add(tiny, "lm_head.weight", o->vocab, o->embed);
    }
}

void sd_tiny_clear(sd_tiny_model *tiny)
{
    for (size_t i = 0; i < tiny->n; i++) {
        free(tiny->tensors[i].values);
    }
    free(tiny->tensors);
    *tiny = (sd_tiny_model){0};
}

/* ---- on disk ---- */

char *sd_tiny_config(const sd_tiny_model *tiny)
{
    static const char *const word[] = {"false", "true"};
    const sd_tiny_options *o = &tiny->options;
    char *text = malloc(2048);
    assert_non_null(text);
    int n = snprintf(text, 2048,
                     "{\"model_type\": \"opt\", \"num_hidden_layers\": %d, \"hidden_size\": %d, "
                     "\"num_attention_heads\": %d, \"ffn_dim\": %d, \"vocab_size\": %d, "
                     "\"max_position_embeddings\": %d, \"word_embed_proj_dim\": %d, \"activation_function\": \"%s\", "
                     "\"do_layer_norm_before\": %s, \"enable_bias\": %s, \"layer_norm_elementwise_affine\": %s, "
                     "\"_remove_final_layer_norm\": %s, \"tie_word_embeddings\": %s, "
                     "\"bos_token_id\": 2, \"eos_token_id\": 2, \"pad_token_id\": 1}\n",
                     o->n_layers, o->hidden, o->n_heads, o->ffn, o->vocab, o->max_positions, o->embed, o->activation,
                     word[!o->post_norm], word[!o->no_bias], word[!o->no_affine], word[o->no_final_norm],
                     word[!o->untied]);
    assert_true(n > 0 && n < 2048);
    return text;
}

/* The tensor's elements as the file stores them; the caller frees them. */
static void *encode(const sd_tiny_tensor *t)
{
    size_t size = sd_dtype_size(t->dtype);
    unsigned char *bytes = calloc(count(t) + 1, size);
    assert_non_null(bytes);
    for (size_t i = 0; i < count(t); i++) {
        float x = t->values[i];
        double wide = (double)x;
        uint16_t half = t->dtype == SD_DTYPE_F16 ? sd_f32_to_f16(x) : sd_f32_to_bf16(x);
        const void *from = t->dtype == SD_DTYPE_F32 ? (const void *)&x : t->dtype == SD_DTYPE_F64 ? &wide : NULL;
        from = t->dtype == SD_DTYPE_F16 || t->dtype == SD_DTYPE_BF16 ? &half : from;
        if (from) {
            memcpy(bytes + i * size, from, size);
        }
    }
    return bytes;
}

void sd_tiny_write(const sd_tiny_model *tiny, const char *dir)
{
    char path[4096], *config = sd_tiny_config(tiny);
    (void)snprintf(path, sizeof path, "%s/config.json", dir);
    sd_write_file(path, config, strlen(config));
    free(config);
    sd_tensor_source *sources = calloc(tiny->n, sizeof *sources);
    assert_non_null(sources);
    for (size_t i = 0; i < tiny->n; i++) {
        const sd_tiny_tensor *t = &tiny->tensors[i];
        sources[i] = (sd_tensor_source){.name = t->name, .dtype = t->dtype, .rank = t->rank,
                                        .shape = {t->shape[0], t->shape[1]}, .data = encode(t)};
    }
    sd_error err = {0};
    (void)snprintf(path, sizeof path, "%s/model.safetensors", dir);
    sd_assert_ok(sd_safetensors_write(path, sources, tiny->n, &err), &err);
    for (size_t i = 0; i < tiny->n; i++) {
        free((void *)(uintptr_t)sources[i].data);
    }
    free(sources);
}

sd_model *sd_tiny_load(const sd_tiny_model *tiny, const sd_model_options *options)
{
    char *dir = sd_make_temp_dir();
    sd_tiny_write(tiny, dir);
    sd_model *model;
    sd_error err = {0};
    sd_assert_ok(sd_model_load(&model, dir, options, &err), &err);
    sd_remove_temp_dir(dir);
    return model;
}

sd_model *sd_tiny_model_of(const sd_tiny_options *options, int threads)
{
    sd_tiny_model tiny;
    sd_tiny_make(&tiny, options);
    sd_model_options load;
    sd_model_options_default(&load);
    load.threads = threads;
    sd_model *model = sd_tiny_load(&tiny, &load);
    sd_tiny_clear(&tiny);
    return model;
}
