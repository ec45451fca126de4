/* SPDX-License-Identifier: MIT
 *
 * The token loop without text: what ends a row, what a result holds, and that neither the batch nor the size of a
 * prompt's passes changes anything in it. A session driven by hand says what is expected. */
#include <math.h>
#include <stdio.h>

#include "src/base/alloc.h"
#include "src/generate/loop.h"
#include "src/model/model.h"
#include "tests/unit/generate/requests.h"

enum { VOCAB = 70, LAYERS = 5 };

static sd_model *model;

static int make_model(void **state)
{
    (void)state;
    model = sd_tiny_model_of(&(sd_tiny_options){.seed = 1}, 1);
    return 0;
}

static int free_model(void **state)
{
    (void)state;
    sd_model_free(model);
    return 0;
}

static sd_generate_options with_schedule(const char *text)
{
    sd_generate_options o;
    sd_error err = {0};
    sd_generate_options_default(&o);
    sd_assert_ok(sd_schedule_parse(&o.schedule, text, &err), &err);
    return o;
}

/* ---- by hand ---- */

/* What a greedy row gives, or a forced one: ids, log-probabilities, layers. */
typedef struct by_hand {
    int32_t ids[64];
    double logprobs[64];
    int n;
    int64_t layers_run;
} by_hand;

/* The best one after the repetition penalty over the prompt and `more` tokens after it. */
static int best_of(const float *logits, const sd_request *r, const int32_t *others, int more)
{
    float penalty = r->sampling.repetition_penalty, x[VOCAB];
    int best = 0;
    for (int i = 0; i < VOCAB; i++) {
        bool seen = false;
        for (int k = 0; k < r->n_prompt + more; k++) {
            seen = seen || i == (k < r->n_prompt ? r->prompt[k] : others[k - r->n_prompt]);
        }
        x[i] = !seen ? logits[i] : logits[i] > 0 ? logits[i] / penalty : logits[i] * penalty;
        best = x[i] > x[best] ? i : best;
    }
    return best;
}

static by_hand run_by_hand(const sd_request *r, const sd_schedule_options *options)
{
    by_hand h = {.n = r->forced ? r->n_forced : r->max_tokens};
    sd_session *session;
    sd_schedule *schedule;
    sd_error err = {0};
    int row;
    sd_assert_ok(sd_schedule_create(&schedule, LAYERS, r->max_tokens, options, &err), &err);
    sd_assert_ok(sd_session_create(&session, model, 1, &err), &err);
    sd_assert_ok(sd_session_add(session, r->n_prompt, r->max_tokens, schedule, &row, &err), &err);
    for (int i = 0; i < h.n; i++) {
        const sd_feed feed = {row, i == 0 ? r->prompt : &h.ids[i - 1], i == 0 ? r->n_prompt : 1};
        sd_assert_ok(sd_session_forward(session, &feed, 1, &err), &err);
        const float *logits = sd_session_logits(session, 0);
        h.ids[i] = r->forced ? r->forced[i] : best_of(logits, r, h.ids, i);
        double total = 0;
        for (int v = 0; v < VOCAB; v++) {
            total += exp((double)logits[v]);
        }
        h.logprobs[i] = (double)logits[h.ids[i]] - log(total);
        h.layers_run += i == 0 ? 0 : sd_schedule_budget(schedule, i - 1);
    }
    sd_session_free(session);
    sd_schedule_free(schedule);
    return h;
}

static void assert_by_hand(const sd_result *got, const by_hand *h)
{
    assert_int_equal(got->n_ids, h->n);
    assert_memory_equal(got->ids, h->ids, (size_t)h->n * sizeof *h->ids);
    assert_int_equal(got->steps, h->n - 1);
    assert_int_equal(got->layers_run, h->layers_run);
    for (int i = 0; got->logprobs && i < h->n; i++) {
        assert_true(fabs((double)got->logprobs[i] - h->logprobs[i]) < 1e-5);
    }
}

