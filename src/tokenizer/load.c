/* SPDX-License-Identifier: MIT
 *
 * What a model directory may hold, and what is taken from where:
 *
 *   vocab.json + merges.txt    vocabulary and merges, if both are there; else
 *   tokenizer.json             vocabulary and merges. In either case, if it is there: added tokens, prefix space, BOS
 *                              of its template; and the rest of its pipeline must be GPT-2's
 *   added_tokens.json          added tokens (older directories)
 *   tokenizer_config.json      added tokens, special tokens by role, add_bos_token, add_prefix_space
 *   special_tokens_map.json    special tokens by role
 *   config.json                model_type; bos_token_id and eos_token_id when no other file names a special token
 *
 * BOS in front of a text: if tokenizer.json's template has one; else what add_bos_token says; else if model_type is
 * "opt", whose reference tokenizer adds one without being told. */
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/file.h"
#include "src/tokenizer/bpe.h"
#include "src/tokenizer/load.h"

/* ---- added tokens ---- */

int sd_load_added_spec(sd_added_spec *spec, const json_t *object, bool special_default, sd_error *err)
{
    *spec = (sd_added_spec){.id = -1, .special = special_default};
    bool single_word = false;
    int rc = sd_json_get_string(object, "content", true, &spec->content, err);
    if (rc == SD_OK) {
        spec->len = strlen(spec->content);
        rc = sd_json_get_bool(object, "special", false, &spec->special, err);
    }
    if (rc == SD_OK) {
        spec->normalized = !spec->special;
        rc = sd_json_get_bool(object, "normalized", false, &spec->normalized, err);
    }
    if (rc == SD_OK) {
        rc = sd_json_get_bool(object, "lstrip", false, &spec->lstrip, err);
    }
    if (rc == SD_OK) {
        rc = sd_json_get_bool(object, "rstrip", false, &spec->rstrip, err);
    }
    if (rc == SD_OK) {
        rc = sd_json_get_bool(object, "single_word", false, &single_word, err);
    }
    if (rc == SD_OK && single_word) {
        rc = sd_fail(err, SD_ERR_UNSUPPORTED, "added token \"%.*s\": single_word is true, which is not supported",
                     sd_token_shown(spec->content, spec->len), spec->content);
    }
    return rc;
}

static int resolve_added(sd_tokenizer *tok, const sd_added_spec *spec, int32_t *id, sd_error *err)
{
    int shown = sd_token_shown(spec->content, spec->len);
    int rc = sd_vocab_find(&tok->vocab, spec->content, spec->len, id, err);
    if (rc != SD_OK) {
        return rc;
    }
    if (*id >= 0 && spec->id >= 0 && *id != spec->id) {
        return sd_fail(err, SD_ERR_FORMAT, "added token \"%.*s\": its id is %lld here and %d in the vocabulary", shown,
                       spec->content, (long long)spec->id, *id);
    }
    if (*id < 0 && spec->id < 0) {
        return sd_fail(err, SD_ERR_FORMAT,
                       "special token \"%.*s\" has no id: neither the vocabulary nor the added tokens list it; save "
                       "the "
                       "tokenizer again with a version that writes \"added_tokens_decoder\"",
                       shown, spec->content);
    }
    if (*id < 0) {
        rc = sd_vocab_add(&tok->vocab, spec->id, spec->content, spec->len, err);
        *id = rc == SD_OK ? (int32_t)spec->id : -1;
    }
    return rc;
}

/* From now on `content` in a text is token `id`. */
static int mark_added(sd_tokenizer *tok, int32_t id, const sd_added_spec *spec, sd_error *err)
{
    uint32_t *flags = &tok->vocab.tokens[id].flags;
    if (!(*flags & SD_TOKEN_ADDED)) {
        if (!sd_added_insert(&tok->added[spec->normalized], spec->content, spec->len, id)) {
            return sd_fail_memory(err, spec->len, "an added token");
        }
        *flags |= SD_TOKEN_ADDED | (spec->lstrip ? SD_TOKEN_LSTRIP : 0u) | (spec->rstrip ? SD_TOKEN_RSTRIP : 0u);
    }
    *flags |= spec->special ? SD_TOKEN_SPECIAL : 0u;
    return SD_OK;
}

