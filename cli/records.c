/* SPDX-License-Identifier: MIT */
#include "cli/records.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/base/error.h"
#include "src/base/json.h"
#include "src/base/utf8.h"

/* ---- text lines ---- */

static const char *only_value(void *context, const char *name, size_t name_len, size_t *len)
{
    (void)name;
    (void)name_len;
    const sd_str *text = context;
    *len = text->len;
    return text->text;
}

static int read_lines(const char *data, size_t len, size_t limit, sd_record_fn fn, void *user, size_t *n, sd_error *err)
{
    int rc = SD_OK;
    for (size_t at = 0; rc == SD_OK && at < len && (limit == 0 || *n < limit);) {
        const char *newline = memchr(data + at, '\n', len - at);
        const size_t whole = newline ? (size_t)(newline - data) - at : len - at;
        sd_str text = {data + at, whole > 0 && data[at + whole - 1] == '\r' ? whole - 1 : whole};
        const sd_record record = {.line = (long)++*n, .text = text, .field = only_value, .context = &text, .names = "",
                                  .lines = true};
        rc = fn(user, &record, err);
        rc = rc == SD_OK ? rc : sd_fail_prefix(err, rc, "line %ld", record.line);
        at += whole + 1;
    }
    return rc;
}

/* ---- JSON lines ---- */

static const char *json_value(void *context, const char *name, size_t name_len, size_t *len)
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

static void list_keys(json_t *object, char *text, size_t size)
{
    size_t used = 0;
    const char *key;
    json_t *value;
    text[0] = '\0';
    json_object_foreach(object, key, value) {
        if (used < size) {
            const int n = snprintf(text + used, size - used, "%s\"%s\"", used ? ", " : "", key);
            used += n > 0 ? (size_t)n : 0;
        }
    }
}

static int read_object(const char *data, size_t len, long line, sd_record_fn fn, void *user, sd_error *err)
{
    json_error_t fault;
    json_t *object = json_loadb(data, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, &fault);
    if (!object) {
        return json_error_code(&fault) == json_error_out_of_memory
                   ? sd_fail_memory(err, len, "a JSON line")
                   : sd_fail(err, SD_ERR_FORMAT, "not valid JSON at column %d: %s", fault.column, fault.text);
    }
    int rc = SD_OK;
    char names[256];
    if (json_is_object(object)) {
        list_keys(object, names, sizeof names);
        const sd_record record = {.line = line, .object = object, .field = json_value, .context = object,
                                  .names = names};
        rc = fn(user, &record, err);
    } else {
        rc = sd_fail(err, SD_ERR_FORMAT, "expected a JSON object, found %s", sd_json_type_name(object));
    }
    json_decref(object);
    return rc;
}

static int read_jsonl(const char *data, size_t len, size_t limit, sd_record_fn fn, void *user, size_t *n, sd_error *err)
{
    int rc = SD_OK;
    long line = 1;
    for (size_t at = 0; rc == SD_OK && at < len && (limit == 0 || *n < limit); line++) {
        const char *newline = memchr(data + at, '\n', len - at);
        const size_t whole = newline ? (size_t)(newline - data) - at : len - at;
        size_t blank = 0;
        while (blank < whole && strchr(" \t\r", data[at + blank]) && data[at + blank]) {
            blank++;
        }
        if (blank < whole) {
            rc = read_object(data + at, whole, line, fn, user, err);
            rc = rc == SD_OK ? rc : sd_fail_prefix(err, rc, "line %ld", line);
            ++*n;
        }
        at += whole + 1;
    }
    return rc;
}

/* ---- CSV ---- */

typedef struct sd_columns {
    sd_csv csv;
    sd_texts names;
} sd_columns;

static const char *column_value(void *context, const char *name, size_t name_len, size_t *len)
{
    const sd_columns *c = context;
    for (size_t i = 0; i < c->names.n; i++) {
        if (c->names.items[i].len == name_len && memcmp(c->names.items[i].text, name, name_len) == 0) {
            return sd_csv_field(&c->csv, i, len);
        }
    }
    return NULL;
}

