/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/error.h"
#include "src/base/file.h"
#include "src/base/json.h"
#include "src/base/log.h"
#include "src/model/model.h"

static const sd_arch *const archs[] = {&sd_arch_opt};

const sd_arch *sd_arch_find(const char *model_type)
{
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) {
        if (strcmp(archs[i]->name, model_type) == 0) {
            return archs[i];
        }
    }
    return NULL;
}

int64_t sd_config_dim(const sd_config *config, sd_dim dim)
{
    switch (dim) {
    case SD_DIM_NONE: return 1;
    case SD_DIM_VOCAB: return config->vocab;
    case SD_DIM_EMBED: return config->embed;
    case SD_DIM_HIDDEN: return config->hidden;
    case SD_DIM_FFN: return config->ffn;
    case SD_DIM_POSITIONS: return (int64_t)config->max_positions + config->position_offset;
    }
    return 0;
}

/* Keys that are read, or that do not change what a forward pass computes. Anything else might, and is named. */
static bool known_key(const char *key)
{
    static const char *const known[] = {
        "model_type", "num_hidden_layers", "hidden_size", "num_attention_heads", "ffn_dim", "vocab_size",
        "max_position_embeddings", "word_embed_proj_dim", "bos_token_id", "eos_token_id", "pad_token_id",
        "do_layer_norm_before", "enable_bias", "layer_norm_elementwise_affine", "tie_word_embeddings",
        "_remove_final_layer_norm", "activation_function",
        /* training, bookkeeping and generation defaults of other tools */
        "_name_or_path", "architectures", "transformers_version", "torch_dtype", "dtype", "prefix", "use_cache",
        "init_std", "dropout", "attention_dropout", "activation_dropout", "layerdrop", "output_past", "return_dict",
        "is_decoder", "id2label", "label2id", "problem_type", "output_attentions", "output_hidden_states",
        "chunk_size_feed_forward", "is_encoder_decoder", "_attn_implementation_autoset", "attn_implementation",
        "task_specific_params", "license",
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(known[i], key) == 0) {
            return true;
        }
    }
    return false;
}

static int from_json(sd_config *config, const json_t *json, const char *name, sd_error *err)
{
    const char *type;
    int rc = sd_json_get_string(json, "model_type", true, &type, err);
    if (rc != SD_OK) {
        return rc;
    }
    const sd_arch *arch = sd_arch_find(type);
    if (!arch) {
        return sd_fail(err, SD_ERR_UNSUPPORTED,
                       "key \"model_type\": \"%s\" is not an architecture this version computes; expected "
                       "\"opt\"",
                       type);
    }
    rc = arch->read_config(config, json, err);
    if (rc != SD_OK) {
        return rc;
    }
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)json, key, value) {
        if (!known_key(key)) {
            sd_warn("%s: key \"%s\" is not known and has no effect here", name, key);
        }
    }
    return SD_OK;
}

int sd_config_parse(sd_config *config, const char *text, size_t len, const char *name, sd_error *err)
{
    json_t *json;
    int rc = sd_json_parse(&json, text, len, name, err);
    if (rc == SD_OK) {
        rc = from_json(config, json, name, err);
        if (rc != SD_OK) {
            (void)sd_fail_prefix(err, rc, "%s", name);
        }
        json_decref(json);
    }
    return rc;
}

int sd_config_load(sd_config *config, const char *dir, sd_error *err)
{
    if (!sd_dir_exists(dir)) {
        return sd_fail(err, SD_ERR_ARG, "%s: %s; expected a model directory with config.json and weights", dir,
                       sd_file_exists(dir) ? "is a file" : "no such directory");
    }
    char *path = sd_path_join(dir, "config.json");
    if (!path) {
        return sd_fail_memory(err, strlen(dir) + 16, "a file name");
    }
    sd_file file;
    int rc = sd_file_open(&file, path, false, err);
    if (rc == SD_OK) {
        rc = sd_config_parse(config, (const char *)file.data, file.size, path, err);
        sd_file_close(&file);
    }
    sd_free(path);
    return rc;
}
