/* SPDX-License-Identifier: MIT
 *
 * Files of texts, as `score` and `eval` read them: text lines, JSON lines, or CSV with a header; and references put
 * together by the segment that they belong to. */
#ifndef SD_CLI_RECORDS_H
#define SD_CLI_RECORDS_H

#include "cli/input.h"
#include "src/eval/corpus.h"
#include "src/eval/lexicon.h"

typedef struct sd_record {
    long line;            /* where it begins */
    const json_t *object; /* of JSON lines; NULL otherwise */
    sd_str text;          /* of text lines */
    sd_field_fn field;    /* a value by its name, with `context`; text lines have one value under any name */
    void *context;
    const char *names;    /* of the fields, for messages */
    bool lines;           /* text lines */
} sd_record;

typedef int (*sd_record_fn)(void *user, const sd_record *record, sd_error *err);

/* Calls fn for each record, at most `limit` (0: all), in the file's order. The file's name says what it holds: .jsonl
 * or .ndjson, .csv, else text lines, of which an empty one is an empty text. "-" is standard input. A file without
 * records is an error; messages name file and line. */
int sd_records_read(const char *path, size_t limit, sd_record_fn fn, void *user, sd_error *err);

/* A string of the record, valid UTF-8, borrowed until fn returns. */
int sd_record_text(const sd_record *record, const char *name, sd_str *text, sd_error *err);

/* The same for a field that may also be, in JSON lines, a list of strings: calls fn for each. */
typedef int (*sd_record_text_fn)(void *user, sd_str text, sd_error *err);
int sd_record_texts(const sd_record *record, const char *name, sd_record_text_fn fn, void *user, sd_error *err);

/* ---- texts that stay ---- */

typedef struct sd_texts { /* start from {0} */
    sd_str *items; /* [n] each a copy, with a NUL behind it */
    size_t n, cap;
} sd_texts;

int sd_texts_add(sd_texts *texts, sd_str text, sd_error *err);
void sd_texts_clear(sd_texts *texts);

/* ---- references ---- */

typedef struct sd_references { /* start from {0} */
    size_t n;          /* segments */
    sd_lexicon keys;   /* of segments that records are grouped into */
    sd_texts found;    /* in the order in which they came, */
    size_t *segment;   /* [found.n] of which segment each is */
    size_t cap;
    sd_str *refs;      /* after sd_references_finish: by segment */
    size_t *first;     /* [n + 1] */
} sd_references;

/* The segment of a key: a new one, number n, if the key is new. */
int sd_references_group(sd_references *references, sd_str key, size_t *segment, sd_error *err);
int sd_references_add(sd_references *references, size_t segment, sd_str text, sd_error *err); /* n grows to hold it */
int sd_references_finish(sd_references *references, sd_error *err);
void sd_references_clear(sd_references *references);

#endif
