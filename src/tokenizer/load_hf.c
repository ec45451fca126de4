/* SPDX-License-Identifier: MIT
 *
 * tokenizer.json of Hugging Face tokenizers describes a whole pipeline: normalizer, pre-tokenizer, model,
 * post-processor, decoder. Here it must come to GPT-2's, and whatever would give other ids is refused by name rather
 * than guessed. Not read: "truncation" and "padding" (they are for the caller to ask for), the post-processor's "pair",
 * "trim_offsets". */
#include <string.h>

#include "src/tokenizer/load.h"

/* What stands under "type" of a pipeline part, for comparisons and messages. */
static const char *type_of(const json_t *part)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    return type ? type : json_is_object(part) ? "an object without a type" : sd_json_type_name(part);
}

static bool is_absent(const json_t *value) { return !value || json_is_null(value); }

/* ---- model ---- */

static int add_merge(sd_vocab *vocab, const json_t *merge, sd_error *err)
{
    const json_t *left = json_array_get(merge, 0), *right = json_array_get(merge, 1);
    if (json_array_size(merge) == 2 && json_is_string(left) && json_is_string(right)) {
        return sd_vocab_add_merge(vocab, json_string_value(left), json_string_length(left), json_string_value(right),
                                  json_string_length(right), err);
    }
    const char *text = json_string_value(merge);
    const char *space = text ? strchr(text, ' ') : NULL;
    if (!space || strchr(space + 1, ' ')) {
        return sd_fail(err, SD_ERR_FORMAT, "expected \"left right\" or [\"left\", \"right\"], found %s %.*s",
                       sd_json_type_name(merge), text ? sd_token_shown(text, strlen(text)) : 0, text ? text : "");
    }
    return sd_vocab_add_merge(vocab, text, (size_t)(space - text), space + 1, strlen(space + 1), err);
}

static int add_merges(sd_vocab *vocab, const json_t *merges, sd_error *err)
{
    if (!json_is_array(merges)) {
        return sd_fail(err, SD_ERR_FORMAT, "model.merges: expected an array, found %s", sd_json_type_name(merges));
    }
    for (size_t i = 0; i < json_array_size(merges); i++) {
        int rc = add_merge(vocab, json_array_get(merges, i), err);
        if (rc != SD_OK) {
            return sd_fail_prefix(err, rc, "model.merges[%zu]", i);
        }
    }
    return SD_OK;
}

/* Settings of the model that change ids when they are on. unk_token and fuse_unk cannot: every byte has a token. */
static int check_model_settings(const json_t *model, sd_error *err)
{
    static const char *const flags[] = {"byte_fallback", "ignore_merges"};
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (size_t i = 0; i < 2; i++) {
        bool on = false;
        const char *affix = "";
        int rc = sd_json_get_bool(model, flags[i], false, &on, err);
        if (rc == SD_OK) {
            rc = sd_json_get_string(model, affixes[i], false, &affix, err);
        }
        if (rc != SD_OK) {
            return sd_fail_prefix(err, rc, "model");
        }
        if (on) {
            return sd_fail(err, SD_ERR_UNSUPPORTED, "model.%s is true; only byte-level BPE without it is supported",
                           flags[i]);
        }
        if (affix[0]) {
            return sd_fail(err, SD_ERR_UNSUPPORTED, "model.%s is \"%.*s\"; byte-level BPE has none", affixes[i],
                           sd_token_shown(affix, strlen(affix)), affix);
        }
    }
    double dropout = 0;
    int rc = sd_json_get_number(model, "dropout", false, &dropout, err);
    if (rc != SD_OK) {
        return sd_fail_prefix(err, rc, "model");
    }
    if (dropout != 0) {
        return sd_fail(err, SD_ERR_UNSUPPORTED, "model.dropout is %g, which makes ids random; set it to null", dropout);
    }
    return SD_OK;
}

int sd_load_hf_model(sd_tokenizer *tok, const json_t *root, sd_error *err)
{
    const json_t *model = json_object_get(root, "model");
    /* files of 2020 have no type, and are BPE if they have merges */
    bool old = json_is_object(model) && !json_object_get(model, "type") && json_object_get(model, "merges");
    if (!old && strcmp(type_of(model), "BPE") != 0) {
        return sd_fail(err, SD_ERR_UNSUPPORTED, "model: found %s; only BPE is supported", type_of(model));
    }
    int rc = check_model_settings(model, err);
    if (rc == SD_OK) {
        rc = sd_load_vocab(tok, json_object_get(model, "vocab"), err);
        if (rc != SD_OK) {
            return sd_fail_prefix(err, rc, "model.vocab");
        }
        rc = add_merges(&tok->vocab, json_object_get(model, "merges"), err);
    }
    return rc;
}

