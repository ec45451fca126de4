/* SPDX-License-Identifier: MIT
 *
 * OPT (facebook/opt-*): pre-LayerNorm decoder with learned positions, ReLU, biases everywhere; opt-350m is post-norm
 * with projections around an embedding of its own width. Also the relatives that reuse the class with other flags. */
#include <string.h>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/model/model.h"

static bool has_bias(const sd_config *c) { return c->bias; }
static bool has_affine(const sd_config *c) { return c->norm_affine; }
static bool has_final_norm(const sd_config *c) { return c->final_norm && c->norm_affine; }
static bool has_projections(const sd_config *c) { return c->embed != c->hidden; }

static const sd_tensor_row rows[] = {
    {SD_SLOT_EMBED, "embed_tokens.weight", {SD_DIM_VOCAB, SD_DIM_EMBED}, NULL},
    {SD_SLOT_POSITIONS, "embed_positions.weight", {SD_DIM_POSITIONS, SD_DIM_HIDDEN}, NULL},
    {SD_SLOT_PROJECT_IN, "project_in.weight", {SD_DIM_HIDDEN, SD_DIM_EMBED}, has_projections},
    {SD_SLOT_PROJECT_OUT, "project_out.weight", {SD_DIM_EMBED, SD_DIM_HIDDEN}, has_projections},
    {SD_SLOT_FINAL_NORM_GAIN, "final_layer_norm.weight", {SD_DIM_HIDDEN, SD_DIM_NONE}, has_final_norm},
    {SD_SLOT_FINAL_NORM_BIAS, "final_layer_norm.bias", {SD_DIM_HIDDEN, SD_DIM_NONE}, has_final_norm},
    {SD_SLOT_ATTN_NORM_GAIN, "layers.%d.self_attn_layer_norm.weight", {SD_DIM_HIDDEN, SD_DIM_NONE}, has_affine},
    {SD_SLOT_ATTN_NORM_BIAS, "layers.%d.self_attn_layer_norm.bias", {SD_DIM_HIDDEN, SD_DIM_NONE}, has_affine},
    {SD_SLOT_Q, "layers.%d.self_attn.q_proj.weight", {SD_DIM_HIDDEN, SD_DIM_HIDDEN}, NULL},
    {SD_SLOT_Q_BIAS, "layers.%d.self_attn.q_proj.bias", {SD_DIM_HIDDEN, SD_DIM_NONE}, has_bias},
    {SD_SLOT_K, "layers.%d.self_attn.k_proj.weight", {SD_DIM_HIDDEN, SD_DIM_HIDDEN}, NULL},
    {SD_SLOT_K_BIAS, "layers.%d.self_attn.k_proj.bias", {SD_DIM_HIDDEN, SD_DIM_NONE}, has_bias},
    {SD_SLOT_V, "layers.%d.self_attn.v_proj.weight", {SD_DIM_HIDDEN, SD_DIM_HIDDEN}, NULL},
    {SD_SLOT_V_BIAS, "layers.%d.self_attn.v_proj.bias", {SD_DIM_HIDDEN, SD_DIM_NONE}, has_bias},
    {SD_SLOT_OUT, "layers.%d.self_attn.out_proj.weight", {SD_DIM_HIDDEN, SD_DIM_HIDDEN}, NULL},
    {SD_SLOT_OUT_BIAS, "layers.%d.self_attn.out_proj.bias", {SD_DIM_HIDDEN, SD_DIM_NONE}, has_bias},
    {SD_SLOT_FFN_NORM_GAIN, "layers.%d.final_layer_norm.weight", {SD_DIM_HIDDEN, SD_DIM_NONE}, has_affine},
    {SD_SLOT_FFN_NORM_BIAS, "layers.%d.final_layer_norm.bias", {SD_DIM_HIDDEN, SD_DIM_NONE}, has_affine},
    {SD_SLOT_FC1, "layers.%d.fc1.weight", {SD_DIM_FFN, SD_DIM_HIDDEN}, NULL},
    {SD_SLOT_FC1_BIAS, "layers.%d.fc1.bias", {SD_DIM_FFN, SD_DIM_NONE}, has_bias},
    {SD_SLOT_FC2, "layers.%d.fc2.weight", {SD_DIM_HIDDEN, SD_DIM_FFN}, NULL},
    {SD_SLOT_FC2_BIAS, "layers.%d.fc2.bias", {SD_DIM_HIDDEN, SD_DIM_NONE}, has_bias},
};

