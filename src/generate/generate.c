/* SPDX-License-Identifier: MIT
 *
 * A list of requests in static batches: sorted by length, so that the rows of a batch end at about the same step. */
#include <stdlib.h>

#include "src/base/alloc.h"
#include "src/base/error.h"
#include "src/generate/loop.h"

void sd_generate_options_default(sd_generate_options *options)
{
    *options = (sd_generate_options){.batch = 32, .prefill_tokens = 512};
    sd_schedule_options_default(&options->schedule);
}

void sd_result_clear(sd_result *result)
{
    sd_free(result->text);
    sd_free(result->ids);
    sd_free(result->logprobs);
    *result = (sd_result){0};
}

typedef struct sd_place {
    int max_tokens, n_prompt, index;
} sd_place;

/* Longest first: the batch that needs most memory runs first, and fails first if it must. */
static int compare_places(const void *a, const void *b)
{
    const sd_place *x = a, *y = b;
    if (x->max_tokens != y->max_tokens) {
        return x->max_tokens > y->max_tokens ? -1 : 1;
    }
    if (x->n_prompt != y->n_prompt) {
        return x->n_prompt > y->n_prompt ? -1 : 1;
    }
    return x->index < y->index ? -1 : x->index > y->index;
}

static int run_batch(sd_loop *loop, const sd_place *places, int n, const sd_request *requests,
                     const sd_generate_options *options, sd_result *results, sd_timing *timing, sd_error *err)
{
    for (int i = 0; i < n; i++) {
        int index = places[i].index;
        int rc = sd_loop_add(loop, index, &requests[index], &options->schedule, &results[index], err);
        if (rc != SD_OK) {
            return sd_fail_prefix(err, rc, "request %d", index);
        }
    }
    while (sd_loop_active(loop) > 0) {
        int rc = sd_loop_step(loop, timing, err);
        if (rc != SD_OK) {
            return rc;
        }
    }
    return SD_OK;
}

static int run_all(const sd_model *model, const sd_tokenizer *tok, const sd_request *requests, int n, sd_place *places,
                   const sd_generate_options *options, sd_result *results, sd_timing *timing, sd_error *err)
{
    for (int i = 0; i < n; i++) {
        int rc = sd_request_check(model, tok, &requests[i], err);
        if (rc != SD_OK) {
            return sd_fail_prefix(err, rc, "request %d", i);
        }
        places[i] = (sd_place){requests[i].max_tokens, requests[i].n_prompt, i};
    }
    qsort(places, (size_t)n, sizeof *places, compare_places);
    sd_loop_options lo = {.max_rows = options->batch < n ? options->batch : n,
                          .prefill_tokens = options->prefill_tokens, .on_token = options->on_token,
                          .user = options->user};
    sd_loop *loop;
    int rc = sd_loop_create(&loop, model, tok, &lo, err);
    for (int at = 0; rc == SD_OK && at < n; at += lo.max_rows) {
        int rows = n - at < lo.max_rows ? n - at : lo.max_rows;
        rc = run_batch(loop, places + at, rows, requests, options, results, timing, err);
    }
    sd_loop_free(loop);
    return rc;
}

int sd_generate(const sd_model *model, const sd_tokenizer *tok, const sd_request *requests, int n,
                const sd_generate_options *options, sd_result *results, sd_timing *timing, sd_error *err)
{
    sd_timing unused;
    timing = timing ? timing : &unused;
    *timing = (sd_timing){0};
    for (int i = 0; i < n; i++) { /* before anything can fail: the caller may release them whatever the outcome */
        results[i] = (sd_result){0};
    }
    sd_generate_options defaults;
    if (!options) {
        sd_generate_options_default(&defaults);
        options = &defaults;
    }
    if (n < 0 || options->batch < 1 || options->batch > 1 << 16 || options->prefill_tokens < 1) {
        return sd_fail(err, SD_ERR_ARG, "%d requests, batch %d, prefill_tokens %d; expected n >= 0, batch 1 .. 65536, "
                       "prefill_tokens >= 1", n, options->batch, options->prefill_tokens);
    }
    if (n == 0) {
        return SD_OK;
    }
    sd_place *places = sd_malloc((size_t)n, sizeof *places);
    if (!places) {
        return sd_fail_memory(err, (size_t)n * sizeof *places, "sorting requests");
    }
    int rc = run_all(model, tok, requests, n, places, options, results, timing, err);
    sd_free(places);
    for (int i = 0; rc != SD_OK && i < n; i++) {
        sd_result_clear(&results[i]);
    }
    return rc;
}