/* ---- pre-tokenizer ---- */

/* A Split that does what ByteLevel's own pattern does. */
static int check_split(const json_t *split, sd_error *err)
{
    const char *pattern = json_string_value(json_object_get(json_object_get(split, "pattern"), "Regex"));
    pattern = pattern ? pattern : "(not a Regex)";
    const char *behavior = json_string_value(json_object_get(split, "behavior"));
    if (strcmp(pattern, sd_pattern_gpt2) != 0) {
        return sd_fail(err, SD_ERR_UNSUPPORTED,
                       "pre_tokenizer: found Split with the pattern \"%.*s\"; the only one supported is GPT-2's, "
                       "\"%s\"",
                       sd_token_shown(pattern, strlen(pattern)), pattern, sd_pattern_gpt2);
    }
    if (!behavior || strcmp(behavior, "Isolated") != 0 || json_is_true(json_object_get(split, "invert"))) {
        return sd_fail(err, SD_ERR_UNSUPPORTED,
                       "pre_tokenizer: found Split with behavior %s%s; expected Isolated and invert false",
                       behavior ? behavior : "unset",
                       json_is_true(json_object_get(split, "invert")) ? " and invert true" : "");
    }
    return SD_OK;
}

static int read_byte_level(sd_tokenizer *tok, const json_t *part, bool after_split, bool *use_pattern, sd_error *err)
{
    bool use_regex = true, prefix_space = true; /* the reference's defaults */
    int rc = sd_json_get_bool(part, "use_regex", false, &use_regex, err);
    if (rc == SD_OK) {
        rc = sd_json_get_bool(part, "add_prefix_space", false, &prefix_space, err);
    }
    if (rc != SD_OK) {
        return sd_fail_prefix(err, rc, "pre_tokenizer");
    }
    if (after_split && (use_regex || prefix_space)) {
        return sd_fail(err, SD_ERR_UNSUPPORTED,
                       "pre_tokenizer: found Split and then ByteLevel with %s true; expected false",
                       use_regex ? "use_regex" : "add_prefix_space");
    }
    tok->prefix_space = prefix_space;
    *use_pattern = use_regex || after_split;
    return SD_OK;
}

/* ByteLevel, [ByteLevel] or [Split by GPT-2's pattern, ByteLevel]. */
static int read_pre_tokenizer(sd_tokenizer *tok, const json_t *part, bool *use_pattern, sd_error *err)
{
    const json_t *list = json_object_get(part, "pretokenizers");
    bool after_split = false;
    if (strcmp(type_of(part), "Sequence") == 0) {
        size_t n = json_array_size(list);
        if (n == 2 && strcmp(type_of(json_array_get(list, 0)), "Split") == 0) {
            int rc = check_split(json_array_get(list, 0), err);
            if (rc != SD_OK) {
                return rc;
            }
            after_split = true;
        } else if (n != 1) {
            return sd_fail(err, SD_ERR_UNSUPPORTED,
                           "pre_tokenizer: found a Sequence of %zu that begins with %s; expected ByteLevel alone, or "
                           "behind "
                           "a Split by GPT-2's pattern",
                           n, type_of(json_array_get(list, 0)));
        }
        part = json_array_get(list, n - 1);
    }
    if (strcmp(type_of(part), "ByteLevel") != 0) {
        return sd_fail(err, SD_ERR_UNSUPPORTED, "pre_tokenizer: found %s; only ByteLevel, GPT-2's, is supported",
                       type_of(part));
    }
    return read_byte_level(tok, part, after_split, use_pattern, err);
}

/* ---- post-processor ---- */

/* The one id of a special token in a template. */
static int template_id(const sd_tokenizer *tok, const json_t *part, const char *name, int32_t *id, sd_error *err)
{
    const json_t *ids = json_object_get(json_object_get(json_object_get(part, "special_tokens"), name), "ids");
    int64_t value;
    if (json_array_size(ids) != 1 || !sd_json_as_int(json_array_get(ids, 0), &value) ||
        !sd_vocab_has(&tok->vocab, value)) {
        return sd_fail(err, SD_ERR_FORMAT,
                       "post_processor: special_tokens[\"%.*s\"].ids: expected an array of one id of the vocabulary",
                       sd_token_shown(name, strlen(name)), name);
    }
    *id = (int32_t)value;
    return SD_OK;
}

