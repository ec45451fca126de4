/* SPDX-License-Identifier: MIT */
#include "cli/input.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/error.h"
#include "src/base/json.h"
#include "src/base/utf8.h"

void sd_input_clear(sd_input *in)
{
    for (size_t i = 0; i < in->n; i++) {
        sd_free(in->rows[i].prompt);
        json_decref(in->rows[i].id);
        json_decref(in->rows[i].settings);
    }
    sd_free(in->rows);
    *in = (sd_input){0};
}

/* Takes over prompt, id and settings, on failure too. */
static int add_row(sd_input *in, sd_buf *prompt, json_t *id, json_t *settings, long line, sd_error *err)
{
    int rc = SD_OK;
    if (in->n == in->cap) {
        size_t cap = in->cap ? 2 * in->cap : 64;
        sd_input_row *rows = sd_realloc(in->rows, cap, sizeof *rows);
        if (rows) {
            in->rows = rows;
            in->cap = cap;
        } else {
            rc = sd_fail_memory(err, cap * sizeof *rows, "the input");
        }
    }
    if (rc == SD_OK && prompt->failed) {
        rc = sd_fail_memory(err, prompt->len, "a prompt");
    }
    if (rc == SD_OK && prompt->len == 0) {
        rc = sd_fail(err, SD_ERR_ARG, "the prompt is empty");
    }
    if (rc == SD_OK && !sd_utf8_valid(prompt->data, prompt->len)) {
        rc = sd_fail(err, SD_ERR_ARG, "the prompt is not valid UTF-8");
    }
    if (rc != SD_OK) {
        sd_buf_free(prompt);
        json_decref(id);
        json_decref(settings);
        return rc;
    }
    in->rows[in->n++] = (sd_input_row){prompt->data, prompt->len, id, settings, line};
    *prompt = (sd_buf){0};
    return SD_OK;
}

typedef struct sd_slice {
    const char *text;
    size_t len;
} sd_slice;

static const char *only_field(void *context, const char *name, size_t name_len, size_t *len)
{
    (void)name;
    (void)name_len;
    const sd_slice *slice = context;
    *len = slice->len;
    return slice->text;
}

static int add_text(sd_input *in, const char *text, size_t len, const char *template, long line, sd_error *err)
{
    sd_buf prompt = {0};
    sd_slice slice = {text, len};
    if (template && len > 0) {
        int rc = sd_template_fill(template, only_field, &slice, "", &prompt, err);
        if (rc != SD_OK) {
            sd_buf_free(&prompt);
            return rc;
        }
    } else {
        sd_buf_add(&prompt, text, len);
    }
    return add_row(in, &prompt, NULL, NULL, line, err);
}

/* A template with one field takes a text; with more it needs a table. */
static int check_text_template(const char *template, sd_error *err)
{
    int fields = template ? sd_template_fields(template, err) : 1;
    if (fields < 0) {
        return fields;
    }
    return fields == 1 ? SD_OK
                       : sd_fail(err, SD_ERR_ARG,
                                 "template \"%s\" has %d fields; plain text fills exactly one: give CSV or "
                                 "JSON lines, or --raw to take the text as the prompt",
                                 template, fields);
}

static int read_text(sd_input *in, const char *data, size_t len, const char *template, size_t limit, sd_error *err)
{
    int rc = check_text_template(template, err);
    long line = 1;
    for (size_t at = 0; rc == SD_OK && at < len && (limit == 0 || in->n < limit); line++) {
        const char *newline = memchr(data + at, '\n', len - at);
        size_t n = newline ? (size_t)(newline - data) - at : len - at;
        size_t text = n > 0 && data[at + n - 1] == '\r' ? n - 1 : n;
        rc = add_text(in, data + at, text, template, line, err);
        at += n + 1;
    }
    return rc == SD_OK ? rc : sd_fail_prefix(err, rc, "line %ld", line - 1);
}

/* ---- JSON lines ---- */