static int read_activation(sd_config *c, const json_t *json, sd_error *err)
{
    const char *name = "relu";
    int rc = sd_json_get_string(json, "activation_function", false, &name, err);
    if (rc != SD_OK) {
        return rc;
    }
    if (strcmp(name, "relu") == 0) {
        c->activation = SD_MLP_RELU;
    } else if (strcmp(name, "gelu") == 0) {
        c->activation = SD_MLP_GELU;
    } else if (strcmp(name, "gelu_new") == 0 || strcmp(name, "gelu_pytorch_tanh") == 0) {
        c->activation = SD_MLP_GELU_TANH;
    } else {
        return sd_fail(err, SD_ERR_UNSUPPORTED, "key \"activation_function\": \"%s\"; expected relu, gelu, gelu_new or "
                       "gelu_pytorch_tanh", name);
    }
    return SD_OK;
}

typedef struct sd_int_key {
    const char *name;
    bool required;
    int64_t min, max;
    int *field;
} sd_int_key;

static int read_sizes(sd_config *c, const json_t *json, sd_error *err)
{
    /* The bounds keep every product of two sizes far inside int64; no model is near them. */
    const sd_int_key keys[] = {
        {"num_hidden_layers", true, 1, 1 << 14, &c->n_layers},
        {"hidden_size", true, 1, 1 << 20, &c->hidden},
        {"num_attention_heads", true, 1, 1 << 16, &c->n_heads},
        {"ffn_dim", true, 1, 1 << 22, &c->ffn},
        {"vocab_size", true, 1, 1 << 24, &c->vocab},
        {"max_position_embeddings", true, 1, 1 << 24, &c->max_positions},
        {"word_embed_proj_dim", false, 1, 1 << 20, &c->embed},
        {"bos_token_id", false, -1, 1 << 24, &c->bos_id},
        {"eos_token_id", false, -1, 1 << 24, &c->eos_id},
        {"pad_token_id", false, -1, 1 << 24, &c->pad_id},
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        /* null says that there is no such token; only a key that is absent leaves OPT's own */
        bool none = keys[i].min == -1 && json_is_null(json_object_get(json, keys[i].name));
        int64_t value = none ? -1 : *keys[i].field;
        int rc = sd_json_get_int(json, keys[i].name, keys[i].required, keys[i].min, keys[i].max, &value, err);
        if (rc != SD_OK) {
            return rc;
        }
        *keys[i].field = (int)value;
    }
    return SD_OK;
}

static int read_config(sd_config *c, const void *opaque, sd_error *err)
{
    const json_t *json = opaque;
    *c = (sd_config){.arch = "opt", .position_offset = 2, .norm_eps = 1e-5f, .bos_id = 2, .eos_id = 2, .pad_id = 1};
    int rc = read_sizes(c, json, err);
    if (rc != SD_OK) {
        return rc;
    }
    c->embed = c->embed ? c->embed : c->hidden;
    if (c->hidden % c->n_heads != 0) {
        return sd_fail(err, SD_ERR_FORMAT, "key \"hidden_size\": %d is not a multiple of num_attention_heads, %d",
                       c->hidden, c->n_heads);
    }
    c->head_dim = c->hidden / c->n_heads;
    bool no_final_norm = false;
    c->pre_norm = c->bias = c->norm_affine = c->tied = true;
    const struct {
        const char *key;
        bool *field;
    } flags[] = {
        {"do_layer_norm_before", &c->pre_norm},
        {"enable_bias", &c->bias},
        {"layer_norm_elementwise_affine", &c->norm_affine},
        {"tie_word_embeddings", &c->tied},
        {"_remove_final_layer_norm", &no_final_norm},
    };
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        rc = sd_json_get_bool(json, flags[i].key, false, flags[i].field, err);
        if (rc != SD_OK) {
            return rc;
        }
    }
    c->final_norm = c->pre_norm && !no_final_norm;
    return read_activation(c, json, err);
}

static const char *const prefixes[] = {"model.decoder.", "decoder.", "", NULL};

const sd_arch sd_arch_opt = {
    .name = "opt",
    .prefixes = prefixes,
    .head_names = {"lm_head.weight", "model.lm_head.weight"},
    .rows = rows,
    .n_rows = sizeof rows / sizeof *rows,
    .read_config = read_config,
};
