/* SPDX-License-Identifier: MIT
 *
 * Files of rows to pairs of texts. */
#include "src/train/data.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "src/base/csv.h"
#include "src/base/error.h"
#include "src/base/file.h"
#include "src/base/json.h"
#include "src/base/template.h"
#include "src/base/utf8.h"

typedef struct sd_reader {
    const sd_data_source *source;
    sd_text_pair_fn pair;
    void *user;
    size_t rows;
    sd_buf prompt; /* of the row at hand */
    sd_error *err;
} sd_reader;

static bool full(const sd_reader *r) { return r->source->limit > 0 && r->rows >= r->source->limit; }

static int check_text(const sd_reader *r, const char *what, const char *text, size_t len)
{
    if (len == 0) {
        return sd_fail(r->err, SD_ERR_ARG, "the %s is empty", what);
    }
    return sd_utf8_valid(text, len) ? SD_OK : sd_fail(r->err, SD_ERR_ARG, "the %s is not valid UTF-8", what);
}

/* The prompt at hand with one of its responses. */
static int give(sd_reader *r, const char *response, size_t len, long line)
{
    if (r->prompt.failed) {
        return sd_fail_memory(r->err, r->prompt.len, "a prompt");
    }
    int rc = check_text(r, "prompt", r->prompt.data, r->prompt.len);
    rc = rc == SD_OK ? check_text(r, "response", response, len) : rc;
    return rc == SD_OK ? r->pair(r->user, &(sd_text_pair){r->prompt.data, response, r->prompt.len, len, line}, r->err)
                       : rc;
}

/* ---- CSV ---- */

static int give_record(sd_reader *r, sd_table *table)
{
    size_t len = 0;
    const char *name = r->source->response;
    sd_buf_clear(&r->prompt);
    int rc = sd_template_fill(r->source->prompt_template, sd_table_field, table, table->names, &r->prompt, r->err);
    if (rc != SD_OK) {
        return rc;
    }
    const char *response = sd_table_field(table, name, strlen(name), &len);
    if (!response) {
        return sd_fail(r->err, SD_ERR_ARG, "there is no column \"%s\" for the response, only %s; --response names it",
                       name, table->names);
    }
    if (table->twice) {
        return sd_fail(r->err, SD_ERR_FORMAT, "the header has column \"%s\" twice, and it is asked for", table->twice);
    }
    return give(r, response, len, table->csv.began);
}

static int read_csv(sd_reader *r, const char *data, size_t len)
{
    if (!r->source->prompt_template) {
        return sd_fail(r->err, SD_ERR_ARG, "CSV needs a --template that builds the prompt from its columns, such as "
                                           "\"{question}\", or a model that carries one in skipdecode.json");
    }
    sd_table table = {.csv = {.data = data, .len = len, .line = 1}};
    int rc = sd_table_read_header(&table, r->err);
    while (rc == SD_OK && !full(r)) {
        rc = sd_table_next(&table, r->err); /* its messages name the line */
        if (rc <= 0) {
            break;
        }
        rc = give_record(r, &table);
        if (rc != SD_OK) {
            (void)sd_fail_prefix(r->err, rc, "line %ld", table.csv.began);
        }
        r->rows++;
    }
    sd_table_clear(&table);
    return rc;
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
        if (used < size) {
            int n = snprintf(text + used, size - used, "%s\"%s\"", used ? ", " : "", key);
            used += n > 0 ? (size_t)n : 0;
        }
    }
}

static int fill_from_object(sd_reader *r, json_t *object)
{
    const json_t *given = json_object_get(object, "prompt");
    sd_buf_clear(&r->prompt);
    if (json_is_string(given)) {
        sd_buf_add(&r->prompt, json_string_value(given), json_string_length(given));
        return SD_OK;
    }
    if (given || !r->source->prompt_template) {
        return sd_fail(r->err, SD_ERR_FORMAT, "key \"prompt\": expected a string, found %s%s", sd_json_type_name(given),
                       given ? "" : "; a --template builds prompts from other keys");
    }
    char keys[256];
    list_keys(object, keys, sizeof keys);
    return sd_template_fill(r->source->prompt_template, json_field, object, keys, &r->prompt, r->err);
}

static int give_object(sd_reader *r, json_t *object, long line)
{
    if (!json_is_object(object)) {
        return sd_fail(r->err, SD_ERR_FORMAT, "expected a JSON object, found %s", sd_json_type_name(object));
    }
    int rc = fill_from_object(r, object);
    const char *name = r->source->response;
    const json_t *found = json_object_get(object, name);
    if (rc == SD_OK && !json_is_string(found) && (!json_is_array(found) || json_array_size(found) == 0)) {
        char keys[256];
        list_keys(object, keys, sizeof keys);
        rc = sd_fail(r->err, SD_ERR_FORMAT,
                     "key \"%s\": expected the response, a string or a list of them, found %s; the "
                     "row has %s (--response names the key)",
                     name, json_is_array(found) ? "an empty list" : sd_json_type_name(found), keys);
    }
    if (rc == SD_OK && json_is_string(found)) {
        return give(r, json_string_value(found), json_string_length(found), line);
    }
    for (size_t i = 0; rc == SD_OK && i < json_array_size(found); i++) {
        const json_t *item = json_array_get(found, i);
        rc = json_is_string(item)
                 ? give(r, json_string_value(item), json_string_length(item), line)
                 : sd_fail(r->err, SD_ERR_FORMAT, "key \"%s\": item %zu: expected a string, found %s", name, i + 1,
                           sd_json_type_name(item));
    }
    return rc;
}

