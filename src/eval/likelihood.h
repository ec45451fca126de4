/* SPDX-License-Identifier: MIT
 *
 * How likely a model on a schedule finds given responses: teacher forcing through the engine, so that token j of a
 * response runs exactly the layers that it would run in decoding, over the cache that decoding would have. */
#ifndef SD_EVAL_LIKELIHOOD_H
#define SD_EVAL_LIKELIHOOD_H

#include "include/skipdecode/skipdecode.h"

typedef struct sd_pair { /* borrowed */
    const int32_t *prompt, *response; /* [n_prompt] with BOS, [n_response] with the end token, if it is to count */
    int n_prompt, n_response;         /* at least 1 each */
    int max_tokens;                   /* that generation would be asked for: a schedule may depend on it */
} sd_pair;

typedef struct sd_likelihood {
    double loss;             /* sum over tokens of -ln p, nats */
    int64_t tokens, correct; /* correct: the likeliest token (lowest id of equals) was the right one */
} sd_likelihood;

typedef struct sd_likelihood_options {
    sd_schedule_options schedule;
    int batch, prefill_tokens;           /* rows fed together; most prompt tokens in one pass */
    bool (*on_pair)(void *user, int done); /* after each batch, pairs done so far; false cancels. NULL: nothing */
    void *user;
} sd_likelihood_options;

/* results: [n], of each pair. SD_ERR_LIMIT for a pair that does not fit the model's positions. */
int sd_likelihood_measure(sd_likelihood *results, const sd_model *model, const sd_pair *pairs, int n,
                          const sd_likelihood_options *options, sd_error *err);

#endif
