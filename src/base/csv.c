/* SPDX-License-Identifier: MIT */
#include "src/base/csv.h"

#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"

static int end_field(sd_csv *c, sd_error *err)
{
    if (c->n == c->cap) {
        size_t cap = c->cap ? 2 * c->cap : 16;
        size_t *ends = sd_realloc(c->ends, cap, sizeof *ends);
        if (!ends) {
            return sd_fail_memory(err, cap * sizeof *ends, "a CSV record");
        }
        c->ends = ends;
        c->cap = cap;
    }
    c->ends[c->n++] = c->text.len;
    return SD_OK;
}

/* Inside quotes: everything up to the closing quote; "" is one quote. */
static int read_quoted(sd_csv *c, sd_error *err)
{
    long began = c->line;
    for (c->at++; c->at < c->len; c->at++) {
        char ch = c->data[c->at];
        if (ch == '"') {
            if (c->at + 1 >= c->len || c->data[c->at + 1] != '"') {
                c->at++;
                return SD_OK;
            }
            c->at++;
        }
        c->line += ch == '\n';
        sd_buf_add(&c->text, &c->data[c->at], 1);
    }
    return sd_fail(err, SD_ERR_FORMAT, "line %ld: a quoted field is never closed", began);
}

static void skip_newline(sd_csv *c)
{
    c->at += c->at < c->len && c->data[c->at] == '\r';
    c->at += c->at < c->len && c->data[c->at] == '\n';
    c->line++;
}

int sd_csv_next(sd_csv *c, sd_error *err)
{
    c->n = 0;
    sd_buf_clear(&c->text);
    while (c->at < c->len && (c->data[c->at] == '\n' || c->data[c->at] == '\r')) {
        skip_newline(c); /* empty lines separate nothing */
    }
    if (c->at >= c->len) {
        return 0;
    }
    c->began = c->line;
    for (;;) {
        int rc = SD_OK;
        if (c->at < c->len && c->data[c->at] == '"') {
            rc = read_quoted(c, err);
        }
        size_t plain = c->at;
        while (c->at < c->len && c->data[c->at] != ',' && c->data[c->at] != '\n' && c->data[c->at] != '\r') {
            c->at++;
        }
        sd_buf_add(&c->text, c->data + plain, c->at - plain);
        rc = rc == SD_OK ? end_field(c, err) : rc;
        if (rc != SD_OK) {
            return rc;
        }
        if (c->at >= c->len || c->data[c->at] != ',') {
            skip_newline(c);
            return c->text.failed ? sd_fail_memory(err, c->text.cap, "a CSV record") : 1;
        }
        c->at++;
    }
}

const char *sd_csv_field(const sd_csv *c, size_t i, size_t *len)
{
    size_t start = i ? c->ends[i - 1] : 0;
    *len = c->ends[i] - start;
    return c->text.data ? c->text.data + start : "";
}

void sd_csv_clear(sd_csv *c)
{
    sd_buf_free(&c->text);
    sd_free(c->ends);
    *c = (sd_csv){0};
}

/* ---- tables ---- */

const char *sd_table_field(void *table, const char *name, size_t name_len, size_t *len)
{
    sd_table *t = table;
    const char *found = NULL;
    for (size_t i = 0; i < t->n; i++) {
        if (strlen(t->columns[i]) == name_len && memcmp(t->columns[i], name, name_len) == 0) {
            t->twice = found ? t->columns[i] : t->twice;
            found = found ? found : sd_csv_field(&t->csv, i, len);
        }
    }
    return found;
}

int sd_table_read_header(sd_table *t, sd_error *err)
{
    int rc = sd_csv_next(&t->csv, err);
    if (rc <= 0) {
        return rc < 0 ? rc : sd_fail(err, SD_ERR_FORMAT, "the CSV is empty; expected a header line and records");
    }
    t->columns = sd_calloc(t->csv.n, sizeof *t->columns);
    if (!t->columns) {
        return sd_fail_memory(err, t->csv.n * sizeof *t->columns, "a CSV header");
    }
    size_t used = 0;
    for (t->n = 0; t->n < t->csv.n; t->n++) {
        size_t len;
        const char *name = sd_csv_field(&t->csv, t->n, &len);
        t->columns[t->n] = sd_strndup(name, len);
        if (!t->columns[t->n]) {
            return sd_fail_memory(err, len, "a CSV header");
        }
        if (used < sizeof t->names) {
            int n = snprintf(t->names + used, sizeof t->names - used, "%s\"%s\"", used ? ", " : "", t->columns[t->n]);
            used += n > 0 ? (size_t)n : 0;
        }
    }
    return SD_OK;
}

int sd_table_next(sd_table *t, sd_error *err)
{
    int rc = sd_csv_next(&t->csv, err);
    if (rc > 0 && t->csv.n != t->n) {
        rc = sd_fail(err, SD_ERR_FORMAT, "line %ld: %zu fields, the header has %zu", t->csv.began, t->csv.n, t->n);
    }
    return rc;
}

void sd_table_clear(sd_table *t)
{
    for (size_t i = 0; i < t->n; i++) {
        sd_free(t->columns[i]);
    }
    sd_free(t->columns);
    sd_csv_clear(&t->csv);
    *t = (sd_table){0};
}
