/* SPDX-License-Identifier: MIT
 *
 * What `generate` reads: text lines, JSON lines, or CSV with a header. Each becomes a row with a prompt and, for JSON
 * lines, settings of its own. */
#ifndef SD_CLI_INPUT_H
#define SD_CLI_INPUT_H

#include <jansson.h>

#include "include/skipdecode/skipdecode.h"
#include "src/base/buf.h"

typedef enum sd_format { SD_FORMAT_AUTO, SD_FORMAT_TEXT, SD_FORMAT_JSONL, SD_FORMAT_CSV } sd_format;

typedef struct sd_input_row {
    char *prompt;      /* UTF-8, NUL-terminated; owned */
    size_t prompt_len;
    json_t *id;        /* handed through to the output; NULL: none. Owned */
    json_t *settings;  /* the JSON object of the row, for max_tokens, stop, seed, ...; NULL: none. Owned */
    long line;         /* where it began in the file, for messages */
} sd_input_row;

typedef struct sd_input {
    sd_input_row *rows;
    size_t n, cap;
} sd_input;

/* Reads the whole file, a pipe to its end ("-": standard input). AUTO goes by the name: .jsonl/.ndjson, .csv, else text
 * lines. template: how a prompt is built from a row's fields ("{name}", {{ and }} for braces). For text lines it may be
 * NULL (the line is the prompt) or have one field; for JSON lines with a "prompt" key it is not used. limit: rows to
 * read, 0: all. */
int sd_input_read(sd_input *input, const char *path, sd_format format, const char *template, size_t limit,
                  sd_error *err);

/* One prompt as the command line gave it, through the template if that has exactly one field. */
int sd_input_single(sd_input *input, const char *text, const char *template, sd_error *err);
void sd_input_clear(sd_input *input);

/* Appends all bytes of a regular file, a pipe (<(command), a FIFO), or "-", standard input. */
int sd_input_read_all(sd_buf *out, const char *path, sd_error *err);

/* ---- templates (template.c) ---- */

/* The value of a field, [*len] bytes; NULL: no such field. */
typedef const char *(*sd_field_fn)(void *context, const char *name, size_t name_len, size_t *len);

/* Appends the filled template. A missing field is named, along with `fields`, the ones there are. */
int sd_template_fill(const char *template, sd_field_fn field, void *context, const char *fields, sd_buf *out,
                     sd_error *err);
int sd_template_fields(const char *template, sd_error *err); /* how many {field}s; negative: malformed */

/* ---- CSV (csv.c): RFC 4180, quoted fields may hold newlines ---- */

typedef struct sd_csv {
    const char *data;
    size_t len, at;
    long line, began; /* here, and where the record began */
    sd_buf text;      /* the fields of one record, one after the other */
    size_t *ends;     /* [cap] end of each in text */
    size_t n, cap;
} sd_csv;

/* Reads the next record: 1, or 0 at the end, or an error. */
int sd_csv_next(sd_csv *csv, sd_error *err);
const char *sd_csv_field(const sd_csv *csv, size_t i, size_t *len);
void sd_csv_clear(sd_csv *csv);

#endif
