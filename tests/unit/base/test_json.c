/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/json.h"
#include "tests/support/support.h"

static json_t *parse(const char *text)
{
    json_t *value;
    sd_error err = {0};
    sd_assert_ok(sd_json_parse(&value, text, strlen(text), "test.json", &err), &err);
    return value;
}

static void refuse(const char *text, size_t len, const char *part)
{
    json_t *value = (json_t *)1;
    sd_error err = {0};
    sd_assert_fails(sd_json_parse(&value, text, len, "test.json", &err), SD_ERR_FORMAT, &err, part);
    assert_null(value);
    assert_non_null(strstr(err.message, "test.json"));
}

static void test_malformed(void **state)
{
    (void)state;
    refuse("", 0, "line");
    refuse("{", 1, "line 1");
    refuse("{\"a\": 1,\n \"b\": }", 16, "line 2");
    refuse("{\"a\": 1, \"a\": 2}", 16, "duplicate");
    refuse("{} x", 4, "end of file");
    refuse("{\"a\": \"\xFF\"}", 10, "decode byte");
    refuse("{\"a\": 1e999}", 12, "overflow");
    refuse("{\"a\": NaN}", 10, "line 1");
    refuse("{\"a\0\": 1}", 9, "line 1");

    enum { DEEP = 100000 }; /* would overflow the stack of a parser that only recurses */
    char *deep = malloc(DEEP);
    assert_non_null(deep);
    memset(deep, '[', DEEP);
    refuse(deep, DEEP, "depth");
    free(deep);
}

static void test_any_value_at_the_top(void **state)
{
    (void)state;
    static const char *const texts[] = {"{}", "[]", "\"x\"", "1", "true", "null"};
    static const char *const names[] = {"an object", "an array", "a string", "a number", "a boolean", "null"};
    for (size_t i = 0; i < 6; i++) {
        json_t *value = parse(texts[i]);
        assert_string_equal(sd_json_type_name(value), names[i]);
        json_decref(value);
    }
    assert_string_equal(sd_json_type_name(NULL), "nothing");
}

static void test_integers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool ok;
        int64_t value;
    } cases[] = {
        {"0", true, 0}, {"-0", true, 0}, {"-7", true, -7}, {"2.0", true, 2}, {"1e3", true, 1000}, {"1.5", false, 0},
        {"9007199254740992", true, INT64_C(1) << 53}, {"-9007199254740992", true, -(INT64_C(1) << 53)},
        {"9007199254740994", false, 0}, {"123456789012345678901234567890", false, 0}, {"1e308", false, 0},
        {"\"1\"", false, 0}, {"true", false, 0}, {"null", false, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *value = parse(cases[i].text);
        int64_t x = 4711;
        assert_int_equal(sd_json_as_int(value, &x), cases[i].ok);
        assert_int_equal(x, cases[i].ok ? cases[i].value : 4711);
        json_decref(value);
    }
    int64_t x;
    assert_false(sd_json_as_int(NULL, &x));
}

static void test_getters(void **state)
{
    (void)state;
    json_t *o = parse("{\"i\": 12, \"d\": 0.5, \"t\": true, \"f\": false, \"s\": \"text\", \"n\": null}");
    sd_error err = {0};
    int64_t i = 0;
    double d = 0;
    bool b = false;
    const char *s = NULL;
    sd_assert_ok(sd_json_get_int(o, "i", true, 12, 12, &i, &err), &err);
    assert_int_equal(i, 12);
    sd_assert_ok(sd_json_get_number(o, "d", true, &d, &err), &err);
    assert_true(d == 0.5);
    sd_assert_ok(sd_json_get_number(o, "i", true, &d, &err), &err);
    assert_true(d == 12);
    sd_assert_ok(sd_json_get_bool(o, "t", true, &b, &err), &err);
    assert_true(b);
    sd_assert_ok(sd_json_get_bool(o, "f", true, &b, &err), &err);
    assert_false(b);
    sd_assert_ok(sd_json_get_string(o, "s", true, &s, &err), &err);
    assert_string_equal(s, "text");
    json_decref(o);
}