int sd_load_added(sd_tokenizer *tok, const sd_added_spec *spec, int32_t *id, sd_error *err)
{
    int32_t found = -1;
    if (spec->len == 0) {
        return sd_fail(err, SD_ERR_FORMAT, "an added token has an empty text");
    }
    int rc = resolve_added(tok, spec, &found, err);
    if (rc == SD_OK && id) {
        *id = found;
    }
    return rc == SD_OK ? mark_added(tok, found, spec, err) : rc;
}

/* added_tokens.json: {text: id}. Older directories say elsewhere which of them are special. */
static int read_added_json(sd_tokenizer *tok, const json_t *root, sd_error *err)
{
    const char *content;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)root, content, value) {
        sd_added_spec spec = {.content = content, .len = strlen(content), .normalized = true};
        int rc = sd_json_get_int(root, content, true, 0, SD_VOCAB_MAX_ID, &spec.id, err);
        if (rc == SD_OK) {
            rc = sd_load_added(tok, &spec, NULL, err);
        }
        if (rc != SD_OK) {
            return rc;
        }
    }
    return SD_OK;
}

/* added_tokens_decoder of tokenizer_config.json: {"id": AddedToken}. */
static int read_added_decoder(sd_tokenizer *tok, const json_t *decoder, sd_error *err)
{
    const char *key;
    json_t *value;
    if (decoder && !json_is_null(decoder) && !json_is_object(decoder)) {
        return sd_fail(err, SD_ERR_FORMAT, "added_tokens_decoder: expected an object, found %s",
                       sd_json_type_name(decoder));
    }
    json_object_foreach((json_t *)(uintptr_t)decoder, key, value) {
        sd_added_spec spec;
        char *end;
        long long id = key[0] >= '0' && key[0] <= '9' ? strtoll(key, &end, 10) : -1;
        int rc = id < 0 || *end || id > SD_VOCAB_MAX_ID
                     ? sd_fail(err, SD_ERR_FORMAT, "expected an id of 0 .. %d as the key", SD_VOCAB_MAX_ID)
                     : sd_load_added_spec(&spec, value, false, err);
        if (rc == SD_OK) {
            spec.id = id;
            rc = sd_load_added(tok, &spec, NULL, err);
        }
        if (rc != SD_OK) {
            return sd_fail_prefix(err, rc, "added_tokens_decoder[\"%.*s\"]", sd_token_shown(key, strlen(key)), key);
        }
    }
    return SD_OK;
}

/* A special token as a string or an AddedToken object, which the vocabulary must have. */
static int read_special(sd_tokenizer *tok, const json_t *value, const char *role, int32_t *id, sd_error *err)
{
    sd_added_spec spec = {
        .content = json_string_value(value), .len = json_string_length(value), .id = -1, .special = true};
    int rc = SD_OK;
    if (json_is_object(value)) {
        rc = sd_load_added_spec(&spec, value, true, err);
        spec.special = true;
    } else if (!spec.content) {
        rc = sd_fail(err, SD_ERR_FORMAT, "expected a string or an object with \"content\", found %s",
                     sd_json_type_name(value));
    }
    if (rc == SD_OK) {
        rc = sd_load_added(tok, &spec, id, err);
    }
    return rc == SD_OK ? SD_OK : sd_fail_prefix(err, rc, "%s", role);
}

