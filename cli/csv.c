/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "cli/input.h"
#include "src/base/alloc.h"
#include "src/base/error.h"

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