static void test_absent_and_null(void **state)
{
    (void)state;
    json_t *o = parse("{\"n\": null}");
    static const char *const keys[] = {"n", "absent"};
    for (size_t k = 0; k < 2; k++) {
        sd_error err = {0};
        int64_t i = 5;
        double d = 5;
        bool b = true;
        const char *s = "kept";
        sd_assert_ok(sd_json_get_int(o, keys[k], false, 0, 9, &i, &err), &err);
        sd_assert_ok(sd_json_get_number(o, keys[k], false, &d, &err), &err);
        sd_assert_ok(sd_json_get_bool(o, keys[k], false, &b, &err), &err);
        sd_assert_ok(sd_json_get_string(o, keys[k], false, &s, &err), &err);
        assert_true(i == 5 && d == 5 && b && strcmp(s, "kept") == 0);
        /* required: an absent key is missing, null is of the wrong type */
        const char *part = k == 0 ? "null" : "missing";
        sd_assert_fails(sd_json_get_int(o, keys[k], true, 0, 9, &i, &err), SD_ERR_FORMAT, &err, part);
        sd_assert_fails(sd_json_get_number(o, keys[k], true, &d, &err), SD_ERR_FORMAT, &err, part);
        sd_assert_fails(sd_json_get_bool(o, keys[k], true, &b, &err), SD_ERR_FORMAT, &err, part);
        sd_assert_fails(sd_json_get_string(o, keys[k], true, &s, &err), SD_ERR_FORMAT, &err, part);
        assert_non_null(strstr(err.message, keys[k]));
        assert_true(i == 5 && d == 5 && b && strcmp(s, "kept") == 0);
    }
    json_decref(o);
}

/* The message names the key, what was found and what was expected. */
static void test_wrong_values(void **state)
{
    (void)state;
    json_t *o = parse("{\"k\": \"x\", \"h\": 1.5, \"m\": 70000}"), *array = parse("[1]");
    sd_error err = {0};
    int64_t i;
    double d;
    bool b;
    const char *s;
    sd_assert_fails(sd_json_get_int(o, "k", true, 0, 9, &i, &err), SD_ERR_FORMAT, &err,
                    "\"k\": expected an integer, found a string");
    sd_assert_fails(sd_json_get_int(o, "h", true, 0, 9, &i, &err), SD_ERR_FORMAT, &err, "\"h\": expected an integer");
    sd_assert_fails(sd_json_get_int(o, "m", true, 1, 65536, &i, &err), SD_ERR_FORMAT, &err,
                    "70000 is outside 1 .. 65536");
    sd_assert_fails(sd_json_get_number(o, "k", false, &d, &err), SD_ERR_FORMAT, &err, "expected a number");
    sd_assert_fails(sd_json_get_bool(o, "m", false, &b, &err), SD_ERR_FORMAT, &err, "expected true or false");
    sd_assert_fails(sd_json_get_string(o, "m", false, &s, &err), SD_ERR_FORMAT, &err, "expected a string");
    sd_assert_fails(sd_json_get_int(array, "k", false, 0, 9, &i, &err), SD_ERR_FORMAT, &err, "found an array");
    sd_assert_fails(sd_json_get_int(NULL, "k", false, 0, 9, &i, &err), SD_ERR_FORMAT, &err, "found nothing");
    json_decref(o);
    json_decref(array);
}

static void test_load(void **state)
{
    (void)state;
    char *dir = sd_make_temp_dir(), path[4096];
    (void)snprintf(path, sizeof path, "%s/x.json", dir);
    json_t *value;
    sd_error err = {0};
    sd_assert_fails(sd_json_load(&value, path, &err), SD_ERR_IO, &err, "x.json");
    assert_null(value);
    sd_write_file(path, "", 0);
    sd_assert_fails(sd_json_load(&value, path, &err), SD_ERR_FORMAT, &err, "x.json");
    sd_write_file(path, "{\"a\": 3}", 8);
    sd_assert_ok(sd_json_load(&value, path, &err), &err);
    int64_t a = 0;
    sd_assert_ok(sd_json_get_int(value, "a", true, 0, 9, &a, &err), &err);
    assert_int_equal(a, 3);
    json_decref(value);
    sd_remove_temp_dir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_malformed), cmocka_unit_test(test_any_value_at_the_top), cmocka_unit_test(test_integers),
        cmocka_unit_test(test_getters), cmocka_unit_test(test_absent_and_null), cmocka_unit_test(test_wrong_values),
        cmocka_unit_test(test_load),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
