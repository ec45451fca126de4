/* SPDX-License-Identifier: MIT
 *
 * skipdecode.json: what it says, what it may leave out, and each mistake named with the file and the key. */
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/generate/recipe.h"
#include "tests/support/support.h"

/* Reads a directory that holds this text, written with ' for ". NULL: no such file. */
static int load(sd_recipe *recipe, const char *text, sd_error *err)
{
    char *dir = sd_make_temp_dir(), path[4096], json[1024];
    if (text) {
        (void)snprintf(path, sizeof path, "%s/skipdecode.json", dir);
        (void)snprintf(json, sizeof json, "%s", text);
        for (char *c = json; *c; c++) {
            *c = *c == '\'' ? '"' : *c;
        }
        sd_write_file(path, json, strlen(json));
    }
    int rc = sd_recipe_load(recipe, dir, err);
    sd_remove_temp_dir(dir);
    return rc;
}

static sd_recipe good(const char *text)
{
    sd_recipe recipe;
    sd_error err = {0};
    sd_assert_ok(load(&recipe, text, &err), &err);
    return recipe;
}

static void everything_is_read(void **state)
{
    (void)state;
    sd_recipe r = good("{'format': 1, 'prompt_template': '{mr} ->', 'max_tokens': 64, 'trained_speedups': [1, 2, 3.5],"
                       " 'schedule': {'warmup': 2, 'horizon': 40, 'prompt': 12}}");
    assert_true(r.present);
    assert_string_equal(r.prompt_template, "{mr} ->");
    assert_int_equal(r.max_tokens, 64);
    assert_int_equal(r.n_trained, 3);
    assert_true(r.trained[0] == 1 && r.trained[1] == 2 && r.trained[2] == 3.5);
    assert_int_equal(r.schedule.warmup, 2);
    assert_int_equal(r.schedule.horizon, 40);
    assert_int_equal(r.schedule.prompt, 12);
    assert_true(r.schedule.full);
    sd_recipe_clear(&r);
    sd_recipe_clear(&r); /* twice is once */
    const struct {
        const char *text;
        int prompt;
    } prompts[] = {{"{'format': 1, 'schedule': {'prompt': 'full'}}", SD_PROMPT_FULL},
                   {"{'format': 1, 'schedule': {'prompt': 'max'}}", SD_PROMPT_MAX},
                   {"{'format': 1, 'schedule': {}}", SD_PROMPT_FULL}};
    for (int i = 0; i < 3; i++) {
        r = good(prompts[i].text);
        assert_int_equal(r.schedule.prompt, prompts[i].prompt);
        sd_recipe_clear(&r);
    }
}

static void what_is_left_out_has_a_default(void **state)
{
    (void)state;
    const char *const texts[] = {NULL, "{'format': 1}"};
    for (int i = 0; i < 2; i++) {
        sd_recipe r = good(texts[i]);
        assert_int_equal(r.present, i == 1);
        assert_null(r.prompt_template);
        assert_int_equal(r.max_tokens, 0);
        assert_int_equal(r.n_trained, 0);
        assert_true(r.schedule.full);
        assert_int_equal(r.schedule.warmup, 1);
        assert_int_equal(r.schedule.horizon, 0);
        assert_int_equal(r.schedule.prompt, SD_PROMPT_FULL);
        sd_recipe_clear(&r);
    }
}