static void greedy_is_the_session_driven_by_hand(void **state)
{
    (void)state;
    const char *const texts[] = {"full", "max=4,min=2", "budgets=5:3:2:1,ranking=0:4:2:1:3,prompt=max"};
    for (int i = 0; i < 3; i++) {
        sd_generate_options o = with_schedule(texts[i]);
        sd_request r[] = {request_of(5, 12), request_of(16, 20), request_of(1, 1), request_of(2, 2)};
        sd_result results[4];
        for (int k = 0; k < 4; k++) {
            r[k].ignore_eos = true;
            r[k].logprobs = k != 3;
            r[k].sampling.repetition_penalty = i == 1 ? 1 : 3; /* a large one, so that it decides */
        }
        generate(model, NULL, r, 4, &o, results, NULL);
        for (int k = 0; k < 4; k++) {
            by_hand h = run_by_hand(&r[k], &o.schedule);
            assert_by_hand(&results[k], &h);
            assert_int_equal(results[k].finish, SD_FINISH_LENGTH);
            assert_string_equal(results[k].text, ""); /* without a tokenizer there is none */
            assert_int_equal(results[k].logprobs != NULL, r[k].logprobs);
        }
        clear_results(results, 4);
        sd_schedule_options_clear(&o.schedule);
    }
}

static void forced_tokens_are_taken_and_scored(void **state)
{
    (void)state;
    const int32_t forced[] = {9, 2, 2, 69, 0, 33}; /* the end token among them ends nothing, nor does a stop id */
    sd_generate_options o = with_schedule("max=4,min=2");
    sd_request r = request_of(5, 10);
    r.forced = forced;
    r.logprobs = true;
    r.stop_ids = forced;
    r.n_stop_ids = 6;
    for (r.n_forced = 1; r.n_forced <= 6; r.n_forced += 5) {
        sd_result result;
        generate(model, NULL, &r, 1, &o, &result, NULL);
        by_hand h = run_by_hand(&r, &o.schedule);
        assert_by_hand(&result, &h);
        assert_int_equal(result.finish, SD_FINISH_LENGTH);
        sd_result_clear(&result);
    }
    sd_schedule_options_clear(&o.schedule);
}

/* ---- what ends a row ---- */

static void the_end_token_ends_a_row_unless_ignored(void **state)
{
    (void)state;
    sd_request r = request_of(5, 12);
    r.ignore_eos = true;
    sd_result full, ended;
    generate(model, NULL, &r, 1, NULL, &full, NULL);
    int at = 4;
    for (int i = 0; i < at; i++) {
        at = full.ids[i] == full.ids[at] ? i : at; /* where this token comes first */
    }
    int saved = model->config.eos_id;
    model->config.eos_id = full.ids[at];
    const int32_t prompt[] = {2, 33, full.ids[at], 61, 0}; /* in the prompt it means nothing */
    for (int k = 0; k < 2; k++) {
        r.ignore_eos = k == 1;
        generate(model, NULL, &r, 1, NULL, &ended, NULL);
        assert_int_equal(ended.n_ids, k ? 12 : at + 1); /* the end token included */
        assert_int_equal(ended.finish, k ? SD_FINISH_LENGTH : SD_FINISH_STOP);
        assert_memory_equal(ended.ids, full.ids, (size_t)ended.n_ids * sizeof *ended.ids);
        assert_int_equal(ended.steps, ended.n_ids - 1);
        assert_int_equal(ended.layers_run, LAYERS * ended.steps);
        sd_result_clear(&ended);
    }
    r.prompt = prompt;
    generate(model, NULL, &r, 1, NULL, &ended, NULL);
    assert_int_equal(ended.n_ids, 12);
    sd_result_clear(&ended);
    model->config.eos_id = -1; /* a model without one */
    r.ignore_eos = false;
    generate(model, NULL, &r, 1, NULL, &ended, NULL);
    assert_int_equal(ended.n_ids, 12);
    sd_result_clear(&ended);
    model->config.eos_id = saved;
    sd_result_clear(&full);
}