static int read_header(sd_columns *c, char *names, size_t size, sd_error *err)
{
    int rc = sd_csv_next(&c->csv, err);
    size_t used = 0;
    names[0] = '\0';
    if (rc <= 0) {
        return rc;
    }
    rc = SD_OK;
    for (size_t i = 0; rc == SD_OK && i < c->csv.n; i++) {
        sd_str name;
        size_t unused;
        name.text = sd_csv_field(&c->csv, i, &name.len);
        if (column_value(c, name.text, name.len, &unused)) {
            return sd_fail(err, SD_ERR_FORMAT, "the header has column \"%.*s\" twice", (int)name.len, name.text);
        }
        rc = sd_texts_add(&c->names, name, err);
        if (used < size) {
            const int n = snprintf(names + used, size - used, "%s\"%.*s\"", used ? ", " : "", (int)name.len, name.text);
            used += n > 0 ? (size_t)n : 0;
        }
    }
    return rc;
}

static int read_rows(sd_columns *c, size_t limit, sd_record_fn fn, void *user, size_t *n, sd_error *err)
{
    char names[256];
    int rc = read_header(c, names, sizeof names, err);
    while (rc == SD_OK && (limit == 0 || *n < limit)) {
        rc = sd_csv_next(&c->csv, err);
        if (rc <= 0) {
            return rc;
        }
        const sd_record record = {.line = c->csv.began, .field = column_value, .context = c, .names = names};
        rc = c->csv.n == c->names.n ? fn(user, &record, err)
                                    : sd_fail(err, SD_ERR_FORMAT, "%zu fields, the header has %zu", c->csv.n,
                                              c->names.n);
        rc = rc == SD_OK ? rc : sd_fail_prefix(err, rc, "line %ld", record.line);
        ++*n;
    }
    return rc;
}

static int read_csv(const char *data, size_t len, size_t limit, sd_record_fn fn, void *user, size_t *n, sd_error *err)
{
    sd_columns c = {.csv = {.data = data, .len = len, .line = 1}};
    int rc = read_rows(&c, limit, fn, user, n, err);
    sd_texts_clear(&c.names);
    sd_csv_clear(&c.csv);
    return rc;
}

/* ---- files ---- */

static bool ends_with(const char *text, const char *end)
{
    const size_t a = strlen(text), b = strlen(end);
    return a >= b && strcmp(text + a - b, end) == 0;
}

int sd_records_read(const char *path, size_t limit, sd_record_fn fn, void *user, sd_error *err)
{
    const char *name = strcmp(path, "-") == 0 ? "standard input" : path;
    sd_buf text = {0};
    size_t n = 0;
    int rc = sd_input_read_all(&text, path, err);
    if (rc == SD_OK) {
        static const char mark[] = "\xEF\xBB\xBF"; /* a byte order mark is no text */
        const size_t skip = text.len >= 3 && memcmp(text.data, mark, 3) == 0 ? 3 : 0;
        const char *data = text.data ? text.data + skip : "";
        const bool jsonl = ends_with(path, ".jsonl") || ends_with(path, ".ndjson");
        rc = (jsonl ? read_jsonl : ends_with(path, ".csv") ? read_csv : read_lines)(data, text.len - skip, limit, fn,
                                                                                    user, &n, err);
    }
    if (rc == SD_OK && n == 0) {
        rc = sd_fail(err, SD_ERR_ARG, "is empty; expected texts");
    }
    sd_buf_free(&text);
    return rc == SD_OK ? rc : sd_fail_prefix(err, rc, "%s", name);
}

static int check_text(sd_str text, const char *name, sd_error *err)
{
    return sd_utf8_valid(text.text, text.len) ? SD_OK
                                              : sd_fail(err, SD_ERR_FORMAT, "%s%s%sthe text is not valid UTF-8",
                                                        name ? "\"" : "", name ? name : "", name ? "\": " : "");
}

int sd_record_text(const sd_record *record, const char *name, sd_str *text, sd_error *err)
{
    text->text = record->field(record->context, name, strlen(name), &text->len);
    if (text->text) {
        return check_text(*text, record->lines ? NULL : name, err);
    }
    const json_t *value = json_object_get(record->object, name);
    if (value) {
        return sd_fail(err, SD_ERR_FORMAT, "key \"%s\": expected a string, found %s", name, sd_json_type_name(value));
    }
    return sd_fail(err, SD_ERR_ARG, "no %s \"%s\"; there is %s", record->object ? "key" : "column", name,
                   record->names[0] ? record->names : "none");
}

