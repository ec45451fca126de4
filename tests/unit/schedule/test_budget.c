/* SPDX-License-Identifier: MIT
 *
 * The schedule against docs/METHOD.md: budgets in exact arithmetic, the sets of layers, and over random policies the
 * invariant on which the engine rests. What is expected is computed here from the definitions, slowly. */
#include <math.h>

#include "src/schedule/schedule.h"
#include "tests/support/random_schedule.h"
#include "tests/support/support.h"

enum { MOST_LAYERS = 48 };

static sd_schedule *create(int n_layers, int max_tokens, const sd_schedule_options *options)
{
    sd_schedule *schedule;
    sd_error err = {0};
    sd_assert_ok(sd_schedule_create(&schedule, n_layers, max_tokens, options, &err), &err);
    return schedule;
}

/* k = floor(x + 1/2) iff 2k - 1 <= 2x < 2k + 1; with x = max - (max - min) * j / (N - 1), multiplied by N - 1. */
static void check_line(const sd_schedule *s, int max, int min, int horizon, int step)
{
    int64_t k = sd_schedule_budget(s, step), span = horizon - 1, j = step < span ? step : span;
    if (horizon == 1) {
        assert_int_equal(k, max);
        return;
    }
    int64_t twice_x = 2 * max * span - 2 * (int64_t)(max - min) * j;
    if (!((2 * k - 1) * span <= twice_x && twice_x < (2 * k + 1) * span)) {
        fail_msg("max %d, min %d, horizon %d: k(%d) is %lld", max, min, horizon, step, (long long)k);
    }
}

static void a_line_is_the_formula_exactly(void **state)
{
    (void)state;
    sd_rng rng;
    sd_rng_seed(&rng, 1);
    for (int i = 0; i < 4000; i++) {
        int n_layers = sd_random_int(&rng, 1, 200), min = sd_random_int(&rng, 1, n_layers);
        int max = sd_random_int(&rng, min, n_layers), horizon = sd_random_int(&rng, 1, i % 2 ? 3 : 150);
        horizon = i % 500 == 0 ? 1 << 20 : horizon; /* the longest there is */
        sd_schedule_options o = {.max_layers = max, .min_layers = min, .horizon = horizon, .prompt = SD_PROMPT_FULL};
        sd_schedule *s = create(n_layers, 1, &o);
        for (int j = 0; j < horizon + 5; j += horizon > 150 ? 997 : 1) {
            check_line(s, max, min, horizon, j);
        }
        assert_int_equal(sd_schedule_budget(s, horizon - 1), horizon > 1 ? min : max);
        assert_int_equal(sd_schedule_budget(s, INT32_MAX), horizon > 1 ? min : max);
        sd_schedule_free(s);
    }
}

static void the_sets_are_the_warm_up_and_the_top(void **state)
{
    (void)state;
    sd_rng rng;
    sd_rng_seed(&rng, 2);
    for (int i = 0; i < 1000; i++) {
        int n_layers = sd_random_int(&rng, 1, MOST_LAYERS), w = sd_random_int(&rng, 0, n_layers - 1);
        sd_schedule_options o = {.warmup = w, .min_layers = sd_random_int(&rng, w + 1, n_layers), .horizon = 9,
                                 .prompt = SD_PROMPT_MAX};
        o.max_layers = sd_random_int(&rng, o.min_layers, n_layers);
        sd_schedule *s = create(n_layers, 1, &o);
        for (int j = -1; j < 12; j++) {
            int k = j < 0 ? sd_schedule_prompt_budget(s) : sd_schedule_budget(s, j);
            for (int l = 0; l < n_layers; l++) {
                bool expected = l < w || l >= n_layers - (k - w);
                assert_int_equal(sd_schedule_runs(s, l, j), expected);
            }
        }
        sd_schedule_free(s);
    }
}

static void defaults_fill_what_is_not_given(void **state)
{
    (void)state;
    sd_schedule_options o;
    sd_schedule_options_default(&o);
    assert_true(o.full);
    assert_int_equal(o.warmup, 1);
    o.full = false;
    sd_schedule *s = create(24, 10, &o); /* max 0: all layers; min 0: the same as max */
    assert_true(sd_schedule_is_full(s));
    sd_schedule_free(s);

    o.max_layers = 16;
    s = create(24, 10, &o);
    assert_int_equal(sd_schedule_budget(s, 0), 16);
    assert_int_equal(sd_schedule_budget(s, 100), 16);
    assert_int_equal(sd_schedule_prompt_budget(s), 24);
    sd_schedule_free(s);

    o.prompt = 20;
    s = create(24, 10, &o);
    assert_int_equal(sd_schedule_prompt_budget(s), 20);
    assert_int_equal(sd_schedule_budget(s, -1), 20); /* before the first step there is the prompt */
    assert_int_equal(sd_schedule_budget(s, INT32_MIN), 20);
    sd_schedule_free(s);

    o.min_layers = 6;
    s = create(24, 11, &o); /* horizon 0: max_tokens */
    assert_int_equal(sd_schedule_budget(s, 9), 7);
    assert_int_equal(sd_schedule_budget(s, 10), 6);
    sd_schedule_free(s);

    o.full = true; /* the other fields are ignored, whatever they hold */
    o.warmup = 99;
    o.n_ranking = -1;
    s = create(24, 11, &o);
    assert_true(sd_schedule_is_full(s));
    assert_int_equal(sd_schedule_n_layers(s), 24);
    assert_int_equal(sd_schedule_budget(s, 0), 24);
    sd_schedule_free(s);
}