static void stop_ids_end_a_row_like_the_end_token(void **state)
{
    (void)state;
    sd_request r = request_of(7, 12);
    r.ignore_eos = true;
    sd_result full, ended;
    generate(model, NULL, &r, 1, NULL, &full, NULL);
    const int32_t stop[] = {-5, VOCAB + 1, full.ids[6], full.ids[3]}; /* some that never come are harmless */
    int at = 3;
    for (int i = 0; i < at; i++) {
        at = full.ids[i] == stop[2] || full.ids[i] == stop[3] ? i : at;
    }
    r.stop_ids = stop;
    r.n_stop_ids = 4;
    generate(model, NULL, &r, 1, NULL, &ended, NULL);
    assert_int_equal(ended.n_ids, at + 1);
    assert_int_equal(ended.finish, SD_FINISH_STOP);
    sd_result_clear(&ended);
    sd_result_clear(&full);
}

static void a_row_may_fill_the_models_positions(void **state)
{
    (void)state;
    sd_request r = request_of(16, 48 - 16 + 1); /* the last token needs no position */
    r.ignore_eos = true;
    sd_result result;
    generate(model, NULL, &r, 1, NULL, &result, NULL);
    assert_int_equal(result.n_ids, 33);
    sd_result_clear(&result);
}

/* ---- batches ---- */

static void neither_batch_nor_prompt_passes_change_a_result(void **state)
{
    (void)state;
    enum { N = 23 };
    const struct {
        int batch, prefill_tokens;
    } ways[] = {{32, 512}, {1, 1}, {32, 1}, {1, 512}, {5, 7}, {22, 3}, {2, 16}, {65536, INT32_MAX}};
    sd_request r[N];
    sd_rng rng;
    sd_rng_seed(&rng, 1);
    for (int i = 0; i < N; i++) {
        r[i] = random_request(&rng);
    }
    sd_generate_options o = with_schedule("warmup=1,max=5,min=2,prompt=full");
    sd_result alone[N];
    int ended = 0;
    for (int i = 0; i < N; i++) {
        generate(model, NULL, &r[i], 1, &o, &alone[i], NULL);
        ended += alone[i].finish == SD_FINISH_STOP;
    }
    assert_in_range(ended, 2, N - 2); /* rows that leave early are what makes a batch ragged */
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        sd_result together[N];
        o.batch = ways[w].batch;
        o.prefill_tokens = ways[w].prefill_tokens;
        generate(model, NULL, r, N, &o, together, NULL);
        for (int i = 0; i < N; i++) { /* in the order of the requests */
            assert_same_result(&together[i], &alone[i]);
        }
        clear_results(together, N);
    }
    clear_results(alone, N);
    sd_schedule_options_clear(&o.schedule);
}

/* Rows that come while others are decoding: what a server does. */
static void rows_may_come_at_any_time(void **state)
{
    (void)state;
    enum { N = 12, ROWS = 4 };
    sd_generate_options o = with_schedule("warmup=1,max=5,min=2,horizon=6");
    sd_request r[N];
    sd_result alone[N], got[N] = {{0}};
    sd_rng rng;
    sd_rng_seed(&rng, 2);
    for (int i = 0; i < N; i++) {
        r[i] = random_request(&rng);
        generate(model, NULL, &r[i], 1, &o, &alone[i], NULL);
    }
    sd_loop *loop;
    sd_error err = {0};
    sd_timing timing = {0};
    const sd_loop_options lo = {.max_rows = ROWS, .prefill_tokens = 5};
    sd_assert_ok(sd_loop_create(&loop, model, NULL, &lo, &err), &err);
    sd_assert_fails(sd_loop_step(loop, &timing, &err), SD_ERR_ARG, &err, "a pass of 0 feeds");
    int next = 0;
    while (next < N || sd_loop_active(loop) > 0) {
        assert_int_equal(sd_loop_room(loop), ROWS - sd_loop_active(loop));
        if (next < N && sd_loop_room(loop) > 0 && sd_random_int(&rng, 0, 2) > 0) {
            sd_assert_ok(sd_loop_add(loop, next, &r[next], &o.schedule, &got[next], &err), &err);
            next++;
        }
        if (next < N && sd_loop_room(loop) == 0) {
            sd_assert_fails(sd_loop_add(loop, next, &r[next], &o.schedule, &got[next], &err), SD_ERR_LIMIT, &err,
                            "all 4 rows of the loop");
        }
        if (sd_loop_active(loop) > 0) {
            sd_assert_ok(sd_loop_step(loop, &timing, &err), &err);
        }
    }
    for (int i = 0; i < N; i++) {
        assert_same_result(&got[i], &alone[i]);
    }
    sd_loop_free(loop);
    sd_loop_free(NULL);
    clear_results(got, N);
    clear_results(alone, N);
    sd_schedule_options_clear(&o.schedule);
}

