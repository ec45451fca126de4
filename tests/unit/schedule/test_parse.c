/* SPDX-License-Identifier: MIT
 *
 * The text form: what is read, that a schedule's own text gives the same schedule again, and that every mistake is
 * answered with the key and what was expected. */
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/schedule/schedule.h"
#include "tests/support/random_schedule.h"
#include "tests/support/support.h"

/* Both steps that a text goes through; NULL with *rc and *err set when one refuses it. */
static sd_schedule *from_text(const char *text, int n_layers, int max_tokens, int *rc, sd_error *err)
{
    sd_schedule *schedule = NULL;
    sd_schedule_options o;
    sd_schedule_options_default(&o);
    *rc = sd_schedule_parse(&o, text, err);
    if (*rc == SD_OK) {
        *rc = sd_schedule_create(&schedule, n_layers, max_tokens, &o, err);
    }
    sd_schedule_options_clear(&o);
    return schedule;
}

static sd_schedule *good(const char *text, int n_layers, int max_tokens)
{
    int rc;
    sd_error err = {0};
    sd_schedule *schedule = from_text(text, n_layers, max_tokens, &rc, &err);
    sd_assert_ok(rc, &err);
    return schedule;
}

static void every_key_lands_in_its_field(void **state)
{
    (void)state;
    sd_error err = {0};
    sd_schedule_options o;
    sd_schedule_options_default(&o);
    sd_assert_ok(sd_schedule_parse(&o, "warmup=2,max=16,min=08,horizon=64,prompt=20,ranking=3:0:2:1", &err), &err);
    assert_false(o.full);
    assert_int_equal(o.warmup, 2);
    assert_int_equal(o.max_layers, 16);
    assert_int_equal(o.min_layers, 8);
    assert_int_equal(o.horizon, 64);
    assert_int_equal(o.prompt, 20);
    assert_int_equal(o.n_ranking, 4);
    assert_int_equal(o.ranking[0], 3);
    assert_int_equal(o.ranking[3], 1);

    sd_assert_ok(sd_schedule_parse(&o, "budgets=9:7:7", &err), &err); /* over what it holds */
    assert_int_equal(o.n_budgets, 3);
    assert_int_equal(o.budgets[0], 9);
    assert_int_equal(o.budgets[2], 7);
    assert_int_equal(o.warmup, 2);
    assert_int_equal(o.n_ranking, 4);

    sd_assert_ok(sd_schedule_parse(&o, "max=5,prompt=max", &err), &err); /* a line in place of the list */
    assert_null(o.budgets);
    assert_int_equal(o.max_layers, 5);
    assert_int_equal(o.prompt, SD_PROMPT_MAX);
    sd_assert_ok(sd_schedule_parse(&o, "prompt=full", &err), &err);
    assert_int_equal(o.prompt, SD_PROMPT_FULL);

    sd_assert_ok(sd_schedule_parse(&o, "full", &err), &err);
    assert_true(o.full);
    sd_schedule_options_clear(&o);
    assert_null(o.ranking);
}

static void a_text_without_a_budget_is_full_depth(void **state)
{
    (void)state;
    const char *const texts[] = {"full",      "warmup=2", "prompt=max", "ranking=0:2:1:3",
                                 "horizon=5", "max=4",    "budgets=4"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        sd_schedule *s = good(texts[i], 4, 8);
        assert_true(sd_schedule_is_full(s));
        assert_string_equal(sd_schedule_text(s), "full");
        sd_schedule_free(s);
    }
}

