/* SPDX-License-Identifier: MIT
 *
 * Loading in parts, for this room only: load.c finds the files and decides, load_gpt2.c reads vocab.json and
 * merges.txt, load_hf.c reads tokenizer.json. Messages name the key or line; the caller prefixes the file. */
#ifndef SD_TOKENIZER_LOAD_H
#define SD_TOKENIZER_LOAD_H

#include "src/base/json.h"
#include "src/tokenizer/internal.h"

/* vocab: the object {token: id}. All 256 bytes must be among the tokens. */
int sd_load_vocab(sd_tokenizer *tok, const json_t *vocab, sd_error *err);

/* text: merges.txt, [len] bytes; `name` is prefixed with the line. */
int sd_load_merges_text(sd_tokenizer *tok, const char *text, size_t len, const char *name, sd_error *err);

/* root: a whole tokenizer.json. _model reads its vocabulary and merges. _pipeline checks that everything else is as
 * GPT-2 has it, and takes the added tokens, the prefix space and a BOS of the post-processor. */
int sd_load_hf_model(sd_tokenizer *tok, const json_t *root, sd_error *err);
int sd_load_hf_pipeline(sd_tokenizer *tok, const json_t *root, sd_error *err);

/* An added token as files describe it. */
typedef struct sd_added_spec {
    const char *content; /* borrowed, [len] */
    size_t len;
    int64_t id; /* -1: the vocabulary must have it */
    bool special, normalized, lstrip, rstrip;
} sd_added_spec;

/* Reads content and flags of an AddedToken object; the id stays -1. */
int sd_load_added_spec(sd_added_spec *spec, const json_t *object, bool special_default, sd_error *err);

/* Makes it an added token, in the vocabulary first if it has an id of its own. *id (may be NULL): its id. Saying it
 * twice changes nothing, except that what one file calls special is. */
int sd_load_added(sd_tokenizer *tok, const sd_added_spec *spec, int32_t *id, sd_error *err);

#endif
