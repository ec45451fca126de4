/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "src/base/alloc.h"
#include "src/base/error.h"

typedef struct sd_tokenize {
    sd_tokenizer *tok;
    unsigned flags;
    int32_t *ids; /* grows to the longest text */
    size_t cap;
    char *text;
    size_t text_cap;
} sd_tokenize;

static int encode(sd_tokenize *t, const char *text, size_t len, size_t *n, sd_error *err)
{
    int rc = sd_tokenizer_encode(t->tok, text, len, t->flags, t->ids, t->cap, n, err);
    if (rc == SD_ERR_LIMIT) {
        sd_free(t->ids);
        t->cap = *n;
        t->ids = sd_malloc(t->cap, sizeof *t->ids);
        if (!t->ids) {
            t->cap = 0;
            return sd_fail_memory(err, *n * sizeof *t->ids, "token ids");
        }
        rc = sd_tokenizer_encode(t->tok, text, len, t->flags, t->ids, t->cap, n, err);
    }
    return rc;
}

static int decode(sd_tokenize *t, size_t n, size_t *len, sd_error *err)
{
    int rc = sd_tokenizer_decode(t->tok, t->ids, n, t->text, t->text_cap, len, err);
    if (rc == SD_ERR_LIMIT) {
        sd_free(t->text);
        t->text_cap = *len + 1;
        t->text = sd_malloc(t->text_cap, 1);
        if (!t->text) {
            t->text_cap = 0;
            return sd_fail_memory(err, *len + 1, "decoded text");
        }
        rc = sd_tokenizer_decode(t->tok, t->ids, n, t->text, t->text_cap, len, err);
    }
    return rc;
}

/* One line {"ids": [...], "text": "decoded"}. */
static int tokenize(sd_tokenize *t, const char *text, size_t len, sd_error *err)
{
    size_t n, decoded;
    int rc = encode(t, text, len, &n, err);
    if (rc == SD_OK) {
        rc = decode(t, n, &decoded, err);
    }
    if (rc != SD_OK) {
        return rc;
    }
    json_t *string = json_stringn(t->text, decoded);
    if (!string) {
        return sd_fail_memory(err, decoded, "a JSON string");
    }
    printf("{\"ids\":[");
    for (size_t i = 0; i < n; i++) {
        printf("%s%d", i ? "," : "", t->ids[i]);
    }
    printf("],\"text\":");
    json_dumpf(string, stdout, JSON_ENCODE_ANY);
    printf("}\n");
    json_decref(string);
    return SD_OK;
}

static int tokenize_line(sd_tokenize *t, const char *line, size_t len, sd_error *err)
{
    if (strspn(line, " \t\r\n") == len) {
        return SD_OK;
    }
    json_error_t je;
    json_t *o = json_loadb(line, len, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &je);
    json_t *text = json_object_get(o, "text");
    int rc = json_is_string(text) ? tokenize(t, json_string_value(text), json_string_length(text), err)
                                  : sd_fail(err, SD_ERR_FORMAT, "%s; expected an object with a string \"text\"",
                                            o ? "no string \"text\"" : je.text);
    json_decref(o);
    return rc;
}

static int tokenize_lines(sd_tokenize *t, const char *path, sd_error *err)
{
    bool is_stdin = strcmp(path, "-") == 0;
    const char *name = is_stdin ? "standard input" : path;
    FILE *in = is_stdin ? stdin : fopen(path, "rbe");
    if (!in) {
        return sd_fail_errno(err, "%s: cannot open", name);
    }
    char *line = NULL;
    size_t cap = 0;
    int rc = SD_OK;
    for (long number = 1; rc == SD_OK && !ferror(stdout); number++) { /* a closed pipe ends an endless input */
        ssize_t n = getline(&line, &cap, in);
        if (n < 0) {
            rc = ferror(in) ? sd_fail_errno(err, "%s: cannot read", name) : SD_OK;
            break;
        }
        rc = tokenize_line(t, line, (size_t)n, err);
        if (rc != SD_OK) {
            (void)sd_fail_prefix(err, rc, "%s: line %ld", name, number);
        }
    }
    free(line);
    if (!is_stdin) {
        fclose(in);
    }
    return rc;
}

int sd_verb_tokenize(int argc, char **argv)
{
    const char *dir, *input = NULL, *text = NULL;
    bool bos = false, specials = false;
    const sd_option options[] = {
        {"text", "TEXT", SD_OPTION_STRING, &text, "one text"},
        {"input", "FILE", SD_OPTION_STRING, &input, "JSON lines with a \"text\" each; - is standard input"},
        {"bos", NULL, SD_OPTION_FLAG, &bos, "put the beginning-of-sequence token in front, if the model has one"},
        {"specials", NULL, SD_OPTION_FLAG, &specials, "read text such as </s> as the special token"},
    };
    int code = sd_options_read("tokenize", options, sizeof options / sizeof *options, argc, argv, &dir, 1);
    if (code >= 0) {
        return code;
    }
    if (!input == !text) {
        return sd_cli_usage("tokenize", "expected either --text or --input");
    }
    sd_error err = {0};
    sd_tokenize t = {.flags = (bos ? SD_ENCODE_BOS : 0u) | (specials ? SD_ENCODE_SPECIALS : 0u)};
    int rc = sd_tokenizer_load(&t.tok, dir, &err);
    if (rc == SD_OK) {
        rc = text ? tokenize(&t, text, strlen(text), &err) : tokenize_lines(&t, input, &err);
    }
    code = rc == SD_OK ? sd_cli_close_stdout(SD_EXIT_OK) : sd_cli_fail(&err);
    sd_tokenizer_free(t.tok);
    sd_free(t.ids);
    sd_free(t.text);
    return code;
}
