/* SPDX-License-Identifier: MIT
 *
 * The cost model of a decode step: what is measured is finite and usable on the smallest models, and from made-up costs
 * the schedule is chosen that a target asks for. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/generate/cost.h"
#include "tests/support/support.h"
#include "tests/support/tiny_model.h"

/* 24 layers; a step costs `head` + 1 a layer milliseconds. */
static sd_cost linear(double head)
{
    sd_cost c = {.rows = 4, .position = 8, .n_points = 5, .layers = {2, 4, 8, 14, 24}};
    for (int i = 0; i < 5; i++) {
        c.seconds[i] = (head + c.layers[i]) * 1e-3;
    }
    assert_true(sd_cost_is_valid(&c, 24));
    return c;
}

static sd_wall_task task_of(double speedup) { return (sd_wall_task){24, 30, 40, speedup}; }

static sd_schedule_options usual(void)
{
    sd_schedule_options o;
    sd_schedule_options_default(&o);
    return o;
}

static double choose(sd_schedule_options *o, const sd_cost *cost, const sd_wall_task *task)
{
    sd_error err = {0};
    double predicted = -1;
    sd_assert_ok(sd_cost_choose(o, cost, task, &predicted, &err), &err);
    return predicted;
}

static sd_schedule *schedule_of(const sd_schedule_options *o, const sd_wall_task *task)
{
    sd_error err = {0};
    sd_schedule *s;
    sd_assert_ok(sd_schedule_create(&s, task->n_layers, task->steps + 1, o, &err), &err);
    return s;
}

/* The speedup that the chosen schedule is predicted to give, worked out again. */
static double again(const sd_schedule_options *o, const sd_cost *cost, const sd_wall_task *task)
{
    sd_schedule *s = schedule_of(o, task);
    const double full = sd_cost_predict(cost, NULL, task->n_prompt, task->steps);
    const double speedup = full / sd_cost_predict(cost, s, task->n_prompt, task->steps);
    sd_schedule_free(s);
    return speedup;
}

static void seconds_add_up(void **state)
{
    (void)state;
    const sd_cost c = linear(3);
    const sd_wall_task task = task_of(1);
    assert_true(fabs(sd_cost_predict(&c, NULL, 30, 40) - 40 * 27e-3) < 1e-9);
    for (int k = 1; k <= 24; k++) { /* on, between and before the points */
        sd_schedule_options o = usual();
        o.full = false;
        o.warmup = 0;
        o.max_layers = o.min_layers = k;
        sd_schedule *s = schedule_of(&o, &task);
        assert_true(fabs(sd_cost_predict(&c, s, 30, 40) - 40 * (3 + k) * 1e-3) < 1e-9);
        sd_schedule_free(s);
    }
    sd_cost longer = c; /* attention: 40 steps at positions 31 .. 70, less the 8 that are in the seconds */
    longer.attention = 1e-5;
    const double more = 1e-5 * 24 * 40 * (50.5 - 8);
    assert_true(fabs(sd_cost_predict(&longer, NULL, 30, 40) - 40 * 27e-3 - more) < 1e-9);
    assert_true(sd_cost_predict(&longer, NULL, 1, 1) > 0);
    const sd_cost one = {.rows = 1, .position = 3, .n_points = 1, .layers = {1}, .seconds = {2e-3}};
    assert_true(fabs(sd_cost_predict(&one, NULL, 1, 5) - 10e-3) < 1e-12);
}

/* Costs that rise faster than the layers: drawn on to the left they would be less than nothing. */
static void no_step_costs_nothing(void **state)
{
    (void)state;
    sd_cost c = linear(0);
    c.seconds[0] = 1e-3;
    c.seconds[1] = 20e-3;
    c.seconds[2] = c.seconds[3] = c.seconds[4] = 30e-3;
    c.attention = 1e-3;
    sd_schedule_options o = usual();
    o.full = false;
    o.warmup = 0;
    o.max_layers = o.min_layers = 1;
    const sd_wall_task task = {24, 1, 2, 1};
    sd_schedule *s = schedule_of(&o, &task);
    assert_true(sd_cost_predict(&c, s, 1, 1) > 0);
    c.attention = 0;
    assert_true(fabs(sd_cost_predict(&c, s, 1, 1) - 0.5e-3) < 1e-12); /* half of what two layers cost */
    sd_schedule_free(s);
}