static void timing_counts_what_ran(void **state)
{
    (void)state;
    enum { N = 6 };
    sd_request r[N];
    sd_result results[N];
    sd_timing timing;
    sd_generate_options o = with_schedule("max=4,min=2");
    int64_t prompts = 0, tokens = 0, steps = 0, layers = 0;
    size_t kv = 0;
    sd_error err = {0};
    for (int i = 0; i < N; i++) {
        r[i] = request_of(2 + i, 3 + 2 * i);
        r[i].ignore_eos = true;
        sd_schedule *schedule;
        sd_assert_ok(sd_schedule_create(&schedule, LAYERS, r[i].max_tokens, &o.schedule, &err), &err);
        kv += sd_kv_planned_bytes(model, r[i].n_prompt, r[i].max_tokens, schedule);
        sd_schedule_free(schedule);
    }
    generate(model, NULL, r, N, &o, results, &timing);
    for (int i = 0; i < N; i++) {
        prompts += r[i].n_prompt;
        tokens += results[i].n_ids;
        steps += results[i].steps;
        layers += results[i].layers_run;
    }
    assert_int_equal(timing.prompt_tokens, prompts);
    assert_int_equal(timing.generated_tokens, tokens);
    assert_int_equal(timing.decode_steps, steps);
    assert_int_equal(timing.layers_run, layers);
    assert_int_equal(timing.kv_peak_bytes, kv); /* all six at once */
    assert_true(timing.prefill_seconds > 0 && timing.decode_seconds > 0);
    clear_results(results, N);
    o.batch = 1;
    generate(model, NULL, r, N, &o, results, &timing);
    assert_true(timing.kv_peak_bytes < kv);
    assert_int_equal(timing.decode_steps, steps);
    clear_results(results, N);
    sd_schedule_options_clear(&o.schedule);
}

/* ---- the callback ---- */

typedef struct listener {
    const sd_request *requests;
    const sd_result *results;
    int calls[8], ends[8], total, cancel_at; /* cancel_at 0: never */
} listener;

static bool listen(void *user, int request, const char *piece, size_t len, sd_finish finish)
{
    listener *l = user;
    const sd_result *result = &l->results[request];
    assert_non_null(piece);
    assert_int_equal(len, 0);
    assert_int_equal(l->ends[request], 0); /* nothing after the end */
    l->calls[request]++;
    assert_int_equal(result->n_ids, l->calls[request]);
    if (finish != SD_FINISH_NONE) { /* complete by now */
        l->ends[request]++;
        assert_int_equal(result->finish, finish);
        assert_int_equal(result->steps, result->n_ids - 1);
        assert_non_null(result->text);
    }
    return ++l->total != l->cancel_at;
}

static void the_callback_hears_every_token_and_one_end(void **state)
{
    (void)state;
    enum { N = 5 };
    sd_request r[N];
    sd_result results[N];
    for (int i = 0; i < N; i++) {
        r[i] = request_of(3 + i, 1 + 3 * i);
        r[i].ignore_eos = true;
    }
    for (int batch = 1; batch <= 5; batch += 2) {
        listener l = {.requests = r, .results = results};
        sd_generate_options o;
        sd_generate_options_default(&o);
        o.batch = batch;
        o.on_token = listen;
        o.user = &l;
        generate(model, NULL, r, N, &o, results, NULL);
        for (int i = 0; i < N; i++) {
            assert_int_equal(l.calls[i], r[i].max_tokens);
            assert_int_equal(l.ends[i], 1);
        }
        clear_results(results, N);
    }
}

