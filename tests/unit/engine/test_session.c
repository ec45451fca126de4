/* SPDX-License-Identifier: MIT
 *
 * Sessions: the KV cache is exactly what was planned, every wrong call is answered and leaves the session as it was, a
 * cache with a hole is noticed, and memory that runs out is an error. With f32 weights and caches, and with packed
 * inputs and f16 caches. */
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/half.h"
#include "src/engine/session.h"
#include "tests/support/random_schedule.h"
#include "tests/support/support.h"
#include "tests/support/tiny_model.h"

enum { VOCAB = 70, LAYERS = 5, POSITIONS = 48 }; /* of the usual tiny model */

static sd_model *model; /* shared: it is only read */

static int make_model(void **state)
{
    (void)state;
    model = sd_tiny_model_of(&(sd_tiny_options){.seed = 1}, 1);
    return 0;
}

static int make_small_model(void **state)
{
    (void)state;
    sd_tiny_model tiny;
    sd_tiny_make(&tiny, &(sd_tiny_options){.seed = 1});
    model = sd_tiny_load(&tiny, &(sd_model_options){.weights = SD_WEIGHTS_Q8, .kv = SD_KV_F16, .threads = 1});
    sd_tiny_clear(&tiny);
    return 0;
}

static int free_model(void **state)
{
    (void)state;
    sd_model_free(model);
    return 0;
}

static sd_schedule *schedule_of(const char *text)
{
    sd_schedule *schedule;
    sd_schedule_options o;
    sd_error err = {0};
    sd_schedule_options_default(&o);
    sd_assert_ok(sd_schedule_parse(&o, text, &err), &err);
    sd_assert_ok(sd_schedule_create(&schedule, LAYERS, 16, &o, &err), &err);
    sd_schedule_options_clear(&o);
    return schedule;
}

static sd_session *new_session(int rows)
{
    sd_session *session;
    sd_error err = {0};
    sd_assert_ok(sd_session_create(&session, model, rows, &err), &err);
    return session;
}

static int add_row(sd_session *session, int n_prompt, int max_tokens, const sd_schedule *schedule)
{
    int row = -1;
    sd_error err = {0};
    sd_assert_ok(sd_session_add(session, n_prompt, max_tokens, schedule, &row, &err), &err);
    return row;
}

static const int32_t some_ids[POSITIONS + 1] = {2, 5, 69, 0, 7, 7, 31, 12, 44, 8};

static void feed(sd_session *session, int row, const int32_t *ids, int n)
{
    sd_error err = {0};
    const sd_feed f = {.row = row, .ids = ids, .n = n};
    sd_assert_ok(sd_session_forward(session, &f, 1, &err), &err);
}

static void feed_fails(sd_session *session, int row, const int32_t *ids, int n, int code, const char *part)
{
    sd_error err = {0};
    const sd_feed f = {.row = row, .ids = ids, .n = n};
    sd_assert_fails(sd_session_forward(session, &f, 1, &err), code, &err, part);
    assert_null(sd_session_logits(session, 0));
}

/* ---- KV ---- */

static size_t naive_kv_bytes(const sd_schedule *schedule, int n_prompt, int max_tokens)
{
    size_t positions = 0;
    for (int l = 0; l < LAYERS; l++) {
        positions += !schedule || sd_schedule_runs(schedule, l, -1) ? (size_t)n_prompt : 0;
        for (int j = 0; j < max_tokens - 1; j++) { /* the last token is not fed */
            positions += !schedule || sd_schedule_runs(schedule, l, j);
        }
    }
    return positions * 2 * (size_t)model->config.hidden * (model->kv == SD_KV_F16 ? sizeof(uint16_t) : sizeof(float));
}

