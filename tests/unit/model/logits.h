/* SPDX-License-Identifier: MIT
 *
 * What the model tests compare: the logits after a fixed prompt. */
#ifndef SD_TESTS_MODEL_LOGITS_H
#define SD_TESTS_MODEL_LOGITS_H

#include <string.h>

#include "tests/support/support.h"
#include "tests/support/tiny_model.h"

enum { TINY_VOCAB = 70 }; /* of the usual tiny model */

typedef struct logits {
    float values[TINY_VOCAB];
} logits;

/* Of the first TINY_VOCAB ids. */
static inline logits logits_of(const sd_model *model)
{
    static const int32_t ids[] = {2, 33, 7, 69, 0, 12};
    const sd_feed feed = {.row = 0, .ids = ids, .n = 6};
    sd_session *session;
    sd_error err = {0};
    logits result;
    int row;
    sd_assert_ok(sd_session_create(&session, model, 1, &err), &err);
    sd_assert_ok(sd_session_add(session, 6, 1, NULL, &row, &err), &err);
    sd_assert_ok(sd_session_forward(session, &feed, 1, &err), &err);
    memcpy(&result, sd_session_logits(session, 0), sizeof result);
    sd_session_free(session);
    return result;
}

/* Loads with f32 weights on one thread. */
static inline logits logits_of_tiny(const sd_tiny_model *tiny)
{
    sd_model *model = sd_tiny_load(tiny, &(sd_model_options){.weights = SD_WEIGHTS_F32, .threads = 1});
    logits result = logits_of(model);
    sd_model_free(model);
    return result;
}

static inline void assert_same_logits(const logits *a, const logits *b)
{
    assert_memory_equal(a->values, b->values, sizeof a->values);
}

static inline void assert_other_logits(const logits *a, const logits *b)
{
    assert_true(sd_max_difference(a->values, b->values, TINY_VOCAB) > 0.01);
}

#endif