/* Special tokens without a role of their own: a list, or an object {name: token}. */
static int read_more(sd_tokenizer *tok, const json_t *root, const char *key, sd_error *err)
{
    json_t *more = json_object_get(root, key), *value;
    const char *name;
    int rc = SD_OK;
    if (more && !json_is_null(more) && !json_is_array(more) && !json_is_object(more)) {
        return sd_fail(err, SD_ERR_FORMAT, "%s: expected a list, found %s", key, sd_json_type_name(more));
    }
    for (size_t i = 0; rc == SD_OK && i < json_array_size(more); i++) {
        rc = read_special(tok, json_array_get(more, i), key, NULL, err);
    }
    json_object_foreach(more, name, value) {
        rc = rc == SD_OK ? read_special(tok, value, key, NULL, err) : rc;
    }
    return rc;
}

/* The special tokens that special_tokens_map.json and tokenizer_config.json give by role. */
static int read_roles(sd_tokenizer *tok, const json_t *root, sd_error *err)
{
    static const char *const roles[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                        "pad_token", "cls_token", "mask_token"};
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++) {
        const json_t *value = json_object_get(root, roles[i]);
        int32_t id = -1;
        int rc = !value || json_is_null(value) ? SD_OK : read_special(tok, value, roles[i], &id, err);
        if (rc != SD_OK) {
            return rc;
        }
        tok->bos = i == 0 && id >= 0 && !tok->adds_bos ? id : tok->bos; /* a template's BOS stays */
        tok->eos = i == 1 && id >= 0 ? id : tok->eos;
    }
    int rc = read_more(tok, root, "additional_special_tokens", err);
    return rc == SD_OK ? read_more(tok, root, "extra_special_tokens", err) : rc;
}

/* ---- files ---- */

typedef struct sd_files {
    const char *dir;
    json_t *tokenizer, *config, *special_map, *added, *model; /* NULL: not there */
} sd_files;

static int join(char **path, const char *dir, const char *name, sd_error *err)
{
    *path = sd_path_join(dir, name);
    return *path ? SD_OK : sd_fail_memory(err, strlen(dir) + strlen(name) + 2, "a file name");
}

/* *root stays NULL if the file is not there. */
static int load_optional(json_t **root, const char *dir, const char *name, sd_error *err)
{
    char *path;
    int rc = join(&path, dir, name, err);
    if (rc == SD_OK && sd_file_exists(path)) {
        rc = sd_json_load(root, path, err);
        if (rc == SD_OK && !json_is_object(*root)) {
            rc = sd_fail(err, SD_ERR_FORMAT, "%s: expected a JSON object, found %s", path, sd_json_type_name(*root));
        }
    }
    sd_free(path);
    return rc;
}

static int load_two_files(sd_tokenizer *tok, const char *vocab_path, const char *merges_path, sd_error *err)
{
    json_t *vocab;
    int rc = sd_json_load(&vocab, vocab_path, err);
    if (rc != SD_OK) {
        return rc;
    }
    rc = sd_load_vocab(tok, vocab, err);
    json_decref(vocab);
    if (rc != SD_OK) {
        return sd_fail_prefix(err, rc, "%s", vocab_path);
    }
    sd_file merges;
    rc = sd_file_open(&merges, merges_path, false, err);
    if (rc == SD_OK) {
        rc = sd_load_merges_text(tok, (const char *)merges.data, merges.size, merges_path, err);
        sd_file_close(&merges);
    }
    return rc;
}

/* vocab.json and merges.txt say nothing of how text is split; other families that use the same two files split it
 * otherwise. */
static int check_class(const sd_files *files, sd_error *err)
{
    const char *class = "GPT2Tokenizer";
    int rc = files->config ? sd_json_get_string(files->config, "tokenizer_class", false, &class, err) : SD_OK;
    if (rc == SD_OK && strcmp(class, "GPT2Tokenizer") != 0 && strcmp(class, "GPT2TokenizerFast") != 0) {
        rc = sd_fail(err, SD_ERR_UNSUPPORTED,
                     "tokenizer_class is %.*s, and without a tokenizer.json only GPT2Tokenizer is known to split text "
                     "as this "
                     "library does; save the tokenizer as tokenizer.json",
                     sd_token_shown(class, strlen(class)), class);
    }
    return rc == SD_OK ? SD_OK : sd_fail_prefix(err, rc, "%s/tokenizer_config.json", files->dir);
}