static const char *json_field(void *context, const char *name, size_t name_len, size_t *len)
{
    char key[256];
    if (name_len >= sizeof key) {
        return NULL;
    }
    memcpy(key, name, name_len);
    key[name_len] = '\0';
    const json_t *value = json_object_get(context, key);
    *len = json_string_length(value);
    return json_string_value(value);
}

static void list_keys(const json_t *object, char *text, size_t size)
{
    size_t used = 0;
    const char *key;
    json_t *value;
    text[0] = '\0';
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        if (json_is_string(value) && used < size) {
            int n = snprintf(text + used, size - used, "%s\"%s\"", used ? ", " : "", key);
            used += n > 0 ? (size_t)n : 0;
        }
    }
}

/* Integers stay integers, unlike in the files that src/base/json.h is for: an id is handed on as it came. */
static int parse_json(json_t **out, const char *text, size_t len, sd_error *err)
{
    json_error_t je;
    *out = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &je);
    if (*out) {
        return SD_OK;
    }
    if (json_error_code(&je) == json_error_out_of_memory) {
        return sd_fail_memory(err, len, "a JSON line");
    }
    return sd_fail(err, SD_ERR_FORMAT, "not valid JSON at byte %d: %s", je.position, je.text);
}

static int add_json(sd_input *in, const char *text, size_t len, const char *template, long line, sd_error *err)
{
    json_t *object;
    int rc = parse_json(&object, text, len, err);
    if (rc != SD_OK) {
        return rc;
    }
    sd_buf prompt = {0};
    const json_t *given = json_object_get(object, "prompt");
    if (!json_is_object(object)) {
        rc = sd_fail(err, SD_ERR_FORMAT, "expected a JSON object, found %s", sd_json_type_name(object));
    } else if (json_is_string(given)) {
        sd_buf_add(&prompt, json_string_value(given), json_string_length(given));
    } else if (given || !template) {
        rc = sd_fail(err, SD_ERR_FORMAT, "key \"prompt\": expected a string, found %s%s", sd_json_type_name(given),
                     given ? "" : "; a --template builds prompts from other keys");
    } else {
        char keys[256];
        list_keys(object, keys, sizeof keys);
        rc = sd_template_fill(template, json_field, object, keys, &prompt, err);
    }
    if (rc != SD_OK) {
        sd_buf_free(&prompt);
        json_decref(object);
        return rc;
    }
    return add_row(in, &prompt, json_incref(json_object_get(object, "id")), object, line, err);
}

static bool is_blank(const char *text, size_t n)
{
    size_t i = 0;
    while (i < n && (text[i] == ' ' || text[i] == '\t' || text[i] == '\r')) {
        i++;
    }
    return i == n;
}

static int read_jsonl(sd_input *in, const char *data, size_t len, const char *template, size_t limit, sd_error *err)
{
    int rc = SD_OK;
    long line = 1;
    for (size_t at = 0; rc == SD_OK && at < len && (limit == 0 || in->n < limit); line++) {
        const char *newline = memchr(data + at, '\n', len - at);
        size_t n = newline ? (size_t)(newline - data) - at : len - at;
        if (!is_blank(data + at, n)) {
            rc = add_json(in, data + at, n, template, line, err);
        }
        at += n + 1;
    }
    return rc == SD_OK ? rc : sd_fail_prefix(err, rc, "line %ld", line - 1);
}

/* ---- CSV ---- */

static int read_records(sd_input *in, sd_table *t, const char *template, size_t limit, sd_error *err)
{
    int rc = sd_table_read_header(t, err);
    while (rc == SD_OK && (limit == 0 || in->n < limit)) {
        rc = sd_table_next(t, err);
        if (rc <= 0) {
            return rc;
        }
        const long line = t->csv.began;
        sd_buf prompt = {0};
        rc = sd_template_fill(template, sd_table_field, t, t->names, &prompt, err);
        if (rc == SD_OK && t->twice) {
            rc = sd_fail(err, SD_ERR_FORMAT, "the header has column \"%s\" twice, and the template asks for it",
                         t->twice);
        }
        if (rc != SD_OK) {
            sd_buf_free(&prompt);
            return rc;
        }
        rc = add_row(in, &prompt, NULL, NULL, line, err);
        if (rc != SD_OK) {
            return sd_fail_prefix(err, rc, "line %ld", line);
        }
    }
    return rc;
}