static void the_callback_can_cancel_at_any_call(void **state)
{
    (void)state;
    sd_request r[] = {request_of(3, 4), request_of(5, 3), request_of(2, 1)};
    sd_result results[3];
    for (int at = 1; at <= 8; at++) {
        for (int i = 0; i < 3; i++) {
            r[i].ignore_eos = true;
        }
        listener l = {.requests = r, .results = results, .cancel_at = at};
        sd_generate_options o;
        sd_generate_options_default(&o);
        o.batch = 2;
        o.on_token = listen;
        o.user = &l;
        sd_error err = {0};
        sd_assert_fails(sd_generate(model, NULL, r, 3, &o, results, NULL, &err), SD_ERR_CANCELLED, &err, "cancelled");
        assert_int_equal(l.total, at);
        assert_empty(results, 3);
    }
}

/* ---- what is refused ---- */

static void refused(const sd_request *bad, int code, const char *part)
{
    sd_request r[] = {request_of(3, 4), *bad};
    sd_result results[2];
    sd_error err = {0};
    int rc = sd_generate(model, NULL, r, 2, NULL, results, NULL, &err);
    sd_assert_fails(rc, code, &err, part);
    sd_assert_fails(rc, code, &err, "request 1: ");
    assert_empty(results, 2);
}

static void bad_requests_are_named_before_any_work(void **state)
{
    (void)state;
    const int32_t bad_ids[] = {2, VOCAB, 3}, negative[] = {-1};
    sd_request r = request_of(0, 4);
    refused(&r, SD_ERR_ARG, "the prompt is empty");
    r = request_of(-3, 4);
    refused(&r, SD_ERR_ARG, "the prompt is empty");
    r = request_of(3, 0);
    refused(&r, SD_ERR_ARG, "max_tokens is 0");
    r = request_of(3, INT32_MAX);
    refused(&r, SD_ERR_LIMIT, "3 prompt tokens and max_tokens 2147483647 do not fit the model's 48 positions");
    r = request_of(16, 34);
    refused(&r, SD_ERR_LIMIT, "shorten the prompt or lower max_tokens");
    r = request_of(INT32_MAX, 1);
    refused(&r, SD_ERR_LIMIT, "shorten the prompt");
    r = request_of(3, 4);
    r.prompt = bad_ids;
    refused(&r, SD_ERR_ARG, "prompt: token id 70 at place 1; expected 0 .. 69");
    r.prompt = negative;
    r.n_prompt = 1;
    refused(&r, SD_ERR_ARG, "prompt: token id -1 at place 0");
    r = request_of(3, 4);
    r.forced = bad_ids;
    r.n_forced = 3;
    refused(&r, SD_ERR_ARG, "forced tokens: token id 70 at place 1");
    r.n_forced = 0;
    refused(&r, SD_ERR_ARG, "0 forced tokens; expected 1 .. max_tokens, 4");
    r.n_forced = 5;
    refused(&r, SD_ERR_ARG, "5 forced tokens; expected 1 .. max_tokens, 4");
    r = request_of(3, 4);
    r.sampling.temperature = NAN;
    refused(&r, SD_ERR_ARG, "temperature");
    r = request_of(3, 4);
    const char *const stop[] = {"x"};
    r.stop = stop;
    r.n_stop = 1;
    refused(&r, SD_ERR_ARG, "stop strings need a tokenizer");
}