static void kv_is_what_was_planned_and_is_all_used(void **state)
{
    (void)state;
    sd_rng rng;
    sd_rng_seed(&rng, 1);
    for (int i = 0; i < 60; i++) {
        sd_schedule_options o;
        sd_schedule_options_default(&o);
        sd_random_policy(&o, LAYERS, &rng);
        sd_schedule *schedule = NULL;
        sd_error err = {0};
        if (i % 6) {
            sd_assert_ok(sd_schedule_create(&schedule, LAYERS, 16, &o, &err), &err);
        }
        int n_prompt = sd_random_int(&rng, 1, 20), max_tokens = sd_random_int(&rng, 1, 20);
        size_t bytes = naive_kv_bytes(schedule, n_prompt, max_tokens);
        assert_int_equal(sd_kv_planned_bytes(model, n_prompt, max_tokens, schedule), bytes);

        sd_session *session = new_session(2);
        int first = add_row(session, 3, 4, NULL), row = add_row(session, n_prompt, max_tokens, schedule);
        assert_int_equal(sd_session_kv_bytes(session), bytes + naive_kv_bytes(NULL, 3, 4));
        feed(session, row, some_ids, n_prompt);
        for (int j = 0; j < max_tokens - 1; j++) {
            feed(session, row, some_ids + j, 1);
        }
        int64_t layers = 0;
        for (int l = 0; l < LAYERS; l++) { /* not one position too many */
            const sd_kv_layer *kv = &session->rows[row].kv.layers[l];
            assert_int_equal(kv->len, kv->cap);
            for (int j = 0; j < max_tokens - 1; j++) {
                layers += !schedule || sd_schedule_runs(schedule, l, j);
            }
        }
        assert_int_equal(sd_session_layers_run(session, row), layers);
        sd_session_remove(session, row);
        assert_int_equal(sd_session_kv_bytes(session), naive_kv_bytes(NULL, 3, 4));
        sd_session_remove(session, first);
        assert_int_equal(sd_session_kv_bytes(session), 0);
        sd_session_free(session);
        sd_schedule_free(schedule);
        sd_schedule_options_clear(&o);
    }
}

/* The f32 cache of the first layer's keys and values, which nothing before it has rounded, is what f16 rounds. */
static void f16_caches_hold_what_f32_caches_hold_rounded(void **state)
{
    (void)state;
    sd_tiny_model tiny;
    sd_tiny_make(&tiny, &(sd_tiny_options){.seed = 3, .hidden = 27, .n_heads = 3});
    sd_model *models[2];
    sd_session *sessions[2];
    sd_error err = {0};
    for (int i = 0; i < 2; i++) {
        models[i] = sd_tiny_load(&tiny, &(sd_model_options){.kv = i ? SD_KV_F16 : SD_KV_F32, .threads = 1});
        sd_assert_ok(sd_session_create(&sessions[i], models[i], 1, &err), &err);
        const int row = add_row(sessions[i], 7, 3, NULL);
        feed(sessions[i], row, some_ids, 7);
        feed(sessions[i], row, some_ids + 7, 1);
    }
    for (int part = 0; part < 6; part++) {
        void *(*const find)(const sd_kv *, int, int) = part % 2 ? sd_kv_keys : sd_kv_values;
        const float *wide = find(&sessions[0]->rows[0].kv, 0, part / 2);
        const uint16_t *half = find(&sessions[1]->rows[0].kv, 0, part / 2);
        for (int i = 0; i < 8 * 9; i++) {
            assert_int_equal(half[i], sd_f32_to_f16(wide[i]));
        }
    }
    for (int i = 0; i < 2; i++) {
        sd_session_free(sessions[i]);
        sd_model_free(models[i]);
    }
    sd_tiny_clear(&tiny);
}

/* ---- wrong calls ---- */

static void sessions_have_a_row_or_more(void **state)
{
    (void)state;
    sd_session *session;
    sd_error err = {0};
    const int bad[] = {0, -1, (1 << 16) + 1, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        sd_assert_fails(sd_session_create(&session, model, bad[i], &err), SD_ERR_ARG, &err, "expected 1 .. 65536");
        assert_null(session);
    }
    sd_session_free(NULL);
}