/* The line that begins at `at`, [*n] bytes without its end; *next: where the one after it begins. */
static const char *line_at(const char *data, size_t len, size_t at, size_t *n, size_t *next)
{
    const char *newline = memchr(data + at, '\n', len - at);
    *n = newline ? (size_t)(newline - data) - at : len - at;
    *next = at + *n + 1;
    *n -= *n > 0 && data[at + *n - 1] == '\r';
    return data + at;
}

static int read_jsonl(sd_reader *r, const char *data, size_t len)
{
    int rc = SD_OK;
    long number = 1;
    for (size_t at = 0, n; rc == SD_OK && at < len && !full(r); number++) {
        const char *line = line_at(data, len, at, &n, &at);
        size_t blank = 0;
        while (blank < n && (line[blank] == ' ' || line[blank] == '\t')) {
            blank++;
        }
        if (blank == n) {
            continue;
        }
        json_error_t je;
        json_t *object = json_loadb(line, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &je);
        rc = object ? give_object(r, object, number)
                    : sd_fail(r->err, SD_ERR_FORMAT, "not valid JSON at byte %d: %s", je.position, je.text);
        json_decref(object);
        r->rows++;
        if (rc != SD_OK) {
            (void)sd_fail_prefix(r->err, rc, "line %ld", number);
        }
    }
    return rc;
}

/* ---- pairs of lines ---- */

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

static int give_lines(sd_reader *r, sd_slice prompt, sd_slice response, long line)
{
    sd_buf_clear(&r->prompt);
    int rc = SD_OK;
    if (r->source->prompt_template && prompt.len > 0) {
        rc = sd_template_fill(r->source->prompt_template, only_field, &prompt, "", &r->prompt, r->err);
    } else {
        sd_buf_add(&r->prompt, prompt.text, prompt.len);
    }
    return rc == SD_OK ? give(r, response.text, response.len, line) : rc;
}

/* Both files must have the same number of lines: one line too many, and every pair after it is a false one. */
static int read_lines(sd_reader *r, const char *data, size_t len, const char *responses, size_t n_responses)
{
    const char *template = r->source->prompt_template;
    int fields = template ? sd_template_fields(template, r->err) : 1, rc = fields < 0 ? fields : SD_OK;
    if (rc == SD_OK && fields != 1) {
        rc = sd_fail(r->err, SD_ERR_ARG, "template \"%s\" has %d fields; lines of text fill exactly one", template,
                     fields);
    }
    long number = 1;
    size_t at = 0, other = 0;
    for (; rc == SD_OK && at < len && other < n_responses && !full(r); number++) {
        sd_slice prompt, response;
        prompt.text = line_at(data, len, at, &prompt.len, &at);
        response.text = line_at(responses, n_responses, other, &response.len, &other);
        rc = give_lines(r, prompt, response, number);
        r->rows++;
        if (rc != SD_OK) {
            (void)sd_fail_prefix(r->err, rc, "line %ld", number);
        }
    }
    if (rc == SD_OK && !full(r) && at < len) {
        rc = sd_fail(r->err, SD_ERR_FORMAT, "goes on after line %ld, where %s ends; expected a response a line",
                     number - 1, r->source->responses);
    } else if (rc == SD_OK && !full(r) && other < n_responses) {
        rc = sd_fail(r->err, SD_ERR_FORMAT, "ends after line %ld, and %s goes on; expected a response a line",
                     number - 1, r->source->responses);
    }
    return rc;
}

/* ---- files ---- */

static bool ends_with(const char *text, const char *end)
{
    const size_t a = strlen(text), b = strlen(end);
    return a >= b && strcmp(text + a - b, end) == 0;
}

/* A byte order mark is no text. */
static sd_slice content(const sd_file *file)
{
    static const char mark[] = "\xEF\xBB\xBF";
    const size_t skip = file->size >= 3 && memcmp(file->data, mark, 3) == 0 ? 3 : 0;
    return (sd_slice){(const char *)file->data + skip, file->size - skip};
}

static int read_one(sd_reader *r, sd_slice text)
{
    const sd_data_source *s = r->source;
    if (s->responses) {
        sd_file file;
        int rc = sd_file_open(&file, s->responses, false, r->err);
        if (rc != SD_OK) {
            return rc;
        }
        const sd_slice responses = content(&file);
        rc = read_lines(r, text.text, text.len, responses.text, responses.len);
        sd_file_close(&file);
        return rc == SD_OK ? rc : sd_fail_prefix(r->err, rc, "%s", s->path);
    }
    int rc;
    if (ends_with(s->path, ".csv")) {
        rc = read_csv(r, text.text, text.len);
    } else if (ends_with(s->path, ".jsonl") || ends_with(s->path, ".ndjson")) {
        rc = read_jsonl(r, text.text, text.len);
    } else {
        rc = sd_fail(r->err, SD_ERR_ARG,
                     "lines of text, by its name, which is neither .csv nor .jsonl; their responses "
                     "are in a file of their own: add --data-responses FILE (--dev-responses for --dev)");
    }
    return rc == SD_OK ? rc : sd_fail_prefix(r->err, rc, "%s", s->path);
}

int sd_data_read(const sd_data_source *source, sd_text_pair_fn pair, void *user, sd_error *err)
{
    sd_reader r = {.source = source, .pair = pair, .user = user, .err = err};
    sd_file file;
    int rc = sd_file_open(&file, source->path, false, err);
    if (rc != SD_OK) {
        return rc;
    }
    rc = read_one(&r, content(&file));
    if (rc == SD_OK && r.rows == 0) {
        rc = sd_fail(err, SD_ERR_ARG, "%s: no rows", source->path);
    }
    sd_buf_free(&r.prompt);
    sd_file_close(&file);
    return rc;
}