/* ---- properties over random policies ---- */

/* runs[j + 1][l], from the ranking as it was asked for and the budgets as they came out. */
static void naive_sets(bool runs[][MOST_LAYERS], const sd_schedule *s, int n_layers, const sd_schedule_options *o,
                       int steps)
{
    for (int j = -1; j < steps; j++) {
        int k = j < 0 ? sd_schedule_prompt_budget(s) : sd_schedule_budget(s, j);
        for (int l = 0; l < n_layers; l++) {
            runs[j + 1][l] = false;
        }
        for (int r = 0; r < k; r++) {
            int own = r < o->warmup ? r : n_layers - 1 - (r - o->warmup);
            runs[j + 1][o->ranking ? o->ranking[r] : own] = true;
        }
    }
}

static void check_policy(const sd_schedule *s, int n_layers, const sd_schedule_options *o)
{
    enum { STEPS = 50 };
    bool runs[STEPS + 1][MOST_LAYERS];
    naive_sets(runs, s, n_layers, o, STEPS);
    int low = o->ranking ? 1 : o->warmup + 1;
    int64_t total = 0;
    for (int j = -1; j < STEPS; j++) {
        int k = j < 0 ? sd_schedule_prompt_budget(s) : sd_schedule_budget(s, j), count = 0;
        assert_in_range(k, low, n_layers);
        for (int l = 0; l < n_layers; l++) {
            assert_int_equal(sd_schedule_runs(s, l, j), runs[j + 1][l]);
            count += runs[j + 1][l];
            /* the invariant: a layer that runs now has run at every step before, and for the prompt */
            assert_true(j < 0 || !runs[j + 1][l] || runs[j][l]);
        }
        assert_int_equal(count, k);
        total += j < 0 ? 0 : k;
        if (j >= 0 && (j == 0 || j == 6 || j == STEPS - 1)) {
            double speedup = (double)n_layers * (j + 1) / (double)total;
            assert_true(fabs(sd_schedule_layer_speedup(s, j + 1) - speedup) < 1e-12);
        }
    }
    for (int l = 0; l < n_layers; l++) {
        int count = 0;
        for (int steps = 0; steps <= STEPS; steps++) {
            assert_int_equal(sd_schedule_layer_steps(s, l, steps), count);
            count += steps < STEPS && runs[steps + 1][l];
        }
    }
}

static void random_policies_keep_the_invariant(void **state)
{
    (void)state;
    sd_rng rng;
    sd_rng_seed(&rng, 3);
    for (int i = 0; i < 12000; i++) {
        int n_layers = sd_random_int(&rng, 1, i % 20 ? 14 : MOST_LAYERS);
        sd_schedule_options o;
        sd_schedule_options_default(&o);
        sd_random_policy(&o, n_layers, &rng);
        sd_schedule *s = create(n_layers, sd_random_int(&rng, 1, 60), &o);
        check_policy(s, n_layers, &o);
        sd_schedule_free(s);
        sd_schedule_options_clear(&o);
    }
}

static void layer_speedup_of_nothing_is_one(void **state)
{
    (void)state;
    sd_schedule *s = create(4, 1, &(sd_schedule_options){.max_layers = 2, .horizon = 1, .prompt = SD_PROMPT_MAX});
    assert_true(sd_schedule_layer_speedup(s, 0) == 1.0);
    sd_schedule_free(s);
}

static void rankings_are_told_apart(void **state)
{
    (void)state;
    const int up[] = {0, 1, 2, 3}, skip[] = {0, 3, 2, 1};
    sd_schedule_options o = {.warmup = 1, .max_layers = 3, .min_layers = 2, .horizon = 4, .prompt = SD_PROMPT_FULL};
    sd_schedule *own = create(4, 1, &o), *same, *other, *full, *longer;
    o.ranking = skip;
    o.n_ranking = 4;
    same = create(4, 1, &o);
    o.ranking = up;
    other = create(4, 1, &o);
    full = create(4, 1, &(sd_schedule_options){.full = true});
    longer = create(5, 1, &(sd_schedule_options){.full = true});
    assert_true(sd_schedule_same_ranking(own, same));
    assert_false(sd_schedule_same_ranking(own, other));
    assert_true(sd_schedule_same_ranking(full, other)); /* where all layers run, their order says nothing */
    assert_true(sd_schedule_same_ranking(own, full));
    assert_false(sd_schedule_same_ranking(full, longer));
    assert_false(sd_schedule_is_full(own));
    sd_schedule_free(own);
    sd_schedule_free(same);
    sd_schedule_free(other);
    sd_schedule_free(full);
    sd_schedule_free(longer);
}

/* ---- presets ---- */

