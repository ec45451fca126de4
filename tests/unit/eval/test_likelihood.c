/* SPDX-License-Identifier: MIT
 *
 * Teacher forcing gives the log-probabilities that decoding gives, on schedules, in any batch. */
#include <math.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/rng.h"
#include "src/eval/likelihood.h"
#include "tests/support/support.h"
#include "tests/support/tiny_model.h"

enum { VOCAB = 70, PAIRS = 7, MOST = 12 };

static sd_model *model;
static int32_t prompts[PAIRS][MOST], responses[PAIRS][MOST];
static sd_pair pairs[PAIRS];

static int make(void **state)
{
    (void)state;
    model = sd_tiny_model_of(&(sd_tiny_options){.seed = 3}, 1);
    sd_rng rng;
    sd_rng_seed(&rng, 5);
    for (int i = 0; i < PAIRS; i++) {
        for (int k = 0; k < MOST; k++) {
            prompts[i][k] = (int32_t)sd_rng_below(&rng, VOCAB);
            responses[i][k] = (int32_t)sd_rng_below(&rng, VOCAB);
        }
        pairs[i] = (sd_pair){prompts[i], responses[i], 1 + i, 1 + (5 * i) % MOST, 20};
    }
    return 0;
}

static int unmake(void **state)
{
    (void)state;
    sd_model_free(model);
    return 0;
}

static sd_schedule_options schedule_of(const char *text)
{
    sd_schedule_options o;
    sd_error err = {0};
    sd_schedule_options_default(&o);
    sd_assert_ok(sd_schedule_parse(&o, text, &err), &err);
    return o;
}

static void test_as_decoding(void **state)
{
    (void)state;
    /* without a horizon the budget falls over max_tokens, 20, not over the length of the response */
    static const char *const schedules[] = {"full", "warmup=1,max=4,min=2", "budgets=3:2,prompt=max",
                                            "max=5,min=3,horizon=4"};
    for (size_t s = 0; s < sizeof schedules / sizeof *schedules; s++) {
        sd_error err = {0};
        sd_generate_options go;
        sd_generate_options_default(&go);
        go.schedule = schedule_of(schedules[s]);
        for (int batch = 1; batch <= PAIRS; batch += 3) {
            sd_likelihood got[PAIRS];
            const sd_likelihood_options options = {.schedule = go.schedule, .batch = batch, .prefill_tokens = batch};
            sd_assert_ok(sd_likelihood_measure(got, model, pairs, PAIRS, &options, &err), &err);
            for (int i = 0; i < PAIRS; i++) {
                const sd_pair *p = &pairs[i];
                sd_request r = {.prompt = p->prompt, .n_prompt = p->n_prompt, .max_tokens = p->max_tokens,
                                .forced = p->response, .n_forced = p->n_response, .logprobs = true};
                sd_sampling_default(&r.sampling);
                sd_result result;
                double want = 0;
                sd_assert_ok(sd_generate(model, NULL, &r, 1, &go, &result, NULL, &err), &err);
                for (int k = 0; k < result.n_ids; k++) {
                    want -= (double)result.logprobs[k];
                }
                assert_int_equal(got[i].tokens, p->n_response);
                assert_true(fabs(got[i].loss - want) <= 1e-6 * want);
                sd_result_clear(&result);
            }
        }
        sd_schedule_options_clear(&go.schedule);
    }
}

/* What the model says by itself it finds likeliest; with one token changed, one less. */
static void test_accuracy(void **state)
{
    (void)state;
    sd_error err = {0};
    sd_generate_options go;
    sd_generate_options_default(&go);
    go.schedule = schedule_of("warmup=1,max=4,min=2,horizon=6");
    sd_request r = {.prompt = prompts[2], .n_prompt = 4, .max_tokens = 10, .ignore_eos = true};
    sd_sampling_default(&r.sampling);
    sd_result result;
    sd_assert_ok(sd_generate(model, NULL, &r, 1, &go, &result, NULL, &err), &err);
    sd_pair pair = {prompts[2], result.ids, 4, result.n_ids, 10};
    const sd_likelihood_options options = {.schedule = go.schedule, .batch = 1, .prefill_tokens = 8};
    sd_likelihood got;
    sd_assert_ok(sd_likelihood_measure(&got, model, &pair, 1, &options, &err), &err);
    assert_int_equal(got.tokens, 10);
    assert_int_equal(got.correct, 10);
    result.ids[9] = (result.ids[9] + 1) % VOCAB;
    sd_assert_ok(sd_likelihood_measure(&got, model, &pair, 1, &options, &err), &err);
    assert_int_equal(got.correct, 9);
    sd_result_clear(&result);
    sd_schedule_options_clear(&go.schedule);
}

static bool stop_at_once(void *user, int done)
{
    *(int *)user = done;
    return false;
}

static void test_faults(void **state)
{
    (void)state;
    sd_error err = {0};
    sd_likelihood got[PAIRS];
    sd_likelihood_options options = {.batch = 2, .prefill_tokens = 8};
    sd_schedule_options_default(&options.schedule);
    sd_pair bad = {prompts[0], responses[0], 40, 10, 20}; /* 48 positions */
    sd_assert_fails(sd_likelihood_measure(got, model, &bad, 1, &options, &err), SD_ERR_LIMIT, &err, "positions");
    bad = (sd_pair){prompts[0], responses[0], 2, 0, 20};
    sd_assert_fails(sd_likelihood_measure(got, model, &bad, 1, &options, &err), SD_ERR_ARG, &err, "empty response");
    sd_assert_fails(sd_likelihood_measure(got, model, pairs, 0, &options, &err), SD_ERR_ARG, &err, "0 pairs");
    int done = 0;
    options.on_pair = stop_at_once;
    options.user = &done;
    sd_assert_fails(sd_likelihood_measure(got, model, pairs, PAIRS, &options, &err), SD_ERR_CANCELLED, &err,
                    "cancelled");
    assert_int_equal(done, 2);
    options.on_pair = NULL;
    int rc = SD_ERR_MEMORY;
    for (long n = 1; rc != SD_OK; n++) {
        sd_alloc_fail_at(n);
        rc = sd_likelihood_measure(got, model, pairs, 3, &options, &err);
        const long tried = sd_alloc_count();
        sd_alloc_fail_at(0);
        if (rc == SD_OK) {
            assert_true(tried < n && n > 5);
        } else {
            sd_assert_fails(rc, SD_ERR_MEMORY, &err, "out of memory");
        }
    }
}

int main(void)
{
    sd_skip_unless_level();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_decoding),
        cmocka_unit_test(test_accuracy),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, make, unmake);
}