static int load_model(sd_tokenizer *tok, const sd_files *files, sd_error *err)
{
    char *vocab = NULL, *merges = NULL;
    int rc = join(&vocab, files->dir, "vocab.json", err);
    if (rc == SD_OK) {
        rc = join(&merges, files->dir, "merges.txt", err);
    }
    if (rc == SD_OK && sd_file_exists(vocab) && sd_file_exists(merges)) {
        rc = load_two_files(tok, vocab, merges, err);
        if (rc == SD_OK && !files->tokenizer) {
            rc = check_class(files, err);
        }
    } else if (rc == SD_OK && files->tokenizer) {
        rc = sd_load_hf_model(tok, files->tokenizer, err);
        rc = rc == SD_OK ? SD_OK : sd_fail_prefix(err, rc, "%s/tokenizer.json", files->dir);
    } else if (rc == SD_OK) {
        rc = sd_fail(err, SD_ERR_IO, "%s: no tokenizer: expected vocab.json and merges.txt, or tokenizer.json%s%s",
                     files->dir, sd_file_exists(vocab) || sd_file_exists(merges) ? "; found only " : "",
                     sd_file_exists(vocab)    ? "vocab.json"
                     : sd_file_exists(merges) ? "merges.txt"
                                              : "");
    }
    sd_free(vocab);
    sd_free(merges);
    return rc;
}

/* ---- the order of things ---- */

/* An id of config.json, when no other file names a special token. Configurations are often copied from another model,
 * so an id that ordinary text can produce is not believed. */
static int32_t id_from_model_config(const sd_tokenizer *tok, const json_t *config, const char *key)
{
    int64_t id = -1;
    if (!sd_json_as_int(json_object_get(config, key), &id) || !sd_vocab_has(&tok->vocab, id) ||
        (tok->vocab.tokens[id].flags & SD_TOKEN_WHOLE)) {
        return -1;
    }
    return (int32_t)id;
}

static int make_special(sd_tokenizer *tok, int32_t id, sd_error *err)
{
    const sd_token *t = &tok->vocab.tokens[id];
    sd_added_spec spec = {tok->vocab.bytes.data + t->offset, t->len, id, .special = true};
    return t->len > 0 ? mark_added(tok, id, &spec, err) : SD_OK;
}

static int default_roles(sd_tokenizer *tok, const sd_files *files, sd_error *err)
{
    static const char end[] = "<|endoftext|>";
    if (tok->bos >= 0 || tok->eos >= 0) {
        return SD_OK;
    }
    tok->bos = id_from_model_config(tok, files->model, "bos_token_id");
    tok->eos = id_from_model_config(tok, files->model, "eos_token_id");
    if (tok->bos < 0 && tok->eos < 0) {
        tok->bos = tok->eos = sd_vocab_of_bytes(&tok->vocab, end, strlen(end));
    }
    int rc = tok->bos >= 0 ? make_special(tok, tok->bos, err) : SD_OK;
    return rc == SD_OK && tok->eos >= 0 ? make_special(tok, tok->eos, err) : rc;
}

static int read_config(sd_tokenizer *tok, const sd_files *files, sd_error *err)
{
    const char *model_type = "";
    int rc = files->model ? sd_json_get_string(files->model, "model_type", false, &model_type, err) : SD_OK;
    if (rc != SD_OK) {
        return sd_fail_prefix(err, rc, "%s/config.json", files->dir);
    }
    bool add_bos = strcmp(model_type, "opt") == 0;
    if (files->config) {
        rc = sd_json_get_bool(files->config, "add_bos_token", false, &add_bos, err);
        if (rc == SD_OK) {
            rc = sd_json_get_bool(files->config, "add_prefix_space", false, &tok->prefix_space, err);
        }
        if (rc != SD_OK) {
            return sd_fail_prefix(err, rc, "%s/tokenizer_config.json", files->dir);
        }
    }
    tok->adds_bos = tok->adds_bos || add_bos;
    if (tok->adds_bos && tok->bos < 0) {
        return sd_fail(err, SD_ERR_FORMAT,
                       "%s: a BOS is to be put in front of text, and no file says which token it is; expected "
                       "\"bos_token\" in "
                       "tokenizer_config.json or \"bos_token_id\" in config.json",
                       files->dir);
    }
    return SD_OK;
}