static void texts_are_canonical(void **state)
{
    (void)state;
    const struct {
        const char *given, *text;
    } pairs[] = {
        {"max=4,min=2", "warmup=1,max=4,min=2,horizon=9,prompt=full"},
        {"prompt=max,min=2,max=4,horizon=7,warmup=0", "warmup=0,max=4,min=2,horizon=7,prompt=4"},
        {"max=3", "warmup=1,max=3,min=3,horizon=9,prompt=full"},
        {"max=5,min=2,horizon=1", "warmup=1,max=5,min=5,horizon=1,prompt=full"},
        {"budgets=5:4:4:2,prompt=6", "warmup=1,budgets=5:4:4:2,prompt=full"},
        {"budgets=2,ranking=5:4:3:2:1:0,prompt=2", "warmup=1,budgets=2,prompt=2,ranking=5:4:3:2:1:0"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        sd_schedule *s = good(pairs[i].given, 6, 9);
        assert_string_equal(sd_schedule_text(s), pairs[i].text);
        sd_schedule_free(s);
    }
}

static void a_schedules_text_gives_it_again(void **state)
{
    (void)state;
    sd_rng rng;
    sd_rng_seed(&rng, 4);
    for (int i = 0; i < 3000; i++) {
        int n_layers = sd_random_int(&rng, 2, 30), rc;
        sd_error err = {0};
        sd_schedule_options o;
        sd_schedule_options_default(&o);
        sd_random_policy(&o, n_layers, &rng);
        sd_schedule *first, *again;
        sd_assert_ok(sd_schedule_create(&first, n_layers, 20, &o, &err), &err);
        again = from_text(sd_schedule_text(first), n_layers, 7, &rc, &err); /* the text says the horizon */
        sd_assert_ok(rc, &err);
        assert_string_equal(sd_schedule_text(again), sd_schedule_text(first));
        assert_true(sd_schedule_same_ranking(first, again));
        for (int j = -1; j < 45; j++) {
            for (int l = 0; l < n_layers; l++) {
                assert_int_equal(sd_schedule_runs(again, l, j), sd_schedule_runs(first, l, j));
            }
        }
        sd_schedule_free(first);
        sd_schedule_free(again);
        sd_schedule_options_clear(&o);
    }
}

/* ---- mistakes, for a model of 8 layers ---- */

static void mistakes_are_named(void **state)
{
    (void)state;
    static const char pair[] = "key=value", whole[] = "expected an integer of at least 1", once[] = "comes twice",
                      list[] = "integers separated by colons", range[] = "outside 2 .. 8", falls[] = "may only fall",
                      prompt[] = "full, max or a number of layers", every[] = "every one",
                      permutation[] = "expected a permutation of 0 .. 7";
    const struct {
        const char *text, *key, *expected;
    } mistakes[] = {
        {"", "\"\"", pair}, {",", "\"\"", pair}, {"max", "\"max\"", pair}, {"max=4,", "\"\"", pair},
        {",max=4", "\"\"", pair}, {"max=4,,min=2", "\"\"", pair}, {"FULL", "\"FULL\"", pair},
        {"full,max=3", "\"full\"", pair}, {"max=4 min=2", "max", whole}, {"max:4", "\"max:4\"", pair},
        {"=4", "unknown key \"\"", "ranking"}, {"maximum=4", "\"maximum\"", "warmup, max, min"},
        {"Max=4", "\"Max\"", "warmup, max, min"}, {" max=4", "\" max\"", "warmup, max, min"},
        {"max =4", "\"max \"", "warmup, max, min"}, {"max=", "max", whole}, {"max=x", "max", whole},
        {"max=4x", "max", whole}, {"max= 4", "max", whole}, {"max=4.5", "max", whole}, {"max=+4", "max", whole},
        {"max=0", "max", whole}, {"max=-1", "max", whole}, {"max=--1", "max", whole}, {"max=1-1", "max", whole},
        {"max=-", "max", whole}, {"max=0x4", "max", whole}, {"max=99999999999", "max", whole},
        {"max=99999999999999999999999999", "max", whole}, {"min=", "min", whole}, {"min=0", "min", whole},
        {"horizon=0", "horizon", whole}, {"horizon=1e3", "horizon", whole}, {"warmup=-1", "warmup", "at least 0"},
        {"warmup=", "warmup", "at least 0"}, {"warmup=8", "warmup=8", "0 .. 7"},
        {"warmup=1,warmup=1", "\"warmup\"", once}, {"max=4,min=2,max=4", "\"max\"", once},
        {"budgets=4,budgets=4", "\"budgets\"", once}, {"prompt=max,prompt=max", "\"prompt\"", once},
        {"max=9", "max", range}, {"max=1", "max", range}, {"max=4,min=1", "min", range}, {"min=9", "min", range},
        {"warmup=3,max=3", "max", "outside 4 .. 8"}, {"max=3,min=4", "min=4", falls},
        {"max=4,min=2,horizon=1048577", "horizon 1048577", "1 .. 1048576"}, {"budgets=", "budgets", list},
        {"budgets=4:", "budgets", list}, {"budgets=:4", "budgets", list}, {"budgets=4::2", "budgets", list},
        {"budgets=4;2", "budgets", list}, {"budgets=4: 2", "budgets", list},
        {"budgets=4:x:2", "value 2 is \"x\"", list}, {"budgets=4:99999999999", "value 2", list},
        {"budgets=3:4", "step 1 runs 4", falls}, {"budgets=6:5:5:3:4:2", "step 4 runs 4", falls},
        {"budgets=9", "budgets", range}, {"budgets=4:1", "budgets", range}, {"budgets=0", "budgets", range},
        {"budgets=-3", "budgets", range}, {"budgets=4,max=4", "budgets=", "no place"},
        {"min=2,budgets=4", "budgets=", "no place"}, {"budgets=4,horizon=3", "budgets=", "no place"},
        {"prompt=", "prompt", prompt}, {"prompt=none", "prompt", prompt}, {"prompt=-1", "prompt", prompt},
        {"prompt=0", "prompt", prompt}, {"max=4,prompt=3", "prompt=3", "4 .. 8 layers"},
        {"max=4,prompt=9", "prompt=9", "4 .. 8 layers"}, {"budgets=6:2,prompt=5", "prompt=5", "6 .. 8 layers"},
        {"ranking=", "ranking", list}, {"ranking=0:1", "ranking", every},
        {"ranking=0:1:2:3:4:5:6:7:8", "ranking", every},
        {"ranking=0:1:2:3:4:5:6:6", "layer 6 at place 7 comes twice", permutation},
        {"ranking=0:1:2:3:4:5:6:8", "layer 8 at place 7 does not exist", permutation},
        {"ranking=0:1:2:3:4:5:6:-1", "layer -1 at place 7", permutation}, {"ranking=all", "ranking", list},
    };
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        int rc;
        sd_error err = {0};
        sd_schedule *schedule = from_text(mistakes[i].text, 8, 16, &rc, &err);
        assert_null(schedule);
        if (rc != SD_ERR_ARG || err.code != rc || !strstr(err.message, mistakes[i].key) ||
            !strstr(err.message, mistakes[i].expected)) {
            fail_msg("\"%s\" is answered with %d, \"%s\"; expected SD_ERR_ARG with \"%s\" and \"%s\"", mistakes[i].text,
                     rc, err.message, mistakes[i].key, mistakes[i].expected);
        }
    }
}