static int clamp(int64_t x, int low, int high) { return x < low ? low : x > high ? high : (int)x; }

/* round(a / b) of positive integers, a half upwards. */
static int64_t round_ratio(int64_t a, int64_t b) { return (2 * a + b) / (2 * b); }

/* Speedups as people write them, hundredths / 100; a preset must not depend on how a double rounds them. */
static void presets_are_the_rounded_thirds(void **state)
{
    (void)state;
    for (int n_layers = 2; n_layers <= 256; n_layers++) {
        for (int hundredths = 134; hundredths <= 2000; hundredths++) {
            sd_schedule_options o;
            sd_error err = {0};
            sd_schedule_options_default(&o);
            sd_assert_ok(sd_schedule_preset(&o, n_layers, hundredths / 100.0, &err), &err);
            int max = clamp(round_ratio(400 * n_layers, 3 * hundredths), 2, n_layers);
            int min = clamp(round_ratio(200 * n_layers, 3 * hundredths), 2, n_layers);
            if (o.full || o.max_layers != max || o.min_layers != min) {
                fail_msg("%d layers, speedup %.2f: %d .. %d, expected %d .. %d", n_layers, hundredths / 100.0,
                         o.max_layers, o.min_layers, max, min);
            }
        }
    }
}

static void presets_keep_the_mean_budget(void **state)
{
    (void)state;
    for (int n_layers = 8; n_layers <= 96; n_layers += 8) {
        for (double speedup = 1; speedup <= 5; speedup += 0.05) {
            if (n_layers / speedup < 4) {
                continue; /* the warm-up layer and one more are the floor: nothing near so few can hold the mean */
            }
            sd_schedule_options o;
            sd_error err = {0};
            sd_schedule_options_default(&o);
            sd_assert_ok(sd_schedule_preset(&o, n_layers, speedup, &err), &err);
            sd_schedule *s = create(n_layers, 101, &o);
            double mean = n_layers / sd_schedule_layer_speedup(s, 101);
            if (fabs(mean - n_layers / speedup) > 0.51) { /* both ends are rounded to whole layers: half a layer each */
                fail_msg("%d layers, speedup %.2f: mean budget %.3f, expected %.3f", n_layers, speedup, mean,
                         n_layers / speedup);
            }
            sd_schedule_free(s);
        }
    }
}

static void a_preset_of_one_is_full_depth(void **state)
{
    (void)state;
    for (int n_layers = 2; n_layers < 40; n_layers++) {
        sd_schedule_options o;
        sd_error err = {0};
        sd_schedule_options_default(&o);
        sd_assert_ok(sd_schedule_preset(&o, n_layers, 1, &err), &err);
        sd_schedule *s = create(n_layers, 20, &o);
        assert_true(sd_schedule_is_full(s));
        sd_schedule_free(s);
    }
}

static void presets_stay_within_warm_up_and_all(void **state)
{
    (void)state;
    sd_error err = {0};
    sd_schedule_options o = {.warmup = 3, .prompt = SD_PROMPT_MAX};
    sd_assert_ok(sd_schedule_preset(&o, 24, 1000, &err), &err);
    assert_int_equal(o.max_layers, 4);
    assert_int_equal(o.min_layers, 4);
    assert_int_equal(o.prompt, SD_PROMPT_MAX); /* what is not the budget's stays */
    assert_int_equal(o.warmup, 3);
    sd_assert_ok(sd_schedule_preset(&o, 24, 1.25, &err), &err); /* 4/3 of the mean would be 25.6 */
    assert_int_equal(o.max_layers, 24);
    assert_int_equal(o.min_layers, 14); /* 2 * 19.2 - 24, so that the mean stays */
    o = (sd_schedule_options){.warmup = 0};
    sd_assert_ok(sd_schedule_preset(&o, 1, 7, &err), &err);
    assert_int_equal(o.max_layers, 1);
    assert_int_equal(o.min_layers, 1);

    const double bad[] = {0.999, 0, -2, NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        sd_assert_fails(sd_schedule_preset(&o, 24, bad[i], &err), SD_ERR_ARG, &err, "expected a number of at least 1");
    }
    o.warmup = 24;
    sd_assert_fails(sd_schedule_preset(&o, 24, 2, &err), SD_ERR_ARG, &err, "warmup 24: expected 0 .. 23");
    o.warmup = -1;
    sd_assert_fails(sd_schedule_preset(&o, 24, 2, &err), SD_ERR_ARG, &err, "warmup -1: expected 0 .. 23");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_is_the_formula_exactly),
        cmocka_unit_test(the_sets_are_the_warm_up_and_the_top),
        cmocka_unit_test(defaults_fill_what_is_not_given),
        cmocka_unit_test(random_policies_keep_the_invariant),
        cmocka_unit_test(layer_speedup_of_nothing_is_one),
        cmocka_unit_test(rankings_are_told_apart),
        cmocka_unit_test(presets_are_the_rounded_thirds),
        cmocka_unit_test(presets_keep_the_mean_budget),
        cmocka_unit_test(a_preset_of_one_is_full_depth),
        cmocka_unit_test(presets_stay_within_warm_up_and_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
