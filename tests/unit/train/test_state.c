/* SPDX-License-Identifier: MIT
 *
 * A run's state comes back to the last bit, and a setting that differs is named. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/file.h"
#include "src/base/json.h"
#include "src/train/state.h"
#include "tests/support/support.h"

static char *dir, *path;

static int setup(void **state)
{
    (void)state;
    dir = sd_make_temp_dir();
    path = sd_path_join(dir, "state.json");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sd_free(path);
    sd_remove_temp_dir(dir);
    return 0;
}

/* Written with ' for ". */
static json_t *json(const char *text)
{
    char copy[1024];
    (void)snprintf(copy, sizeof copy, "%s", text);
    for (char *c = copy; *c; c++) {
        *c = *c == '\'' ? '"' : *c;
    }
    json_t *o = json_loads(copy, 0, NULL);
    assert_non_null(o);
    return o;
}

static sd_train_state some_state(void)
{
    return (sd_train_state){
        .at = {.step = 1234567890123, .epoch = 3, .batch = 17, .batches = 99, .tokens = 1 << 30, .average = 1.0 / 3,
               .lowest = 0x1.fffffffffffffp-1000, .watched = 50},
        .best_step = 1200, .best_loss = 3.141592653589793, .waiting = 2, .evaluated = 1230, .log_bytes = 4711,
        .elapsed = 1e-300};
}

static void test_comes_back(void **unused)
{
    (void)unused;
    sd_error err;
    json_t *settings = json("{'--lr': 0.1, '--batch': 80, '--data': 'abc', '--keep': 'best'}"), *back;
    const sd_train_state state = some_state();
    sd_train_state read;
    memset(&read, 0, sizeof read);
    sd_assert_ok(sd_train_state_save(&state, settings, path, &err), &err);
    sd_assert_ok(sd_train_state_load(&read, &back, path, &err), &err);
    assert_memory_equal(&read, &state, sizeof state);
    sd_assert_ok(sd_train_settings_compare(settings, back, &err), &err);
    json_decref(back);

    sd_train_state fresh = {.best_step = -1, .best_loss = INFINITY};
    sd_assert_ok(sd_train_state_save(&fresh, settings, path, &err), &err);
    sd_assert_ok(sd_train_state_load(&read, &back, path, &err), &err);
    assert_int_equal(read.best_step, -1);
    json_decref(back);
    json_decref(settings);
}

static void test_settings(void **unused)
{
    (void)unused;
    static const struct {
        const char *now, *before, *says;
    } cases[] = {
        {"{'--lr': 0.2}", "{'--lr': 0.1}", "--lr is 0.2 and was 0.1 when this run began"},
        {"{'--lr': 0.1, '--batch': 8}", "{'--batch': 16, '--lr': 0.1}", "--batch is 8 and was 16"},
        {"{'--lr': 0.1, '--dev': 'x'}", "{'--lr': 0.1}", "--dev is \"x\" and was not given"},
        {"{'--lr': 0.1}", "{'--lr': 0.1, '--dev': 'x'}", "--dev is not given and was \"x\""},
        {"{'--lr': '0.1'}", "{'--lr': 0.1}", "--lr is \"0.1\" and was 0.1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *now = json(cases[i].now), *before = json(cases[i].before);
        sd_error err;
        sd_assert_fails(sd_train_settings_compare(now, before, &err), SD_ERR_ARG, &err, cases[i].says);
        sd_assert_ok(sd_train_settings_compare(now, now, &err), &err);
        json_decref(now);
        json_decref(before);
    }
}

static void test_damaged(void **unused)
{
    (void)unused;
    static const char *const texts[] = {"", "{", "[]", "{}", "{\"format\": 2}", "{\"format\": 1}",
                                        "{\"format\": 1, \"step\": 1.5}", "{\"format\": 1, \"step\": -7}"};
    sd_error err;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        sd_train_state state;
        json_t *settings;
        sd_write_file(path, texts[i], strlen(texts[i]));
        sd_assert_fails(sd_train_state_load(&state, &settings, path, &err), SD_ERR_FORMAT, &err, "state.json");
        assert_null(settings);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_comes_back), cmocka_unit_test(test_settings),
                                       cmocka_unit_test(test_damaged)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