static void the_slowest_that_is_fast_enough(void **state)
{
    (void)state;
    for (double head = 0; head < 5; head += 1.3) {
        const sd_cost c = linear(head);
        double before = 1;
        int layers_before = 48;
        for (double target = 1; target <= 4; target += 0.1) {
            const sd_wall_task task = task_of(target);
            sd_schedule_options o = usual();
            const double predicted = choose(&o, &c, &task);
            assert_true(predicted >= target);
            assert_true(predicted < target * 1.15); /* steps of half a layer in the mean */
            assert_true(fabs(predicted - again(&o, &c, &task)) < 1e-12);
            assert_true(predicted >= before);
            assert_true(o.max_layers + o.min_layers <= layers_before);
            before = predicted;
            layers_before = o.max_layers + o.min_layers;
            assert_int_equal(o.horizon, 40);
            assert_int_equal(o.warmup, 1);
            assert_true(target > 1 ? !o.full : o.full);
            assert_true(o.full || 2 * o.min_layers >= o.max_layers - 2); /* falls to about half, as the presets do */
        }
    }
}

static char warned[512];

static void keep(void *user, const char *message)
{
    (void)user;
    (void)snprintf(warned, sizeof warned, "%s", message);
}

static void out_of_reach_is_the_fastest(void **state)
{
    (void)state;
    sd_set_log(keep, NULL);
    const sd_cost c = linear(10); /* the head alone: at most 34 / 12 */
    const sd_wall_task task = task_of(5);
    sd_schedule_options o = usual();
    const double predicted = choose(&o, &c, &task);
    assert_true(fabs(predicted - 34.0 / 12) < 1e-9);
    assert_int_equal(o.max_layers, 2);
    assert_int_equal(o.min_layers, 2);
    for (int i = 0; i < 6; i++) {
        const char *const parts[] = {"speedup 5 is out of reach", "at most 2.83x", "4 rows", "34 ms at full depth",
                                     "12 ms with the fewest layers (2)", "10 ms (the output head"};
        assert_non_null(strstr(warned, parts[i]));
    }
    warned[0] = '\0';
    const sd_wall_task easy = task_of(2.5);
    assert_true(choose(&o, &c, &easy) >= 2.5);
    assert_string_equal(warned, "");
    const sd_cost one = {.rows = 1, .position = 3, .n_points = 1, .layers = {1}, .seconds = {2e-3}};
    const sd_wall_task single = {1, 3, 5, 2};
    sd_schedule_options flat = usual();
    flat.warmup = 0;
    assert_true(choose(&flat, &one, &single) == 1);
    assert_true(flat.full);
    assert_non_null(strstr(warned, "1 row,"));
    sd_set_log(NULL, NULL);
}

static void what_the_model_says_is_kept(void **state)
{
    (void)state;
    const sd_cost c = linear(2);
    const sd_wall_task task = task_of(2);
    sd_error err = {0};
    sd_schedule_options o = usual();
    o.warmup = 9;
    o.horizon = 7;
    o.prompt = 18;
    assert_true(choose(&o, &c, &task) >= 2);
    assert_true(o.warmup == 9 && o.horizon == 7 && o.prompt == 18);
    assert_true(o.max_layers <= 18 && o.min_layers >= 10);
    const sd_wall_task fast = task_of(100);
    assert_true(choose(&o, &c, &fast) < 100);
    assert_true(o.max_layers == 10 && o.min_layers == 10);
    o.prompt = 10; /* nothing above warm-up + 1 may run */
    assert_true(choose(&o, &c, &task) > 2);
    o.prompt = 9;
    double predicted;
    sd_assert_fails(sd_cost_choose(&o, &c, &task, &predicted, &err), SD_ERR_ARG, &err, "prompt=9");
    o.prompt = SD_PROMPT_MAX;
    o.warmup = 24;
    sd_assert_fails(sd_cost_choose(&o, &c, &task, &predicted, &err), SD_ERR_ARG, &err, "warmup 24: expected 0 .. 23");
    o.warmup = -1;
    sd_assert_fails(sd_cost_choose(&o, &c, &task, &predicted, &err), SD_ERR_ARG, &err, "warmup -1");
    int ranking[24];
    for (int l = 0; l < 24; l++) {
        ranking[l] = 23 - l;
    }
    o = usual();
    o.warmup = 20; /* means nothing where the order is given */
    o.ranking = ranking;
    o.n_ranking = 24;
    assert_true(choose(&o, &c, &fast) < 100);
    assert_true(o.max_layers == 1 && o.ranking == ranking);
    o.n_ranking = 23;
    sd_assert_fails(sd_cost_choose(&o, &c, &task, &predicted, &err), SD_ERR_ARG, &err, "ranking");
    o = usual();
    sd_assert_ok(sd_schedule_parse(&o, "budgets=9:8:7", &err), &err); /* a list gives way, as with a preset */
    assert_true(choose(&o, &c, &task) >= 2);
    assert_null(o.budgets);
    sd_schedule_options_clear(&o);
}

