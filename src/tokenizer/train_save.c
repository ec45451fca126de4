/* SPDX-License-Identifier: MIT
 *
 * A learned vocabulary as the files of a Hugging Face directory. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/error.h"
#include "src/base/file.h"
#include "src/tokenizer/train_parts.h"
#include "src/tokenizer/vocab.h"

/* Appends a token as files write it. */
static void add_token(const sd_bpe_trainer *t, size_t id, sd_buf *out)
{
    size_t len;
    const char *bytes = sd_bpe_token(t, id, &len);
    if (id < SD_N_SPECIALS) {
        sd_buf_add(out, bytes, len);
    } else {
        sd_vocab_write_bytes(out, bytes, len);
    }
}

static json_t *make_vocab(const sd_bpe_trainer *t)
{
    json_t *vocab = json_object();
    sd_buf token = {0};
    bool ok = vocab != NULL;
    for (size_t id = 0; ok && id < t->tokens.n; id++) {
        sd_buf_clear(&token);
        add_token(t, id, &token);
        ok = !token.failed && json_object_set_new(vocab, token.data, json_integer((json_int_t)id)) == 0;
    }
    sd_buf_free(&token);
    if (!ok) {
        json_decref(vocab);
    }
    return ok ? vocab : NULL;
}

static json_t *make_merges(const sd_bpe_trainer *t)
{
    json_t *merges = json_array();
    sd_buf left = {0}, right = {0};
    bool ok = merges != NULL;
    for (size_t i = 0; ok && i < t->n_merges; i++) {
        sd_buf_clear(&left);
        sd_buf_clear(&right);
        add_token(t, (size_t)t->merges[i].left, &left);
        add_token(t, (size_t)t->merges[i].right, &right);
        ok = !left.failed && !right.failed &&
             json_array_append_new(merges, json_pack("[s,s]", left.data, right.data)) == 0;
    }
    sd_buf_free(&left);
    sd_buf_free(&right);
    if (!ok) {
        json_decref(merges);
    }
    return ok ? merges : NULL;
}

static json_t *make_added(void)
{
    json_t *added = json_array();
    for (int i = 0; i < SD_N_SPECIALS; i++) {
        json_t *token = json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id", i, "content", sd_special_tokens[i],
                                  "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized", 0, "special", 1);
        if (json_array_append_new(added, token) != 0) {
            json_decref(added);
            return NULL;
        }
    }
    return added;
}

static json_t *byte_level(void)
{
    return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 1, "use_regex",
                     1);
}

/* BOS in front of a text, as OPT has it. */
static json_t *make_post_processor(void)
{
    const char *end = sd_special_tokens[SD_SPECIAL_END];
    return json_pack("{s:s, s:[{s:{s:s, s:i}}, {s:{s:s, s:i}}], s:[{s:{s:s, s:i}}, {s:{s:s, s:i}}], "
                     "s:{s:{s:s, s:[i], s:[s]}}}",
                     "type", "TemplateProcessing", "single", "SpecialToken", "id", end, "type_id", 0, "Sequence", "id",
                     "A", "type_id", 0, "pair", "Sequence", "id", "A", "type_id", 0, "Sequence", "id", "B", "type_id",
                     1, "special_tokens", end, "id", end, "ids", SD_SPECIAL_END, "tokens", end);
}

static json_t *make_tokenizer(const sd_bpe_trainer *t)
{
    json_t *model = json_pack("{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:o, s:o}", "type", "BPE", "dropout",
                              "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0,
                              "byte_fallback", 0, "ignore_merges", 0, "vocab", make_vocab(t), "merges", make_merges(t));
    return json_pack("{s:s, s:n, s:n, s:o, s:n, s:o, s:o, s:o, s:o}", "version", "1.0", "truncation", "padding",
                     "added_tokens", make_added(), "normalizer", "pre_tokenizer", byte_level(), "post_processor",
                     make_post_processor(), "decoder", byte_level(), "model", model);
}

static json_t *make_config(void)
{
    const char *end = sd_special_tokens[SD_SPECIAL_END];
    return json_pack("{s:b, s:b, s:s, s:b, s:s, s:s, s:s, s:s, s:s}", "add_bos_token", 1, "add_prefix_space", 0,
                     "bos_token", end, "clean_up_tokenization_spaces", 0, "eos_token", end, "errors", "replace",
                     "pad_token", sd_special_tokens[SD_SPECIAL_PAD], "tokenizer_class", "GPT2Tokenizer", "unk_token",
                     sd_special_tokens[SD_SPECIAL_UNKNOWN]);
}

/* ---- files ---- */

static int write_file(const char *dir, const char *name, const char *text, size_t len, sd_error *err)
{
    char *path = sd_path_join(dir, name);
    if (!path) {
        return sd_fail_memory(err, strlen(dir) + strlen(name) + 2, "a file name");
    }
    sd_atomic_file file;
    int rc = sd_atomic_open(&file, path, err);
    if (rc == SD_OK) {
        (void)fwrite(text, 1, len, file.stream); /* errors stay in the stream and come out at commit */
        rc = sd_atomic_commit(&file, err);
    }
    sd_free(path);
    return rc;
}

/* Releases the object. NULL, from a json_pack that failed, is an error. */
static int write_json(const char *dir, const char *name, json_t *object, sd_error *err)
{
    char *text = object ? json_dumps(object, JSON_INDENT(2)) : NULL;
    json_decref(object);
    if (!text) {
        return sd_fail_memory(err, 1 << 20, "a tokenizer's file");
    }
    int rc = write_file(dir, name, text, strlen(text), err);
    free(text);
    return rc;
}

static int write_merges(const sd_bpe_trainer *t, const char *dir, sd_error *err)
{
    sd_buf text = {0};
    sd_buf_add_str(&text, "#version: 0.2\n");
    for (size_t i = 0; i < t->n_merges; i++) {
        add_token(t, (size_t)t->merges[i].left, &text);
        sd_buf_add_str(&text, " ");
        add_token(t, (size_t)t->merges[i].right, &text);
        sd_buf_add_str(&text, "\n");
    }
    int rc = text.failed ? sd_fail_memory(err, text.cap, "a tokenizer's file")
                         : write_file(dir, "merges.txt", text.data, text.len, err);
    sd_buf_free(&text);
    return rc;
}

int sd_bpe_trainer_save(const sd_bpe_trainer *t, const char *dir, sd_error *err)
{
    int rc = write_json(dir, "vocab.json", make_vocab(t), err);
    rc = rc == SD_OK ? write_merges(t, dir, err) : rc;
    rc = rc == SD_OK ? write_json(dir, "tokenizer_config.json", make_config(), err) : rc;
    return rc == SD_OK ? write_json(dir, "tokenizer.json", make_tokenizer(t), err) : rc;
}