static void rows_that_cannot_be_are_refused(void **state)
{
    (void)state;
    sd_schedule *other = NULL, *skip = schedule_of("max=3"), *exits = schedule_of("max=3,ranking=0:1:2:3:4");
    sd_schedule *full = schedule_of("full");
    sd_error err = {0};
    sd_assert_ok(sd_schedule_create(&other, LAYERS + 1, 4, &(sd_schedule_options){.full = true}, &err), &err);
    const struct {
        int n_prompt, max_tokens;
        const sd_schedule *schedule;
        int code;
        const char *part;
    } bad[] = {
        {0, 4, NULL, SD_ERR_ARG, "the prompt is empty"},
        {-1, 4, NULL, SD_ERR_ARG, "the prompt is empty"},
        {3, 0, NULL, SD_ERR_ARG, "max_tokens is 0"},
        {3, INT32_MIN, NULL, SD_ERR_ARG, "max_tokens is -2147483648"},
        {POSITIONS + 1, 1, NULL, SD_ERR_LIMIT, "at most 0 can be generated"},
        {POSITIONS, 2, NULL, SD_ERR_LIMIT, "at most 1 can be generated"},
        {40, 10, NULL, SD_ERR_LIMIT, "40 prompt tokens and 10 to generate do not fit the model's 48 positions"},
        {3, INT32_MAX, NULL, SD_ERR_LIMIT, "at most 46 can be generated"},
        {INT32_MAX, INT32_MAX, NULL, SD_ERR_LIMIT, "positions"},
        {3, 4, other, SD_ERR_ARG, "the schedule is for 6 layers, the model has 5"},
        {3, 4, exits, SD_ERR_ARG, "another order"},
    };
    sd_session *session = new_session(3);
    int first = add_row(session, 3, 4, skip);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int row = 77;
        sd_assert_fails(sd_session_add(session, bad[i].n_prompt, bad[i].max_tokens, bad[i].schedule, &row, &err),
                        bad[i].code, &err, bad[i].part);
    }
    assert_int_equal(sd_session_kv_bytes(session), naive_kv_bytes(skip, 3, 4));
    (void)add_row(session, POSITIONS, 1, full); /* full depth shares a batch with any ranking */
    (void)add_row(session, 40, 9, NULL);
    int row;
    sd_assert_fails(sd_session_add(session, 1, 1, NULL, &row, &err), SD_ERR_LIMIT, &err, "all 3 rows");
    sd_session_remove(session, first); /* the last row with that ranking: another one may follow */
    row = add_row(session, 3, 4, exits);
    sd_session_remove(session, row);
    feed(session, add_row(session, 3, 4, skip), some_ids, 3);
    sd_session_free(session);
    sd_schedule_free(other);
    sd_schedule_free(skip);
    sd_schedule_free(exits);
    sd_schedule_free(full);
}

/* The ranking that rows share lives in one of their schedules; it must be handed on when that row leaves. */
static void a_shared_ranking_outlives_the_row_it_came_from(void **state)
{
    (void)state;
    sd_schedule *schedules[3];
    sd_session *session = new_session(3);
    int rows[3];
    for (int i = 0; i < 3; i++) {
        schedules[i] = schedule_of("max=4,min=2,horizon=3");
        rows[i] = add_row(session, 3, 6, schedules[i]);
        feed(session, rows[i], some_ids, 3);
    }
    const int order[] = {2, 0, 1};
    for (int i = 0; i < 3; i++) {
        sd_session_remove(session, rows[order[i]]);
        sd_schedule_free(schedules[order[i]]); /* a use after this is one that ASan sees */
        for (int left = i + 1; left < 3; left++) {
            feed(session, rows[order[left]], some_ids + 4, 1);
        }
    }
    sd_session_free(session);
}