/* {"SpecialToken": {"id": name}}: its name; NULL for anything else. */
static const char *special_name(const json_t *item)
{
    return json_string_value(json_object_get(json_object_get(item, "SpecialToken"), "id"));
}

static int read_template(sd_tokenizer *tok, const json_t *part, sd_error *err)
{
    const json_t *single = json_object_get(part, "single");
    size_t n = json_array_size(single);
    const char *bos = special_name(json_array_get(single, 0));
    if (n != (bos ? 2u : 1u) || !json_object_get(json_array_get(single, n - 1), "Sequence")) {
        return sd_fail(err, SD_ERR_UNSUPPORTED,
                       "post_processor: TemplateProcessing whose \"single\" has %zu parts; expected the "
                       "text alone, or one special token and then the text",
                       n);
    }
    if (!bos) {
        return SD_OK;
    }
    tok->adds_bos = true;
    return template_id(tok, part, bos, &tok->bos, err);
}

static int read_post_processor(sd_tokenizer *tok, const json_t *part, sd_error *err)
{
    if (is_absent(part) || strcmp(type_of(part), "ByteLevel") == 0) { /* ByteLevel only moves offsets */
        return SD_OK;
    }
    if (strcmp(type_of(part), "TemplateProcessing") == 0) {
        return read_template(tok, part, err);
    }
    if (strcmp(type_of(part), "Sequence") != 0) {
        return sd_fail(err, SD_ERR_UNSUPPORTED,
                       "post_processor: found %s; expected null, ByteLevel or TemplateProcessing", type_of(part));
    }
    const json_t *list = json_object_get(part, "processors");
    int templates = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        bool is_template = strcmp(type_of(item), "TemplateProcessing") == 0;
        templates += is_template;
        if ((!is_template && strcmp(type_of(item), "ByteLevel") != 0) || templates > 1) {
            return sd_fail(err, SD_ERR_UNSUPPORTED,
                           "post_processor: found a Sequence with %s as part %zu; expected ByteLevel and at most one "
                           "TemplateProcessing",
                           type_of(item), i);
        }
        int rc = is_template ? read_template(tok, item, err) : SD_OK;
        if (rc != SD_OK) {
            return rc;
        }
    }
    return SD_OK;
}

/* ---- the whole ---- */

static int read_added_tokens(sd_tokenizer *tok, const json_t *list, sd_error *err)
{
    if (!is_absent(list) && !json_is_array(list)) {
        return sd_fail(err, SD_ERR_FORMAT, "added_tokens: expected an array, found %s", sd_json_type_name(list));
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        sd_added_spec spec;
        int rc = sd_load_added_spec(&spec, item, false, err);
        if (rc == SD_OK) {
            rc = sd_json_get_int(item, "id", true, 0, SD_VOCAB_MAX_ID, &spec.id, err);
        }
        if (rc == SD_OK) {
            rc = sd_load_added(tok, &spec, NULL, err);
        }
        if (rc != SD_OK) {
            return sd_fail_prefix(err, rc, "added_tokens[%zu]", i);
        }
    }
    return SD_OK;
}

int sd_load_hf_pipeline(sd_tokenizer *tok, const json_t *root, sd_error *err)
{
    const json_t *normalizer = json_object_get(root, "normalizer"), *decoder = json_object_get(root, "decoder");
    if (!is_absent(normalizer)) {
        return sd_fail(err, SD_ERR_UNSUPPORTED, "normalizer: found %s; expected null, as GPT-2 has it",
                       type_of(normalizer));
    }
    if (strcmp(type_of(decoder), "ByteLevel") != 0) {
        return sd_fail(err, SD_ERR_UNSUPPORTED, "decoder: found %s; only ByteLevel is supported", type_of(decoder));
    }
    bool use_pattern = true;
    int rc = read_pre_tokenizer(tok, json_object_get(root, "pre_tokenizer"), &use_pattern, err);
    if (rc == SD_OK && !use_pattern) {
        sd_pattern_free(tok->pattern);
        tok->pattern = NULL;
    }
    if (rc == SD_OK) {
        rc = read_added_tokens(tok, json_object_get(root, "added_tokens"), err);
    }
    return rc == SD_OK ? read_post_processor(tok, json_object_get(root, "post_processor"), err) : rc;
}
