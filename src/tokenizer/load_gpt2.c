/* SPDX-License-Identifier: MIT
 *
 * GPT-2's two files: vocab.json, an object {token: id}, and merges.txt, one "left right" a line in order of rank. */
#include <string.h>

#include "src/base/utf8.h"
#include "src/tokenizer/load.h"

int sd_load_vocab(sd_tokenizer *tok, const json_t *vocab, sd_error *err)
{
    if (!json_is_object(vocab)) {
        return sd_fail(err, SD_ERR_FORMAT, "the vocabulary: expected an object {token: id}, found %s",
                       sd_json_type_name(vocab));
    }
    const char *token;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)vocab, token, value) {
        int64_t id;
        if (!sd_json_as_int(value, &id)) {
            return sd_fail(err, SD_ERR_FORMAT, "token \"%.*s\": expected an integer id, found %s",
                           sd_token_shown(token, strlen(token)), token,
                           json_is_number(value) ? "a number that is not one" : sd_json_type_name(value));
        }
        int rc = sd_vocab_add(&tok->vocab, id, token, strlen(token), err);
        if (rc != SD_OK) {
            return rc;
        }
    }
    return sd_vocab_index_bytes(&tok->vocab, err);
}

/* Exactly one space, with something on both sides. */
static int add_line(sd_vocab *vocab, const char *line, size_t len, sd_error *err)
{
    const char *space = memchr(line, ' ', len);
    if (!space || memchr(space + 1, ' ', len - (size_t)(space + 1 - line))) {
        return sd_fail(err, SD_ERR_FORMAT, "expected two tokens with one space between them, found \"%.*s\"",
                       sd_token_shown(line, len), line);
    }
    size_t left = (size_t)(space - line);
    return sd_vocab_add_merge(vocab, line, left, space + 1, len - left - 1, err);
}

int sd_load_merges_text(sd_tokenizer *tok, const char *text, size_t len, const char *name, sd_error *err)
{
    static const char version[] = "#version";
    if (!sd_utf8_valid(text, len)) {
        return sd_fail(err, SD_ERR_FORMAT,
                       "%s: not valid UTF-8; expected lines of two tokens in the byte-level alphabet", name);
    }
    while (len > 0 && (text[len - 1] == '\n' || text[len - 1] == '\r')) {
        len--; /* blank lines at the end */
    }
    size_t line_number = 1;
    for (size_t at = 0; at < len; line_number++) {
        const char *line = text + at;
        const char *newline = memchr(line, '\n', len - at);
        size_t n = newline ? (size_t)(newline - line) : len - at;
        at += n + 1;
        if (n > 0 && line[n - 1] == '\r') {
            n--; /* checked out with Windows line ends; no token holds a bare CR */
        }
        if (line_number == 1 && n >= strlen(version) && memcmp(line, version, strlen(version)) == 0) {
            continue;
        }
        int rc = add_line(&tok->vocab, line, n, err);
        if (rc != SD_OK) {
            return sd_fail_prefix(err, rc, "%s: line %zu", name, line_number);
        }
    }
    return SD_OK;
}