/* A session with a row that has read 2 of 5 prompt tokens. Its first logits then say whether anything was disturbed. */
static void wrong_feeds_are_named_and_change_nothing(void **state)
{
    (void)state;
    sd_session *undisturbed = new_session(1), *session = new_session(4);
    int row = add_row(undisturbed, 5, 3, NULL);
    feed(undisturbed, row, some_ids, 5);
    row = add_row(session, 5, 3, NULL);
    feed(session, row, some_ids, 2);

    const int32_t below[] = {3, -1, 3}, above[] = {3, 3, VOCAB}, far[] = {INT32_MAX}, lowest[] = {INT32_MIN};
    feed_fails(session, 1, some_ids, 1, SD_ERR_ARG, "row 1 is not open");
    feed_fails(session, -1, some_ids, 1, SD_ERR_ARG, "row -1 is not open");
    feed_fails(session, 4, some_ids, 1, SD_ERR_ARG, "row 4 is not open");
    feed_fails(session, INT32_MAX, some_ids, 1, SD_ERR_ARG, "is not open");
    feed_fails(session, row, some_ids, 0, SD_ERR_ARG, "0 tokens");
    feed_fails(session, row, some_ids, -5, SD_ERR_ARG, "-5 tokens");
    feed_fails(session, row, some_ids, 4, SD_ERR_STATE, "4 tokens at position 2 of row 0, whose prompt has 5");
    feed_fails(session, row, some_ids, INT32_MAX, SD_ERR_STATE, "position 2");
    feed_fails(session, row, below, 3, SD_ERR_ARG, "token id -1 at position 3: expected 0 .. 69");
    feed_fails(session, row, above, 3, SD_ERR_ARG, "token id 70 at position 4");
    feed_fails(session, row, far, 1, SD_ERR_ARG, "token id 2147483647");
    feed_fails(session, row, lowest, 1, SD_ERR_ARG, "token id -2147483648");
    sd_error err = {0};
    const sd_feed twice[] = {{row, some_ids + 2, 1}, {row, some_ids + 3, 1}};
    sd_assert_fails(sd_session_forward(session, twice, 2, &err), SD_ERR_ARG, &err, "row 0 is in the pass already");
    sd_assert_fails(sd_session_forward(session, twice, 0, &err), SD_ERR_ARG, &err, "a pass of 0 feeds");
    sd_assert_fails(sd_session_forward(session, twice, -1, &err), SD_ERR_ARG, &err, "a pass of -1 feeds");
    const sd_feed many[5] = {{0}};
    sd_assert_fails(sd_session_forward(session, many, 5, &err), SD_ERR_ARG, &err, "a pass of 5 feeds; expected 1 .. 4");
    int second = add_row(session, 2, 2, NULL);
    const sd_feed half[] = {{row, some_ids + 2, 3}, {second, above, 3}}; /* the first would have been in order */
    sd_assert_fails(sd_session_forward(session, half, 2, &err), SD_ERR_STATE, &err, "feed 1");
    assert_int_equal(sd_session_forward(session, half, 2, NULL), SD_ERR_STATE);

    feed(session, row, some_ids + 2, 2);
    assert_null(sd_session_logits(session, 0)); /* the prompt is unfinished */
    feed(session, row, some_ids + 4, 1);
    assert_null(sd_session_logits(session, 1));
    assert_null(sd_session_logits(session, -1));
    assert_memory_equal(sd_session_logits(session, 0), sd_session_logits(undisturbed, 0), VOCAB * sizeof(float));

    feed_fails(session, row, some_ids, 2, SD_ERR_STATE, "or one generated token");
    feed(session, row, some_ids + 5, 1);
    feed(session, row, some_ids + 6, 1);
    feed_fails(session, row, some_ids, 1, SD_ERR_LIMIT, "was opened for 3 generated tokens");
    sd_session_remove(session, row);
    feed_fails(session, row, some_ids, 1, SD_ERR_ARG, "row 0 is not open");
    sd_session_remove(session, row); /* twice, and rows that never were */
    sd_session_remove(session, -1);
    sd_session_remove(session, 99);
    feed(session, second, some_ids, 2);
    sd_session_free(session);
    sd_session_free(undisturbed);
}

static void a_row_of_one_token_takes_no_step(void **state)
{
    (void)state;
    sd_session *session = new_session(1);
    int row = add_row(session, 2, 1, NULL);
    feed(session, row, some_ids, 2);
    assert_non_null(sd_session_logits(session, 0));
    feed_fails(session, row, some_ids, 1, SD_ERR_LIMIT, "was opened for 1 generated tokens");
    sd_session_free(session);
}

/* ---- the invariant, asked of the caches ---- */

static void a_cache_with_a_hole_is_noticed(void **state)
{
    (void)state;
    sd_schedule *schedule = schedule_of("max=4,min=2,horizon=3");
    sd_session *whole = new_session(1), *session = new_session(1);
    int row = add_row(whole, 4, 6, schedule);
    feed(whole, row, some_ids, 4);
    feed(whole, row, some_ids + 4, 1);
    row = add_row(session, 4, 6, schedule);
    feed(session, row, some_ids, 4);
    for (int l = 0; l < LAYERS; l++) {
        sd_kv_layer *kv = &session->rows[row].kv.layers[l], saved = *kv;
        if (sd_schedule_runs(schedule, l, 0)) {
            kv->len--; /* as if the layer had been bypassed once */
            feed_fails(session, row, some_ids + 4, 1, SD_ERR_STATE, "internal error: layer");
            *kv = saved;
            kv->len++;
            feed_fails(session, row, some_ids + 4, 1, SD_ERR_STATE, "internal error: layer");
            *kv = saved;
            kv->cap = kv->len; /* as if less had been planned */
            feed_fails(session, row, some_ids + 4, 1, SD_ERR_STATE, "internal error: layer");
            *kv = saved;
        }
    }
    feed(session, row, some_ids + 4, 1);
    assert_memory_equal(sd_session_logits(session, 0), sd_session_logits(whole, 0), VOCAB * sizeof(float));
    sd_session_free(session);
    sd_session_free(whole);
    sd_schedule_free(schedule);
}