static void mistakes_are_named(void **state)
{
    (void)state;
    const struct {
        const char *text, *part;
    } bad[] = {
        {"", "not valid JSON"},
        {"{'format': 1", "not valid JSON"},
        {"[1]", "an array"},
        {"{}", "\"format\" is missing"},
        {"{'format': 2}", "\"format\": 2 is outside 1 .. 1"},
        {"{'format': '1'}", "\"format\""},
        {"{'format': 1, 'max_tokens': 0}", "\"max_tokens\": 0 is outside"},
        {"{'format': 1, 'max_tokens': 1e30}", "\"max_tokens\""},
        {"{'format': 1, 'prompt_template': 3}", "\"prompt_template\": expected a string"},
        {"{'format': 1, 'schedule': [1]}", "\"schedule\": expected an object, found an array"},
        {"{'format': 1, 'schedule': {'warmup': -1}}", "\"warmup\": -1 is outside"},
        {"{'format': 1, 'schedule': {'horizon': 0}}", "\"horizon\": 0 is outside"},
        {"{'format': 1, 'schedule': {'prompt': 'most'}}", "\"prompt\": expected \"full\", \"max\" or a number"},
        {"{'format': 1, 'schedule': {'prompt': 0}}", "\"prompt\": expected"},
        {"{'format': 1, 'schedule': {'prompt': 2.5}}", "\"prompt\": expected"},
        {"{'format': 1, 'schedule': {'prompt': true}}", "\"prompt\": expected"},
        {"{'format': 1, 'schedule': {'ranking': 3}}", "\"ranking\": expected a list of layers, found a number"},
        {"{'format': 1, 'schedule': {'ranking': []}}", "\"ranking\": expected a list of layers"},
        {"{'format': 1, 'schedule': {'ranking': [0, -1]}}", "\"ranking\": item 2 is not the number of a layer"},
        {"{'format': 1, 'schedule': {'ranking': [0, 1.5]}}", "\"ranking\": item 2"},
        {"{'format': 1, 'trained_speedups': 2}", "\"trained_speedups\": expected an array, found a number"},
        {"{'format': 1, 'trained_speedups': [2, '3']}", "\"trained_speedups\": expected at most 16 numbers"},
        {"{'format': 1, 'trained_speedups': [0.5]}", "\"trained_speedups\": expected at most 16 numbers"},
        {"{'format': 1, 'trained_speedups': [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}", "expected at most 16 numbers"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        sd_recipe r;
        sd_error err = {0};
        int rc = load(&r, bad[i].text, &err);
        sd_assert_fails(rc, SD_ERR_FORMAT, &err, bad[i].part);
        sd_assert_fails(rc, SD_ERR_FORMAT, &err, "/skipdecode.json: ");
        assert_null(r.prompt_template);
        assert_false(r.present);
        sd_recipe_clear(&r);
    }
    sd_recipe r;
    sd_error err = {0};
    sd_assert_fails(sd_recipe_load(&r, "/nowhere/at/all", &err), SD_ERR_ARG, &err, "no such directory");
}

static void what_is_saved_comes_back(void **state)
{
    (void)state;
    const int ranking[] = {0, 2, 1};
    const sd_recipe all = {
        .prompt_template = (char *)(uintptr_t)"{a}\n\"",
        .max_tokens = 70, .trained = {1, 2.5, 1.0 / 3 + 7}, .n_trained = 3,
        .schedule = {.full = true, .warmup = 2, .horizon = 29, .prompt = 5, .ranking = ranking, .n_ranking = 3}};
    const sd_recipe little = {.schedule = {.full = true, .warmup = 0, .prompt = SD_PROMPT_MAX}};
    const sd_recipe *const saved[] = {&all, &little};
    char *dir = sd_make_temp_dir();
    sd_error err;
    for (int i = 0; i < 2; i++) {
        sd_recipe r;
        const sd_recipe *s = saved[i];
        sd_assert_ok(sd_recipe_save(s, dir, &err), &err);
        sd_assert_ok(sd_recipe_load(&r, dir, &err), &err);
        assert_true(r.prompt_template ? strcmp(r.prompt_template, s->prompt_template) == 0 : !s->prompt_template);
        assert_int_equal(r.max_tokens, s->max_tokens);
        assert_int_equal(r.n_trained, s->n_trained);
        assert_memory_equal(r.trained, s->trained, sizeof r.trained);
        sd_schedule_options o;
        sd_recipe_take_schedule(&r, &o);
        sd_recipe_clear(&r); /* the list is the options' now */
        assert_int_equal(o.warmup, s->schedule.warmup);
        assert_int_equal(o.horizon, s->schedule.horizon);
        assert_int_equal(o.prompt, s->schedule.prompt);
        assert_int_equal(o.n_ranking, s->schedule.n_ranking);
        assert_true(o.n_ranking == 0 || memcmp(o.ranking, ranking, sizeof ranking) == 0);
        sd_schedule_options_clear(&o);
    }
    sd_assert_fails(sd_recipe_save(&all, "/nowhere/at/all", &err), SD_ERR_IO, &err, "/nowhere/at/all/skipdecode.json");
    sd_remove_temp_dir(dir);
}

static void an_allocation_that_fails_is_an_error(void **state)
{
    (void)state;
    int rc = SD_ERR_MEMORY;
    for (long n = 1; rc != SD_OK; n++) {
        sd_recipe r;
        sd_error err = {0};
        sd_alloc_fail_at(n);
        rc = load(&r, "{'format': 1, 'prompt_template': 'x', 'schedule': {'ranking': [1, 0]}}", &err);
        sd_alloc_fail_at(0);
        if (rc != SD_OK) {
            sd_assert_fails(rc, SD_ERR_MEMORY, &err, "out of memory");
        } else {
            assert_true(n > 3);
        }
        sd_recipe_clear(&r);
    }
}

int main(void)
{
    sd_skip_unless_level();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_is_read),
        cmocka_unit_test(what_is_left_out_has_a_default),
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(what_is_saved_comes_back),
        cmocka_unit_test(an_allocation_that_fails_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