static void nonsense_is_no_cost(void **state)
{
    (void)state;
    const sd_cost good = linear(1);
    for (int i = 0; i < 13; i++) {
        sd_cost c = good;
        switch (i) {
        case 0: c.rows = 0; break;
        case 1: c.position = 0; break;
        case 2: c.n_points = 0; break;
        case 3: c.n_points = 6; break;
        case 4: c.layers[0] = 0; break;
        case 5: c.layers[1] = 2; break;
        case 6: c.layers[4] = 25; break;
        case 7: c.seconds[2] = NAN; break;
        case 8: c.seconds[4] = INFINITY; break;
        case 9: c.seconds[0] = 0; break;
        case 10: c.seconds[3] = 1e-3; break;
        case 11: c.attention = NAN; break;
        default: c.attention = -1;
        }
        assert_false(sd_cost_is_valid(&c, 24));
    }
    assert_false(sd_cost_is_valid(&good, 23));
    assert_true(sd_cost_is_valid(&good, 24));
}

static void the_smallest_models_can_be_measured(void **state)
{
    (void)state;
    const sd_tiny_options models[] = {{.n_layers = 1}, {.n_layers = 2, .max_positions = 2},
                                      {.n_layers = 3, .max_positions = 3, .vocab = 5}, {.max_positions = 9},
                                      {.n_layers = 13, .max_positions = 200, .post_norm = true}};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        sd_model *m = sd_tiny_model_of(&models[i], 2);
        sd_model_info info;
        sd_model_get_info(m, &info);
        for (int rows = 1; rows <= 5; rows += 4) {
            for (int positions = 1; positions <= 4000; positions *= 20) {
                sd_cost c;
                sd_error err = {0};
                sd_assert_ok(sd_cost_measure(&c, m, rows, positions, &err), &err);
                assert_true(sd_cost_is_valid(&c, info.n_layers));
                assert_int_equal(c.rows, rows);
                assert_true(sd_cost_predict(&c, NULL, 1, 1) > 0);
            }
        }
        sd_model_free(m);
    }
    sd_error err = {0};
    sd_cost c;
    sd_model *m = sd_tiny_model_of(&(sd_tiny_options){.max_positions = 1}, 1);
    sd_assert_fails(sd_cost_measure(&c, m, 1, 1, &err), SD_ERR_LIMIT, &err, "1 position");
    sd_model_free(m);
}

static void the_public_call(void **state)
{
    (void)state;
    sd_error err = {0};
    double predicted = 0;
    sd_model *m = sd_tiny_model_of(&(sd_tiny_options){.n_layers = 12}, 1);
    sd_schedule_options o = usual();
    sd_assert_ok(sd_schedule_for_wall(&o, m, 1, 3, 5, 6, &predicted, &err), &err);
    assert_true(o.full && predicted == 1);
    sd_assert_ok(sd_schedule_for_wall(&o, m, 1.3, 3, 5, 6, &predicted, &err), &err);
    assert_true(!o.full && predicted > 1 && o.horizon == 6);
    const double bad[] = {0.5, NAN, INFINITY, -1};
    for (int i = 0; i < 4; i++) {
        sd_assert_fails(sd_schedule_for_wall(&o, m, bad[i], 1, 1, 1, &predicted, &err), SD_ERR_ARG, &err, "speedup");
    }
    sd_assert_fails(sd_schedule_for_wall(&o, m, 2, 0, 1, 1, &predicted, &err), SD_ERR_ARG, &err, "0 rows");
    sd_assert_fails(sd_schedule_for_wall(&o, m, 2, 1, 0, 1, &predicted, &err), SD_ERR_ARG, &err, "0 prompt");
    sd_assert_fails(sd_schedule_for_wall(&o, m, 2, 1, 1, 0, &predicted, &err), SD_ERR_ARG, &err, "0 steps");
    sd_model_free(m);
}

static void an_allocation_that_fails_is_an_error(void **state)
{
    (void)state;
    sd_model *m = sd_tiny_model_of(&(sd_tiny_options){.n_layers = 3}, 1);
    int rc = SD_ERR_MEMORY;
    long n = 0;
    while (rc != SD_OK) {
        sd_schedule_options o = usual();
        sd_error err = {0};
        double predicted;
        sd_alloc_fail_at(++n);
        rc = sd_schedule_for_wall(&o, m, 2, 2, 20, 20, &predicted, &err);
        sd_alloc_fail_at(0);
        if (rc != SD_OK) {
            sd_assert_fails(rc, SD_ERR_MEMORY, &err, "out of memory");
        }
        sd_schedule_options_clear(&o);
    }
    assert_true(n > 30);
    sd_model_free(m);
}

int main(void)
{
    sd_skip_unless_level();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(seconds_add_up),
        cmocka_unit_test(no_step_costs_nothing),
        cmocka_unit_test(the_slowest_that_is_fast_enough),
        cmocka_unit_test(out_of_reach_is_the_fastest),
        cmocka_unit_test(what_the_model_says_is_kept),
        cmocka_unit_test(nonsense_is_no_cost),
        cmocka_unit_test(the_smallest_models_can_be_measured),
        cmocka_unit_test(the_public_call),
        cmocka_unit_test(an_allocation_that_fails_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
