/* SPDX-License-Identifier: MIT
 *
 * From logits to one token id. All state is per row, so a row's tokens do not depend on its neighbours. */
#ifndef SD_GENERATE_SAMPLER_H
#define SD_GENERATE_SAMPLER_H

#include "include/skipdecode/skipdecode.h"
#include "src/base/rng.h"

typedef struct sd_sampler {
    sd_sampling options;
    sd_rng rng;
    int vocab;          /* ids at or past `valid` exist in the matrix but not in the tokenizer: never sampled */
    int valid;
    unsigned char *seen; /* [vocab] ids that the repetition penalty applies to; NULL without one */
} sd_sampler;

/* One candidate; a scratch array of `vocab` of them is the caller's and may serve all rows. */
typedef struct sd_candidate {
    float logit;
    int32_t id;
} sd_candidate;

/* Checks ranges: temperature 0 .. 100, top_k >= 0, 0 < top_p <= 1, 0 <= min_p < 1, 0 < penalty <= 100; NaN is
 * refused. */
int sd_sampling_check(const sd_sampling *sampling, sd_error *err);

int sd_sampler_init(sd_sampler *sampler, const sd_sampling *sampling, int vocab, int valid, sd_error *err);
void sd_sampler_clear(sd_sampler *sampler); /* tolerates {0} */
void sd_sampler_note(sd_sampler *sampler, int32_t id); /* a token of the prompt or the text so far */

/* The next token. Order of the filters: repetition penalty, temperature, top-k, top-p, min-p. logits: [vocab].
 * Fails with SD_ERR_STATE if no logit is finite. */
int sd_sampler_next(sd_sampler *sampler, const float *logits, sd_candidate *scratch, int32_t *id, sd_error *err);

/* log softmax(logits)[id], in double precision inside. */
float sd_logprob(const float *logits, int vocab, int32_t id);

#endif