/* Everything but the model: added tokens, roles, BOS. */
static int load_rest(sd_tokenizer *tok, const sd_files *files, sd_error *err)
{
    int rc = SD_OK;
    if (files->tokenizer && (rc = sd_load_hf_pipeline(tok, files->tokenizer, err)) != SD_OK) {
        return sd_fail_prefix(err, rc, "%s/tokenizer.json", files->dir);
    }
    if (files->added && (rc = read_added_json(tok, files->added, err)) != SD_OK) {
        return sd_fail_prefix(err, rc, "%s/added_tokens.json", files->dir);
    }
    if (files->config &&
        (rc = read_added_decoder(tok, json_object_get(files->config, "added_tokens_decoder"), err)) != SD_OK) {
        return sd_fail_prefix(err, rc, "%s/tokenizer_config.json", files->dir);
    }
    if (files->special_map && (rc = read_roles(tok, files->special_map, err)) != SD_OK) {
        return sd_fail_prefix(err, rc, "%s/special_tokens_map.json", files->dir);
    }
    if (files->config && (rc = read_roles(tok, files->config, err)) != SD_OK) {
        return sd_fail_prefix(err, rc, "%s/tokenizer_config.json", files->dir);
    }
    rc = default_roles(tok, files, err);
    return rc == SD_OK ? read_config(tok, files, err) : rc;
}

static int load_all(sd_tokenizer *tok, sd_files *files, sd_error *err)
{
    const struct {
        json_t **root;
        const char *name;
    } optional[] = {{&files->tokenizer, "tokenizer.json"},
                    {&files->config, "tokenizer_config.json"},
                    {&files->special_map, "special_tokens_map.json"},
                    {&files->added, "added_tokens.json"},
                    {&files->model, "config.json"}};
    int rc = SD_OK;
    for (size_t i = 0; rc == SD_OK && i < sizeof optional / sizeof optional[0]; i++) {
        rc = load_optional(optional[i].root, files->dir, optional[i].name, err);
    }
    if (rc == SD_OK) {
        rc = sd_pattern_create(&tok->pattern, true, err);
    }
    if (rc == SD_OK) {
        rc = load_model(tok, files, err);
    }
    if (rc == SD_OK) { /* before added tokens: merging never makes those */
        rc = sd_bpe_mark_whole(&tok->vocab, err);
    }
    return rc == SD_OK ? load_rest(tok, files, err) : rc;
}

int sd_tokenizer_load(sd_tokenizer **out, const char *dir, sd_error *err)
{
    *out = NULL;
    if (!dir || !sd_dir_exists(dir)) {
        return sd_fail(err, dir ? SD_ERR_IO : SD_ERR_ARG, "%s: not a directory; expected one with a tokenizer's files",
                       dir ? dir : "(null)");
    }
    sd_tokenizer *tok = sd_calloc(1, sizeof *tok);
    if (!tok) {
        return sd_fail_memory(err, sizeof *tok, "a tokenizer");
    }
    tok->bos = tok->eos = -1;
    sd_files files = {.dir = dir};
    int rc = load_all(tok, &files, err);
    json_decref(files.tokenizer);
    json_decref(files.config);
    json_decref(files.special_map);
    json_decref(files.added);
    json_decref(files.model);
    if (rc != SD_OK) {
        sd_tokenizer_free(tok);
        return rc;
    }
    *out = tok;
    return SD_OK;
}