/* ---- memory ---- */

/* Everything a row does, in a session made for it; the first failure ends it. */
static int live_and_die(const sd_schedule *schedule, sd_error *err)
{
    sd_session *session;
    int row, rc = sd_session_create(&session, model, 2, err);
    if (rc != SD_OK) {
        return rc;
    }
    rc = sd_session_add(session, 3, 3, schedule, &row, err);
    const sd_feed feeds[] = {{row, some_ids, 3}, {row, some_ids + 3, 1}};
    for (int i = 0; rc == SD_OK && i < 2; i++) {
        rc = sd_session_forward(session, &feeds[i], 1, err);
    }
    sd_session_free(session);
    return rc;
}

static void an_allocation_that_fails_is_an_error(void **state)
{
    (void)state;
    sd_schedule *schedule = schedule_of("max=4,min=2,horizon=3");
    int rc = SD_ERR_MEMORY;
    long n = 0;
    while (rc != SD_OK) {
        sd_error err = {0};
        sd_alloc_fail_at(++n);
        rc = live_and_die(schedule, &err);
        sd_alloc_fail_at(0);
        if (rc != SD_OK) {
            sd_assert_fails(rc, SD_ERR_MEMORY, &err, "out of memory");
        }
    }
    assert_true(n > 10);
    sd_schedule_free(schedule);
}

/* Scratch memory that could not grow leaves a session that still works. */
static void a_pass_that_found_no_memory_can_be_repeated(void **state)
{
    (void)state;
    sd_session *session = new_session(1), *other = new_session(1);
    int row = add_row(session, 6, 2, NULL);
    feed(session, row, some_ids, 1);
    feed(other, add_row(other, 6, 2, NULL), some_ids, 6);
    for (long n = 1; n <= 3; n++) {
        sd_alloc_fail_at(n);
        feed_fails(session, row, some_ids + 1, 5, SD_ERR_MEMORY, "the activations of a pass");
        sd_alloc_fail_at(0);
    }
    feed(session, row, some_ids + 1, 5);
    assert_memory_equal(sd_session_logits(session, 0), sd_session_logits(other, 0), VOCAB * sizeof(float));
    sd_session_free(session);
    sd_session_free(other);
}

static void passes_of_a_known_size_allocate_nothing(void **state)
{
    (void)state;
    sd_session *session = new_session(2);
    int rows[] = {add_row(session, 6, 8, NULL), add_row(session, 4, 8, NULL)};
    const sd_feed prompts[] = {{rows[0], some_ids, 6}, {rows[1], some_ids, 4}};
    sd_error err = {0};
    sd_assert_ok(sd_session_forward(session, prompts, 2, &err), &err);
    sd_alloc_fail_at(0);
    for (int j = 0; j < 7; j++) {
        const sd_feed steps[] = {{rows[0], some_ids + j, 1}, {rows[1], some_ids + j, 1}};
        sd_assert_ok(sd_session_forward(session, steps, 2, &err), &err);
    }
    assert_int_equal(sd_alloc_count(), 0);
    sd_session_free(session);
}

int main(void)
{
    sd_skip_unless_level();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kv_is_what_was_planned_and_is_all_used),
        cmocka_unit_test(f16_caches_hold_what_f32_caches_hold_rounded),
        cmocka_unit_test(sessions_have_a_row_or_more),
        cmocka_unit_test(rows_that_cannot_be_are_refused),
        cmocka_unit_test(a_shared_ranking_outlives_the_row_it_came_from),
        cmocka_unit_test(wrong_feeds_are_named_and_change_nothing),
        cmocka_unit_test(a_row_of_one_token_takes_no_step),
        cmocka_unit_test(a_cache_with_a_hole_is_noticed),
        cmocka_unit_test(an_allocation_that_fails_is_an_error),
        cmocka_unit_test(a_pass_that_found_no_memory_can_be_repeated),
        cmocka_unit_test(passes_of_a_known_size_allocate_nothing),
    };
    const int failed = cmocka_run_group_tests_name("f32", tests, make_model, free_model);
    return failed + cmocka_run_group_tests_name("q8, f16 caches", tests, make_small_model, free_model);
}
