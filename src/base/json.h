/* SPDX-License-Identifier: MIT
 *
 * Reading JSON files with jansson: one set of flags, and getters whose errors name the file's key, what was found and
 * what was expected. Integers are decoded as reals, because tokenizer files hold integers beyond 64 bits. */
#ifndef SD_BASE_JSON_H
#define SD_BASE_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "src/base/error.h"

/* *out is the caller's (json_decref). Duplicate keys and anything after the value are errors. name: for messages. */
int sd_json_parse(json_t **out, const char *text, size_t len, const char *name, sd_error *err);
int sd_json_load(json_t **out, const char *path, sd_error *err);

/* Getters on an object. A missing `required` key fails with the key's name; an optional one that is missing or null
 * leaves *value as it was. Strings are borrowed from `object`. */
int sd_json_get_int(const json_t *object, const char *key, bool required, int64_t min, int64_t max, int64_t *value,
                    sd_error *err);
int sd_json_get_number(const json_t *object, const char *key, bool required, double *value, sd_error *err);
int sd_json_get_bool(const json_t *object, const char *key, bool required, bool *value, sd_error *err);
int sd_json_get_string(const json_t *object, const char *key, bool required, const char **value, sd_error *err);

/* A number that is integral and within +-2^53. */
bool sd_json_as_int(const json_t *value, int64_t *out);
const char *sd_json_type_name(const json_t *value); /* "a string", "nothing", ... for messages */

#endif
