/* SPDX-License-Identifier: MIT
 *
 * What `generate` reads: text lines, JSON lines, or CSV with a header. Each becomes a row with a prompt and, for JSON
 * lines, settings of its own. */
#ifndef SD_CLI_INPUT_H
#define SD_CLI_INPUT_H

#include <jansson.h>

#include "include/skipdecode/skipdecode.h"
#include "src/base/csv.h"
#include "src/base/template.h"

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

#endif
