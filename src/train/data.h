/* SPDX-License-Identifier: MIT
 *
 * Training examples: a prompt and its response, read from files as text and kept in memory as tokens. */
#ifndef SD_TRAIN_DATA_H
#define SD_TRAIN_DATA_H

#include "include/skipdecode/skipdecode.h"

/* ---- files: pairs of texts ---- */

typedef struct sd_text_pair {
    const char *prompt, *response; /* UTF-8, neither empty; borrowed until the callback returns */
    size_t prompt_len, response_len;
    long line;                     /* where the row begins in its file */
} sd_text_pair;

typedef int (*sd_text_pair_fn)(void *user, const sd_text_pair *pair, sd_error *err);

/* One file, or two: a file's name says what it holds, .csv a table with a header, .jsonl or .ndjson JSON lines,
 * otherwise lines of text, which need the file of their responses. */
typedef struct sd_data_source {
    const char *path;
    const char *responses;       /* text lines: line i is the response to line i of path; NULL: none */
    const char *prompt_template; /* as for `generate`: builds the prompt from a row's fields. JSON lines with a "prompt"
                                  * do not use it, and text lines may do without (NULL) */
    const char *response;        /* the column or key of the response. In JSON lines it may be a list of strings, each
                                  * of which becomes an example. Unused for text lines */
    size_t limit;                /* rows to read; 0: all */
} sd_data_source;

/* Calls `pair` for each, in the file's order. Messages name the file and the line. A file without rows is an error. */
int sd_data_read(const sd_data_source *source, sd_text_pair_fn pair, void *user, sd_error *err);

/* ---- tokens ---- */

typedef struct sd_example {
    size_t prompt, response;     /* where they begin in ids; examples may share a prompt */
    int32_t n_prompt, n_response; /* tokens: BOS in front where the tokenizer has one, the end token at the end */
} sd_example;

typedef enum sd_too_long { SD_TOO_LONG_ERROR, SD_TOO_LONG_SKIP, SD_TOO_LONG_CUT } sd_too_long;

typedef struct sd_dataset_options {
    const sd_tokenizer *tok;
    int32_t end_id;       /* ends every response */
    int vocab;            /* ids are below; the model's */
    int max_tokens;       /* longest row, prompt and response; the last token of a response is never fed, so this is one
                           * more than the model's positions at most */
    sd_too_long too_long; /* CUT takes tokens off the response's end, which then has no end token. A row whose prompt
                           * leaves no room for a response is left out, and counted, in both cases */
} sd_dataset_options;

/* Start from {0}; release with sd_dataset_clear. */
typedef struct sd_dataset {
    int32_t *ids;         /* [n_ids] */
    size_t n_ids, cap_ids;
    sd_example *examples; /* [n] */
    size_t n, cap;
    size_t n_cut, n_skipped;
    int64_t prompt_tokens, response_tokens; /* over all examples */
    int longest;          /* row, prompt and response */
    int longest_response;
    char *last_text;      /* the last prompt, [last_len]; owned */
    size_t last_len, last_cap;
} sd_dataset;

/* Appends a source's examples. */
int sd_dataset_read(sd_dataset *data, const sd_data_source *source, const sd_dataset_options *options, sd_error *err);

/* Keeps n examples, evenly spread; fewer stay as they are. */
void sd_dataset_thin(sd_dataset *data, size_t n);
void sd_dataset_clear(sd_dataset *data);

/* Tells whether two runs see the same examples. */
uint64_t sd_dataset_hash(const sd_dataset *data);

/* Decode steps of the responses: the last token is never fed. share 0.5 is the median, and so on; both at least 1. */
int sd_dataset_mean_steps(const sd_dataset *data);
int sd_dataset_quantile_steps(const sd_dataset *data, double share, int *steps, sd_error *err);

#endif
