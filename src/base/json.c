/* SPDX-License-Identifier: MIT */
#include "src/base/json.h"

#include <math.h>

#include "src/base/file.h"

int sd_json_parse(json_t **out, const char *text, size_t len, const char *name, sd_error *err)
{
    json_error_t je;
    *out = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL | JSON_DECODE_ANY, &je);
    if (!*out) {
        if (json_error_code(&je) == json_error_out_of_memory || je.text[0] == '\0') { /* it has no words for it */
            return sd_fail(err, SD_ERR_MEMORY, "%s: out of memory while parsing JSON", name);
        }
        return sd_fail(err, SD_ERR_FORMAT, "%s: not valid JSON at line %d, column %d: %s", name, je.line, je.column,
                       je.text);
    }
    return SD_OK;
}

int sd_json_load(json_t **out, const char *path, sd_error *err)
{
    *out = NULL;
    sd_file file;
    int rc = sd_file_open(&file, path, false, err);
    if (rc != SD_OK) {
        return rc;
    }
    rc = sd_json_parse(out, (const char *)file.data, file.size, path, err);
    sd_file_close(&file);
    return rc;
}

const char *sd_json_type_name(const json_t *value)
{
    if (!value) {
        return "nothing";
    }
    switch (json_typeof(value)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "an array";
    case JSON_STRING: return "a string";
    case JSON_INTEGER:
    case JSON_REAL: return "a number";
    case JSON_TRUE:
    case JSON_FALSE: return "a boolean";
    case JSON_NULL: return "null";
    }
    return "something unknown";
}

bool sd_json_as_int(const json_t *value, int64_t *out)
{
    if (!json_is_number(value)) {
        return false;
    }
    double x = json_number_value(value);
    if (!(fabs(x) <= 0x1p53) || x != floor(x)) {
        return false;
    }
    *out = (int64_t)x;
    return true;
}

/* 1: present; 0: absent and optional; negative: the error. */
static int find(const json_t *object, const char *key, bool required, const json_t **value, sd_error *err)
{
    if (!json_is_object(object)) {
        return sd_fail(err, SD_ERR_FORMAT, "expected a JSON object holding \"%s\", found %s", key,
                       sd_json_type_name(object));
    }
    *value = json_object_get(object, key);
    if (*value && !(json_is_null(*value) && !required)) {
        return 1;
    }
    return required ? sd_fail(err, SD_ERR_FORMAT, "key \"%s\" is missing", key) : 0;
}

int sd_json_get_int(const json_t *object, const char *key, bool required, int64_t min, int64_t max, int64_t *value,
                    sd_error *err)
{
    const json_t *found = NULL;
    int rc = find(object, key, required, &found, err);
    if (rc <= 0) {
        return rc;
    }
    int64_t x;
    if (!sd_json_as_int(found, &x)) {
        return sd_fail(err, SD_ERR_FORMAT, "key \"%s\": expected an integer, found %s", key,
                       json_is_number(found) ? "a number that is not one" : sd_json_type_name(found));
    }
    if (x < min || x > max) {
        return sd_fail(err, SD_ERR_FORMAT, "key \"%s\": %lld is outside %lld .. %lld", key, (long long)x,
                       (long long)min, (long long)max);
    }
    *value = x;
    return SD_OK;
}

int sd_json_get_number(const json_t *object, const char *key, bool required, double *value, sd_error *err)
{
    const json_t *found = NULL;
    int rc = find(object, key, required, &found, err);
    if (rc <= 0) {
        return rc;
    }
    if (!json_is_number(found)) {
        return sd_fail(err, SD_ERR_FORMAT, "key \"%s\": expected a number, found %s", key, sd_json_type_name(found));
    }
    *value = json_number_value(found);
    return SD_OK;
}

int sd_json_get_bool(const json_t *object, const char *key, bool required, bool *value, sd_error *err)
{
    const json_t *found = NULL;
    int rc = find(object, key, required, &found, err);
    if (rc <= 0) {
        return rc;
    }
    if (!json_is_boolean(found)) {
        return sd_fail(err, SD_ERR_FORMAT, "key \"%s\": expected true or false, found %s", key,
                       sd_json_type_name(found));
    }
    *value = json_is_true(found);
    return SD_OK;
}

int sd_json_get_string(const json_t *object, const char *key, bool required, const char **value, sd_error *err)
{
    const json_t *found = NULL;
    int rc = find(object, key, required, &found, err);
    if (rc <= 0) {
        return rc;
    }
    if (!json_is_string(found)) {
        return sd_fail(err, SD_ERR_FORMAT, "key \"%s\": expected a string, found %s", key, sd_json_type_name(found));
    }
    *value = json_string_value(found);
    return SD_OK;
}