int sd_record_texts(const sd_record *record, const char *name, sd_record_text_fn fn, void *user, sd_error *err)
{
    const json_t *list = record->object ? json_object_get(record->object, name) : NULL;
    sd_str text;
    if (!json_is_array(list)) {
        int rc = sd_record_text(record, name, &text, err);
        return rc == SD_OK ? fn(user, text, err) : rc;
    }
    if (json_array_size(list) == 0) {
        return sd_fail(err, SD_ERR_FORMAT, "key \"%s\": an empty list; expected at least one text", name);
    }
    size_t i;
    json_t *item;
    int rc = SD_OK;
    json_array_foreach((json_t *)(uintptr_t)list, i, item) {
        if (!json_is_string(item)) {
            return sd_fail(err, SD_ERR_FORMAT, "key \"%s\": item %zu is %s; expected a string", name, i + 1,
                           sd_json_type_name(item));
        }
        text = (sd_str){json_string_value(item), json_string_length(item)};
        rc = rc == SD_OK ? fn(user, text, err) : rc;
    }
    return rc;
}

/* ---- texts that stay ---- */

int sd_texts_add(sd_texts *texts, sd_str text, sd_error *err)
{
    if (texts->n == texts->cap) {
        const size_t cap = texts->cap ? 2 * texts->cap : 64;
        sd_str *items = sd_realloc(texts->items, cap, sizeof *items);
        if (!items) {
            return sd_fail_memory(err, cap * sizeof *items, "texts");
        }
        texts->items = items;
        texts->cap = cap;
    }
    char *copy = sd_strndup(text.text, text.len);
    if (!copy) {
        return sd_fail_memory(err, text.len, "a text");
    }
    texts->items[texts->n++] = (sd_str){copy, text.len};
    return SD_OK;
}

void sd_texts_clear(sd_texts *texts)
{
    for (size_t i = 0; i < texts->n; i++) {
        sd_free((void *)(uintptr_t)texts->items[i].text);
    }
    sd_free(texts->items);
    *texts = (sd_texts){0};
}

/* ---- references ---- */

int sd_references_group(sd_references *r, sd_str key, size_t *segment, sd_error *err)
{
    const uint32_t number = sd_lexicon_add(&r->keys, key.text, key.len);
    *segment = number - 1;
    return number ? SD_OK : sd_fail_memory(err, key.len, "the groups of references");
}

int sd_references_add(sd_references *r, size_t segment, sd_str text, sd_error *err)
{
    if (r->found.n == r->cap) {
        const size_t cap = r->cap ? 2 * r->cap : 64;
        size_t *array = sd_realloc(r->segment, cap, sizeof *array);
        if (!array) {
            return sd_fail_memory(err, cap * sizeof *array, "references");
        }
        r->segment = array;
        r->cap = cap;
    }
    r->segment[r->found.n] = segment;
    r->n = segment >= r->n ? segment + 1 : r->n;
    return sd_texts_add(&r->found, text, err);
}

int sd_references_finish(sd_references *r, sd_error *err)
{
    r->refs = sd_calloc(r->found.n, sizeof *r->refs);
    r->first = sd_calloc(r->n + 2, sizeof *r->first);
    if (!r->refs || !r->first) {
        return sd_fail_memory(err, r->found.n * sizeof *r->refs, "references");
    }
    for (size_t i = 0; i < r->found.n; i++) {
        r->first[r->segment[i] + 2]++;
    }
    for (size_t i = 2; i < r->n + 2; i++) {
        r->first[i] += r->first[i - 1];
    }
    for (size_t i = 0; i < r->found.n; i++) { /* stable: first[s + 1] runs up to the end of s */
        r->refs[r->first[r->segment[i] + 1]++] = r->found.items[i];
    }
    return SD_OK;
}

void sd_references_clear(sd_references *r)
{
    sd_lexicon_free(&r->keys);
    sd_texts_clear(&r->found);
    sd_free(r->segment);
    sd_free(r->refs);
    sd_free(r->first);
    *r = (sd_references){0};
}