static void numbers_that_fields_cannot_hold_are_named(void **state)
{
    (void)state;
    const int two[] = {2, 2};
    const struct {
        sd_schedule_options options;
        int n_layers, max_tokens;
        const char *part;
    } mistakes[] = {
        {{.full = true}, 0, 4, "a model of 0 layers"}, {{.full = true}, 1 << 20, 4, "a model of 1048576 layers"},
        {{.full = true}, 4, 0, "max_tokens is 0"}, {{.max_layers = -2}, 4, 4, "max: a budget of -2"},
        {{.min_layers = -2}, 4, 4, "min: a budget of -2"}, {{.horizon = -1}, 4, 4, "horizon -1"},
        {{.warmup = -1}, 4, 4, "warmup=-1"}, {{.prompt = -3}, 4, 4, "prompt=-3"},
        {{.budgets = two, .n_budgets = 0}, 4, 4, "budgets: 0 values"},
        {{.budgets = two, .n_budgets = -1}, 4, 4, "budgets: -1"},
        {{.ranking = two, .n_ranking = 2}, 4, 4, "ranking: 2 layers"},
        {{.max_layers = 4}, 4, INT32_MAX, "horizon 2147483647"},
    };
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        sd_error err = {0};
        sd_schedule *s = (sd_schedule *)(uintptr_t)&err;
        sd_assert_fails(
            sd_schedule_create(&s, mistakes[i].n_layers, mistakes[i].max_tokens, &mistakes[i].options, &err),
            SD_ERR_ARG, &err, mistakes[i].part);
        assert_null(s);
    }
}