static void bad_options_are_named(void **state)
{
    (void)state;
    const struct {
        int n, batch, prefill_tokens;
        const char *part;
    } bad[] = {{1, 0, 512, "batch 0"}, {1, -1, 512, "batch -1"}, {1, 65537, 512, "batch 65537"},
               {1, 32, 0, "prefill_tokens 0"}, {1, 32, -9, "prefill_tokens -9"}, {-1, 32, 512, "-1 requests"}};
    sd_request r = request_of(3, 4);
    sd_error err = {0};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        sd_result result;
        memset(&result, 0x5A, sizeof result); /* as it comes from the stack */
        sd_generate_options o;
        sd_generate_options_default(&o);
        o.batch = bad[i].batch;
        o.prefill_tokens = bad[i].prefill_tokens;
        sd_assert_fails(sd_generate(model, NULL, &r, bad[i].n, &o, &result, NULL, &err), SD_ERR_ARG, &err, bad[i].part);
        assert_empty(&result, bad[i].n > 0);
    }
    sd_result result;
    sd_generate_options o = with_schedule("max=6");
    sd_assert_fails(sd_generate(model, NULL, &r, 1, &o, &result, NULL, &err), SD_ERR_ARG, &err,
                    "request 0: schedule max: a budget of 6");
    assert_empty(&result, 1);
    sd_schedule_options_clear(&o.schedule);
    assert_int_equal(sd_generate(model, NULL, NULL, 0, NULL, NULL, NULL, NULL), SD_OK); /* nothing to do */
}

static void a_model_that_overflows_is_an_error(void **state)
{
    (void)state;
    sd_tiny_model tiny;
    sd_tiny_make(&tiny, &(sd_tiny_options){.seed = 1});
    sd_tiny_find(&tiny, "final_layer_norm.bias")->values[3] = NAN;
    sd_model *broken = sd_tiny_load(&tiny, &(sd_model_options){.threads = 1});
    sd_request r[] = {request_of(3, 4), request_of(4, 4)};
    r[1].sampling.temperature = 1;
    for (int i = 0; i < 2; i++) {
        sd_result result;
        sd_error err = {0};
        sd_assert_fails(sd_generate(broken, NULL, &r[i], 1, NULL, &result, NULL, &err), SD_ERR_STATE, &err,
                        "no finite logit");
        assert_empty(&result, 1);
    }
    sd_model_free(broken);
    sd_tiny_clear(&tiny);
}

static void an_allocation_that_fails_is_an_error(void **state)
{
    (void)state;
    sd_request r[] = {request_of(5, 4), request_of(9, 6), request_of(2, 3)};
    r[0].logprobs = true;
    r[1].sampling.repetition_penalty = 1.2f;
    r[2].sampling.temperature = 1;
    sd_generate_options o = with_schedule("max=4,min=2,ranking=0:4:3:2:1");
    o.batch = 2;
    int rc = SD_ERR_MEMORY;
    long n = 0;
    while (rc != SD_OK) {
        sd_result results[3];
        sd_error err = {0};
        sd_alloc_fail_at(++n);
        rc = sd_generate(model, NULL, r, 3, &o, results, NULL, &err);
        sd_alloc_fail_at(0);
        if (rc == SD_OK) {
            clear_results(results, 3);
        } else {
            sd_assert_fails(rc, SD_ERR_MEMORY, &err, "out of memory");
            assert_empty(results, 3);
        }
    }
    assert_true(n > 30);
    sd_schedule_options_clear(&o.schedule);
}

int main(void)
{
    sd_skip_unless_level();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_is_the_session_driven_by_hand),
        cmocka_unit_test(forced_tokens_are_taken_and_scored),
        cmocka_unit_test(the_end_token_ends_a_row_unless_ignored),
        cmocka_unit_test(stop_ids_end_a_row_like_the_end_token),
        cmocka_unit_test(a_row_may_fill_the_models_positions),
        cmocka_unit_test(neither_batch_nor_prompt_passes_change_a_result),
        cmocka_unit_test(rows_may_come_at_any_time),
        cmocka_unit_test(timing_counts_what_ran),
        cmocka_unit_test(the_callback_hears_every_token_and_one_end),
        cmocka_unit_test(the_callback_can_cancel_at_any_call),
        cmocka_unit_test(bad_requests_are_named_before_any_work),
        cmocka_unit_test(bad_options_are_named),
        cmocka_unit_test(a_model_that_overflows_is_an_error),
        cmocka_unit_test(an_allocation_that_fails_is_an_error),
    };
    return cmocka_run_group_tests(tests, make_model, free_model);
}
