/* SPDX-License-Identifier: MIT
 *
 * The policies to compare with: what they rank, that all of them spend the same, and that what their names say is so
 * for every number of layers. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/schedule/schedule.h"
#include "tests/support/support.h"

static const char *const names[] = {"skipdecode", "early-exit", "spread", "unified"};
enum { N_NAMES = sizeof names / sizeof *names, HORIZON = 50, MOST_LAYERS = 64 };

static sd_schedule *make(const char *name, int n_layers, double speedup)
{
    sd_error err = {0};
    sd_schedule_options o;
    sd_schedule *s = NULL;
    sd_schedule_options_default(&o);
    o.horizon = HORIZON;
    sd_assert_ok(sd_schedule_policy(&o, name, n_layers, speedup, &err), &err);
    sd_assert_ok(sd_schedule_create(&s, n_layers, HORIZON + 1, &o, &err), &err);
    sd_schedule_options_clear(&o);
    return s;
}

static void expect_sets(const char *name, int n_layers, double speedup, int step, const char *want)
{
    sd_schedule *s = make(name, n_layers, speedup);
    char got[MOST_LAYERS + 1] = "";
    for (int l = 0; l < n_layers; l++) {
        got[l] = sd_schedule_runs(s, l, step) ? '#' : '.';
    }
    got[n_layers] = '\0';
    assert_string_equal(got, want);
    sd_schedule_free(s);
}

static void what_runs(void **state)
{
    (void)state;
    expect_sets("skipdecode", 12, 2, 0, "#....#######");
    expect_sets("early-exit", 12, 2, 0, "########....");
    expect_sets("early-exit", 12, 2, HORIZON, "####........");
    expect_sets("spread", 12, 2, HORIZON, "#....#..#..#");
    expect_sets("spread", 12, 3, HORIZON, "#....#.....#");
    expect_sets("unified", 12, 2, 0, "#.#.#..#.#.#");
    expect_sets("unified", 12, 2, HORIZON, "#.#.#..#.#.#");
    expect_sets("unified", 12, 4, 7, "#.....#....#");
    expect_sets("unified", 12, 12, 0, "...........#");
    expect_sets("unified", 12, 1, 0, "############");
}

/* Each policy's mean budget is the preset's, up to the rounding of unified's constant. */
static void same_cost(void **state)
{
    (void)state;
    for (int n = 6; n <= MOST_LAYERS; n++) {
        for (double speedup = 1; speedup <= 5 && n / speedup >= 3; speedup += 0.5) {
            sd_schedule *base = make("skipdecode", n, speedup);
            for (int i = 1; i < N_NAMES; i++) {
                sd_schedule *s = make(names[i], n, speedup);
                int64_t spent = 0, wanted = 0;
                for (int j = 0; j < HORIZON; j++) {
                    spent += sd_schedule_budget(s, j);
                    wanted += sd_schedule_budget(base, j);
                }
                const double difference = fabs((double)(spent - wanted)) / HORIZON;
                if (difference > (strcmp(names[i], "unified") == 0 ? 1.01 : 0.0)) {
                    fail_msg("%s: %d layers at %gx: a mean of %.2f layers, %.2f for skipdecode", names[i], n, speedup,
                             (double)spent / HORIZON, (double)wanted / HORIZON);
                }
                sd_schedule_free(s);
            }
            sd_schedule_free(base);
        }
    }
}

/* At every budget of two or more, first and last layer run, and no gap is more than twice another and one. */
static void spread_is_even(void **state)
{
    (void)state;
    for (int n = 3; n <= MOST_LAYERS; n++) {
        sd_schedule *s = make("spread", n, 1.5);
        const int *rank = sd_schedule_ranks(s);
        for (int k = 2; k <= n; k++) {
            int least = n, most = 0, before = -1;
            for (int l = 0; l < n; l++) {
                if (rank[l] < k) {
                    if (before >= 0) {
                        least = l - before < least ? l - before : least;
                        most = l - before > most ? l - before : most;
                    }
                    before = l;
                }
            }
            assert_true(rank[0] < k && rank[n - 1] < k);
            assert_true(most <= 2 * least + 1);
        }
        sd_schedule_free(s);
    }
}

static void wrong_ones(void **state)
{
    (void)state;
    sd_error err = {0};
    sd_schedule_options o;
    sd_schedule_options_default(&o);
    sd_assert_fails(sd_schedule_policy(&o, "fast", 12, 2, &err), SD_ERR_ARG, &err, "policy \"fast\"; expected");
    sd_assert_fails(sd_schedule_policy(&o, "spread", 12, 0.5, &err), SD_ERR_ARG, &err, "at least 1");
    /* a second one takes the place of the first */
    sd_assert_ok(sd_schedule_policy(&o, "spread", 12, 2, &err), &err);
    sd_assert_ok(sd_schedule_policy(&o, "unified", 12, 2, &err), &err);
    assert_int_equal(o.n_ranking, 12);
    assert_int_equal(o.ranking[1], 2);
    sd_schedule_options_clear(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_runs), cmocka_unit_test(same_cost), cmocka_unit_test(spread_is_even),
        cmocka_unit_test(wrong_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
