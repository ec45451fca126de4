/* SPDX-License-Identifier: MIT
 *
 * The token loop: rows are added, every step feeds one piece of each, and a row leaves when it ends. */
#ifndef SD_GENERATE_LOOP_H
#define SD_GENERATE_LOOP_H

#include "include/skipdecode/skipdecode.h"

typedef struct sd_loop sd_loop;

typedef struct sd_loop_options {
    int max_rows;       /* rows decoded together */
    int prefill_tokens; /* most prompt tokens in one pass */
    bool (*on_token)(void *user, int request, const char *piece, size_t len, sd_finish finish); /* or NULL */
    void *user;
} sd_loop_options;

/* tok: NULL is allowed; then there is no text, and stop strings are refused. Both are borrowed. *out is the
 * caller's. */
int sd_loop_create(sd_loop **out, const sd_model *model, const sd_tokenizer *tok, const sd_loop_options *options,
                   sd_error *err);
void sd_loop_free(sd_loop *loop);

/* Checks everything about a request that can be wrong before any work is done: prompt, ids, sampling, stops,
 * positions. */
int sd_request_check(const sd_model *model, const sd_tokenizer *tok, const sd_request *request, sd_error *err);

/* Adds a request; its arrays and *result must live until the row ends. `number` is what on_token is given. */
int sd_loop_add(sd_loop *loop, int number, const sd_request *request, const sd_schedule_options *schedule,
                sd_result *result, sd_error *err);

int sd_loop_active(const sd_loop *loop); /* rows that have not ended */
int sd_loop_room(const sd_loop *loop);   /* rows that can be added now */

/* One pass: a chunk of the prompts still unread, else one decode step of every row. Adds to *timing. */
int sd_loop_step(sd_loop *loop, sd_timing *timing, sd_error *err);

#endif
