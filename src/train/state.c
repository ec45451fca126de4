/* SPDX-License-Identifier: MIT */
#include "src/train/state.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/error.h"
#include "src/base/file.h"
#include "src/base/json.h"

/* The fields by name, so that saving and loading cannot differ. */
typedef struct sd_field {
    const char *name;
    int64_t *integer;
    double *real; /* may be infinite or not a number, which JSON has no words for: null */
} sd_field;

enum { N_FIELDS = 14 };

static void list_fields(sd_train_state *s, sd_field fields[N_FIELDS])
{
    const sd_field all[] = {
        {"step", &s->at.step, NULL},       {"epoch", &s->at.epoch, NULL},         {"batch", &s->at.batch, NULL},
        {"batches", &s->at.batches, NULL}, {"tokens", &s->at.tokens, NULL},       {"average", NULL, &s->at.average},
        {"lowest", NULL, &s->at.lowest},   {"watched", &s->at.watched, NULL},     {"best_step", &s->best_step, NULL},
        {"best_loss", NULL, &s->best_loss}, {"waiting", &s->waiting, NULL},       {"log_bytes", &s->log_bytes, NULL},
        {"evaluated", &s->evaluated, NULL}, {"elapsed", NULL, &s->elapsed},
    };
    _Static_assert(sizeof all / sizeof *all == N_FIELDS, "every field is listed");
    memcpy(fields, all, sizeof all);
}

int sd_train_state_save(const sd_train_state *state, const json_t *settings, const char *path, sd_error *err)
{
    sd_train_state copy = *state;
    sd_field fields[N_FIELDS];
    list_fields(&copy, fields);
    json_t *json = json_pack("{s:i}", "format", 1);
    bool ok = json != NULL;
    for (int i = 0; ok && i < N_FIELDS; i++) {
        const sd_field *f = &fields[i];
        json_t *value = f->integer ? json_integer(*f->integer) : isfinite(*f->real) ? json_real(*f->real) : json_null();
        ok = json_object_set_new(json, f->name, value) == 0;
    }
    ok = ok && json_object_set(json, "settings", (json_t *)(uintptr_t)settings) == 0;
    char *text = ok ? json_dumps(json, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(json);
    if (!text) {
        return sd_fail_memory(err, 4096, "a checkpoint's state");
    }
    sd_atomic_file file;
    int rc = sd_atomic_open(&file, path, err);
    if (rc == SD_OK) {
        (void)fprintf(file.stream, "%s\n", text); /* errors stay in the stream and come out at commit */
        rc = sd_atomic_commit(&file, err);
    }
    free(text);
    return rc;
}

static int read_state(sd_train_state *s, const json_t *json, sd_error *err)
{
    int64_t format = 0;
    int rc = sd_json_get_int(json, "format", true, 1, 1, &format, err);
    sd_field fields[N_FIELDS];
    list_fields(s, fields);
    for (int i = 0; rc == SD_OK && i < N_FIELDS; i++) {
        const sd_field *f = &fields[i];
        if (f->integer) {
            rc = sd_json_get_int(json, f->name, true, -1, INT64_C(1) << 53, f->integer, err);
        } else {
            *f->real = NAN;
            rc = sd_json_get_number(json, f->name, false, f->real, err);
        }
    }
    return rc;
}

int sd_train_state_load(sd_train_state *state, json_t **settings, const char *path, sd_error *err)
{
    json_t *json;
    *settings = NULL;
    int rc = sd_json_load(&json, path, err);
    if (rc != SD_OK) {
        return rc;
    }
    rc = read_state(state, json, err);
    *settings = json_incref(json_object_get(json, "settings"));
    if (rc == SD_OK && !json_is_object(*settings)) {
        rc =
            sd_fail(err, SD_ERR_FORMAT, "key \"settings\": expected an object, found %s", sd_json_type_name(*settings));
    }
    if (rc != SD_OK) {
        json_decref(*settings);
        *settings = NULL;
    }
    json_decref(json);
    return rc == SD_OK ? rc : sd_fail_prefix(err, rc, "%s", path);
}

/* A value as a message shows it. */
static void show(const json_t *value, char text[64])
{
    char *dumped = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6)) : NULL;
    (void)snprintf(text, 64, "%s", dumped ? dumped : "not given");
    free(dumped);
}

/* The file was read with every number as a real. */
static bool same(const json_t *a, const json_t *b)
{
    return json_is_number(a) && json_is_number(b) ? json_number_value(a) == json_number_value(b) : json_equal(a, b);
}

int sd_train_settings_compare(const json_t *now, const json_t *before, sd_error *err)
{
    const char *key;
    json_t *value;
    for (int pass = 0; pass < 2; pass++) {
        const json_t *one = pass ? before : now, *other = pass ? now : before;
        json_object_foreach((json_t *)(uintptr_t)one, key, value) {
            const json_t *theirs = json_object_get(other, key);
            if (theirs && same(value, theirs)) {
                continue;
            }
            char is[64], was[64];
            show(json_object_get(now, key), is);
            show(json_object_get(before, key), was);
            if (strcmp(is, was) == 0) {
                (void)snprintf(is, sizeof is, "another one");
            }
            return sd_fail(err, SD_ERR_ARG,
                           "%s is %s and was %s when this run began; --resume goes on with the settings "
                           "of the beginning (--overwrite starts afresh)",
                           key, is, was);
        }
    }
    return SD_OK;
}