static void a_list_longer_than_any_use_is_refused(void **state)
{
    (void)state;
    enum { VALUES = (1 << 20) + 1 };
    char *text = malloc(2 * VALUES + 8);
    assert_non_null(text);
    strcpy(text, "budgets=");
    for (size_t i = 0; i < VALUES; i++) {
        text[8 + 2 * i] = '4';
        text[9 + 2 * i] = ':';
    }
    text[7 + 2 * VALUES] = '\0';
    int rc;
    sd_error err = {0};
    assert_null(from_text(text, 8, 1, &rc, &err));
    sd_assert_fails(rc, SD_ERR_ARG, &err, "more than 1048576 values");
    free(text);
}

/* ---- the picture ---- */

static void drawn(const char *text, int n_layers, int steps, int width, const char *picture)
{
    sd_schedule *s = good(text, n_layers, 4);
    sd_buf out = {0};
    sd_schedule_draw(s, steps, width, &out);
    assert_false(out.failed);
    assert_string_equal(out.data, picture);
    sd_buf_free(&out);
    sd_schedule_free(s);
}

static void the_picture_shows_the_sets(void **state)
{
    (void)state;
    drawn("budgets=4:3:2", 4, 4, 80, "layer   3 |████\nlayer   2 |██··\nlayer   1 |█···\nlayer   0 |████\n");
    drawn("budgets=2:1,ranking=0:1:2", 3, 3, 80, "layer   2 |···\nlayer   1 |█··\nlayer   0 |███\n");
    /* four steps in two columns: steps 0 and 2 */
    drawn("budgets=3:3:2", 3, 4, 2, "layer   2 |██\nlayer   1 |█·\nlayer   0 |██\n");
    drawn("full", 2, 0, 80, "layer   1 |\nlayer   0 |\n");
}

/* ---- memory ---- */

static void an_allocation_that_fails_is_an_error(void **state)
{
    (void)state;
    const char *const texts[] = {"full", "max=6,min=2,horizon=40,prompt=7",
                                 "budgets=6:5:4:3:2,ranking=7:6:5:4:3:2:1:0"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        int rc = SD_ERR_MEMORY;
        for (long n = 1; rc != SD_OK; n++) {
            sd_error err = {0};
            sd_alloc_fail_at(n);
            sd_schedule *s = from_text(texts[i], 8, 16, &rc, &err);
            long tried = sd_alloc_count();
            sd_alloc_fail_at(0);
            if (rc == SD_OK) {
                assert_true(tried < n); /* the failing one was never reached */
                assert_true(n > 3);
            } else {
                sd_assert_fails(rc, SD_ERR_MEMORY, &err, "out of memory");
                assert_null(s);
            }
            sd_schedule_free(s);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key_lands_in_its_field),
        cmocka_unit_test(a_text_without_a_budget_is_full_depth),
        cmocka_unit_test(texts_are_canonical),
        cmocka_unit_test(a_schedules_text_gives_it_again),
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(numbers_that_fields_cannot_hold_are_named),
        cmocka_unit_test(a_list_longer_than_any_use_is_refused),
        cmocka_unit_test(the_picture_shows_the_sets),
        cmocka_unit_test(an_allocation_that_fails_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
