/* SPDX-License-Identifier: MIT
 *
 * The text form of a schedule: comma-separated key=value, lists with colons. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/error.h"
#include "src/schedule/schedule.h"

enum { MAX_LIST = 1 << 20 };

/* One whole decimal integer in text[0..n). */
static bool parse_int(const char *text, size_t n, int *value)
{
    char copy[16];
    if (n == 0 || n >= sizeof copy || strspn(text, "-0123456789") < n) {
        return false;
    }
    memcpy(copy, text, n);
    copy[n] = '\0';
    char *end;
    errno = 0;
    long x = strtol(copy, &end, 10);
    if (errno != 0 || *end != '\0' || x < INT_MIN || x > INT_MAX) {
        return false;
    }
    *value = (int)x;
    return true;
}

static int parse_list(const char *key, const char *text, size_t n, const int **list, int *count, sd_error *err)
{
    size_t colons = 0;
    for (size_t i = 0; i < n; i++) {
        colons += text[i] == ':';
    }
    if (colons >= MAX_LIST) {
        return sd_fail(err, SD_ERR_ARG, "schedule %s: more than %d values", key, MAX_LIST);
    }
    int *values = sd_malloc(colons + 1, sizeof *values);
    if (!values) {
        return sd_fail_memory(err, (colons + 1) * sizeof *values, "a schedule's list");
    }
    const char *item = text, *end = text + n;
    for (size_t i = 0; i <= colons; i++) {
        const char *stop = memchr(item, ':', (size_t)(end - item));
        stop = stop ? stop : end;
        if (!parse_int(item, (size_t)(stop - item), &values[i])) {
            sd_free(values);
            return sd_fail(err, SD_ERR_ARG, "schedule %s: value %zu is \"%.*s\"; expected integers separated by colons",
                           key, i + 1, (int)(stop - item), item);
        }
        item = stop + 1;
    }
    sd_free((void *)(uintptr_t)*list);
    *list = values;
    *count = (int)(colons + 1);
    return SD_OK;
}

/* One "key=value" of `length` bytes. seen: bit per key, so that none comes twice. */
static int parse_item(sd_schedule_options *o, const char *item, size_t length, unsigned *seen, sd_error *err)
{
    static const char *const keys[] = {"warmup", "max", "min", "horizon", "prompt", "budgets", "ranking"};
    int *const fields[] = {&o->warmup, &o->max_layers, &o->min_layers, &o->horizon, &o->prompt};
    const char *equals = memchr(item, '=', length);
    if (!equals) {
        return sd_fail(err, SD_ERR_ARG,
                       "schedule: \"%.*s\" is not key=value; expected warmup, max, min, horizon, prompt, budgets "
                       "or ranking, for example warmup=1,max=16,min=8,horizon=64,prompt=full",
                       (int)length, item);
    }
    size_t key_length = (size_t)(equals - item);
    const char *value = equals + 1;
    size_t n = length - key_length - 1;
    unsigned k = 0;
    while (k < 7 && (strlen(keys[k]) != key_length || memcmp(keys[k], item, key_length) != 0)) {
        k++;
    }
    if (k == 7) {
        return sd_fail(err, SD_ERR_ARG,
                       "schedule: unknown key \"%.*s\"; expected warmup, max, min, horizon, prompt, budgets or "
                       "ranking",
                       (int)key_length, item);
    }
    if (*seen & 1u << k) {
        return sd_fail(err, SD_ERR_ARG, "schedule: key \"%s\" comes twice", keys[k]);
    }
    *seen |= 1u << k;
    if (k == 5) {
        return parse_list(keys[k], value, n, &o->budgets, &o->n_budgets, err);
    }
    if (k == 6) {
        return parse_list(keys[k], value, n, &o->ranking, &o->n_ranking, err);
    }
    if (k == 4 && n == 4 && memcmp(value, "full", 4) == 0) {
        o->prompt = SD_PROMPT_FULL;
        return SD_OK;
    }
    if (k == 4 && n == 3 && memcmp(value, "max", 3) == 0) {
        o->prompt = SD_PROMPT_MAX;
        return SD_OK;
    }
    int x;
    /* 0 means "not given" in the options struct, so only warmup may be 0 in words */
    if (!parse_int(value, n, &x) || x < (k == 0 ? 0 : 1)) {
        return sd_fail(err, SD_ERR_ARG, "schedule %s: \"%.*s\"; expected %s", keys[k], (int)n, value,
                       k == 4 ? "full, max or a number of layers" : k == 0 ? "an integer of at least 0" :
                       "an integer of at least 1");
    }
    *fields[k] = x;
    return SD_OK;
}

int sd_schedule_parse(sd_schedule_options *options, const char *text, sd_error *err)
{
    if (strcmp(text, "full") == 0) {
        options->full = true;
        return SD_OK;
    }
    unsigned seen = 0;
    for (const char *item = text;;) {
        size_t length = strcspn(item, ",");
        int rc = parse_item(options, item, length, &seen, err);
        if (rc != SD_OK) {
            return rc;
        }
        if (item[length] == '\0') {
            break;
        }
        item += length + 1;
    }
    const unsigned list = 1u << 5, line = 1u << 1 | 1u << 2 | 1u << 3;
    if ((seen & list) && (seen & line)) {
        return sd_fail(err, SD_ERR_ARG,
                       "schedule: budgets= lists every step, so max=, min= and horizon= have no place beside it");
    }
    /* without a budget all layers run all the same, but what was given is checked, not ignored */
    options->full = false;
    if ((seen & line) && options->budgets) {
        sd_free((void *)(uintptr_t)options->budgets);
        options->budgets = NULL;
        options->n_budgets = 0;
    }
    return SD_OK;
}

void sd_schedule_options_clear(sd_schedule_options *options)
{
    sd_free((void *)(uintptr_t)options->budgets);
    sd_free((void *)(uintptr_t)options->ranking);
    sd_schedule_options_default(options);
}