static int read_csv(sd_input *in, const char *data, size_t len, const char *template, size_t limit, sd_error *err)
{
    if (!template) {
        return sd_fail(err, SD_ERR_ARG,
                       "CSV needs a --template that builds the prompt from its columns, such as \"{question}\", or a "
                       "model that carries one in skipdecode.json");
    }
    sd_table t = {.csv = {.data = data, .len = len, .line = 1}};
    int rc = read_records(in, &t, template, limit, err);
    sd_table_clear(&t);
    return rc;
}

/* ---- files ---- */

static bool ends_with(const char *text, const char *end)
{
    size_t a = strlen(text), b = strlen(end);
    return a >= b && strcmp(text + a - b, end) == 0;
}

static int read_stream(sd_buf *out, FILE *stream, sd_error *err)
{
    char block[1 << 16];
    size_t n;
    while (!out->failed && (n = fread(block, 1, sizeof block, stream)) > 0) {
        sd_buf_add(out, block, n);
    }
    if (ferror(stream)) {
        return sd_fail_errno(err, "cannot read");
    }
    return out->failed ? sd_fail_memory(err, out->cap, "the input") : SD_OK;
}

int sd_input_read_all(sd_buf *out, const char *path, sd_error *err)
{
    bool is_stdin = strcmp(path, "-") == 0;
    FILE *stream = is_stdin ? stdin : fopen(path, "rbe");
    if (!stream) {
        return sd_fail_errno(err, "cannot open");
    }
    int rc = read_stream(out, stream, err);
    if (!is_stdin) {
        fclose(stream);
    }
    return rc;
}

static int parse(sd_input *in, const char *data, size_t len, sd_format format, const char *template, size_t limit,
                 sd_error *err)
{
    switch (format) {
    case SD_FORMAT_JSONL: return read_jsonl(in, data, len, template, limit, err);
    case SD_FORMAT_CSV: return read_csv(in, data, len, template, limit, err);
    default: return read_text(in, data, len, template, limit, err);
    }
}

int sd_input_read(sd_input *in, const char *path, sd_format format, const char *template, size_t limit, sd_error *err)
{
    *in = (sd_input){0};
    if (format == SD_FORMAT_AUTO) {
        format = ends_with(path, ".jsonl") || ends_with(path, ".ndjson") ? SD_FORMAT_JSONL
                 : ends_with(path, ".csv") ? SD_FORMAT_CSV : SD_FORMAT_TEXT;
    }
    sd_buf text = {0};
    int rc = sd_input_read_all(&text, path, err);
    if (rc == SD_OK) {
        static const char mark[] = "\xEF\xBB\xBF"; /* a byte order mark is no text */
        size_t skip = text.len >= 3 && memcmp(text.data, mark, 3) == 0 ? 3 : 0;
        rc = parse(in, text.data ? text.data + skip : "", text.len - skip, format, template, limit, err);
    }
    if (rc == SD_OK && in->n == 0) {
        rc = sd_fail(err, SD_ERR_ARG, "no rows");
    }
    if (rc != SD_OK) {
        (void)sd_fail_prefix(err, rc, "%s", strcmp(path, "-") == 0 ? "standard input" : path);
        sd_input_clear(in);
    }
    sd_buf_free(&text);
    return rc;
}

int sd_input_single(sd_input *in, const char *text, const char *template, sd_error *err)
{
    *in = (sd_input){0};
    int rc = check_text_template(template, err);
    if (rc == SD_OK) {
        rc = add_text(in, text, strlen(text), template, 1, err);
    }
    if (rc != SD_OK) {
        sd_input_clear(in);
    }
    return rc;
}
