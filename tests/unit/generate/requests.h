/* SPDX-License-Identifier: MIT
 *
 * Requests for the tests of the token loop. */
#ifndef SD_TESTS_GENERATE_REQUESTS_H
#define SD_TESTS_GENERATE_REQUESTS_H

#include <stdlib.h>
#include <string.h>

#include "tests/support/random_schedule.h"
#include "tests/support/support.h"
#include "tests/support/tiny_model.h"

static const int32_t some_prompt[] = {2, 33, 7, 61, 0, 12, 44, 9, 9, 30, 2, 5, 68, 17, 21, 3};

/* Greedy, of the first n_prompt of some_prompt. */
static inline sd_request request_of(int n_prompt, int max_tokens)
{
    sd_request r = {.prompt = some_prompt, .n_prompt = n_prompt, .max_tokens = max_tokens};
    sd_sampling_default(&r.sampling);
    return r;
}

/* All that sampling can do, none of it the same in two requests. Some end early. */
static inline sd_request random_request(sd_rng *rng)
{
    static const int32_t ends[] = {10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25};
    int n_prompt = sd_random_int(rng, 1, 16), max_tokens = sd_random_int(rng, 1, 18);
    sd_request r = request_of(n_prompt, max_tokens);
    r.sampling.temperature = sd_random_int(rng, 0, 2) ? 0.5f + (float)sd_rng_double(rng) : 0;
    r.sampling.top_k = sd_random_int(rng, 0, 1) ? sd_random_int(rng, 2, 40) : 0;
    r.sampling.top_p = sd_random_int(rng, 0, 1) ? 0.9f : 1;
    r.sampling.min_p = sd_random_int(rng, 0, 1) ? 0.01f : 0;
    r.sampling.repetition_penalty = sd_random_int(rng, 0, 1) ? 1.3f : 1;
    r.sampling.seed = sd_rng_u64(rng);
    r.stop_ids = ends;
    r.n_stop_ids = sd_random_int(rng, 0, 16);
    r.ignore_eos = sd_random_int(rng, 0, 1);
    r.logprobs = sd_random_int(rng, 0, 1);
    return r;
}

/* options NULL: the defaults. */
static inline void generate(const sd_model *model, const sd_tokenizer *tok, const sd_request *requests, int n,
                            const sd_generate_options *options, sd_result *results, sd_timing *timing)
{
    sd_error err = {0};
    sd_assert_ok(sd_generate(model, tok, requests, n, options, results, timing, &err), &err);
}

static inline void assert_same_result(const sd_result *got, const sd_result *expected)
{
    assert_int_equal(got->n_ids, expected->n_ids);
    assert_memory_equal(got->ids, expected->ids, (size_t)got->n_ids * sizeof *got->ids);
    assert_string_equal(got->text, expected->text);
    assert_int_equal(got->finish, expected->finish);
    assert_int_equal(got->layers_run, expected->layers_run);
    assert_int_equal(got->steps, expected->steps);
    assert_int_equal(got->logprobs != NULL, expected->logprobs != NULL);
    if (got->logprobs) {
        assert_memory_equal(got->logprobs, expected->logprobs, (size_t)got->n_ids * sizeof *got->logprobs);
    }
}

/* After a failure nothing is left to release, and releasing it is harmless. */
static inline void assert_empty(sd_result *results, int n)
{
    for (int i = 0; i < n; i++) {
        assert_null(results[i].text);
        assert_null(results[i].ids);
        assert_null(results[i].logprobs);
        assert_int_equal(results[i].n_ids, 0);
        sd_result_clear(&results[i]);
    }
}

static inline void clear_results(sd_result *results, int n)
{
    for (int i = 0; i < n; i++) {
        sd_result_clear(&results[i]);
    }
}

#endif
