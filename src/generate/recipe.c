/* SPDX-License-Identifier: MIT */
#include "src/generate/recipe.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/error.h"
#include "src/base/file.h"
#include "src/base/json.h"

/* Whether it is a permutation of the model's layers is found out when a schedule is made. */
static int read_ranking(sd_schedule_options *o, const json_t *list, sd_error *err)
{
    const size_t n = json_array_size(list);
    int *ranking = json_is_array(list) && n > 0 && n <= 1 << 14 ? sd_malloc(n, sizeof *ranking) : NULL;
    for (size_t i = 0; ranking && i < n; i++) {
        int64_t layer;
        if (!sd_json_as_int(json_array_get(list, i), &layer) || layer < 0 || layer >= 1 << 14) {
            sd_free(ranking);
            return sd_fail(err, SD_ERR_FORMAT, "key \"ranking\": item %zu is not the number of a layer", i + 1);
        }
        ranking[i] = (int)layer;
    }
    if (!ranking) {
        return json_is_array(list) && n > 0 && n <= 1 << 14
                   ? sd_fail_memory(err, n * sizeof *ranking, "a ranking")
                   : sd_fail(err, SD_ERR_FORMAT, "key \"ranking\": expected a list of layers, found %s",
                             sd_json_type_name(list));
    }
    o->ranking = ranking;
    o->n_ranking = (int)n;
    return SD_OK;
}

static int read_schedule(sd_schedule_options *o, const json_t *json, sd_error *err)
{
    int64_t warmup = o->warmup, horizon = o->horizon;
    int rc = sd_json_get_int(json, "warmup", false, 0, 1 << 14, &warmup, err);
    if (rc == SD_OK) {
        rc = sd_json_get_int(json, "horizon", false, 1, 1 << 20, &horizon, err);
    }
    if (rc != SD_OK) {
        return rc;
    }
    o->warmup = (int)warmup;
    o->horizon = (int)horizon;
    const json_t *prompt = json_object_get(json, "prompt");
    const char *word = json_string_value(prompt);
    int64_t layers;
    if (!prompt || (word && strcmp(word, "full") == 0)) {
        o->prompt = SD_PROMPT_FULL;
    } else if (word && strcmp(word, "max") == 0) {
        o->prompt = SD_PROMPT_MAX;
    } else if (sd_json_as_int(prompt, &layers) && layers >= 1 && layers <= 1 << 14) {
        o->prompt = (int)layers;
    } else {
        return sd_fail(err, SD_ERR_FORMAT, "key \"prompt\": expected \"full\", \"max\" or a number of layers, found %s",
                       word ? word : sd_json_type_name(prompt));
    }
    const json_t *ranking = json_object_get(json, "ranking");
    return ranking ? read_ranking(o, ranking, err) : SD_OK;
}

static int read_trained(sd_recipe *r, const json_t *list, sd_error *err)
{
    if (list && !json_is_array(list)) {
        return sd_fail(err, SD_ERR_FORMAT, "key \"trained_speedups\": expected an array, found %s",
                       sd_json_type_name(list));
    }
    size_t i;
    json_t *item;
    json_array_foreach(list, i, item) {
        if (!json_is_number(item) || json_number_value(item) < 1 || r->n_trained == SD_MAX_TRAINED) {
            return sd_fail(err, SD_ERR_FORMAT, "key \"trained_speedups\": expected at most %d numbers of at least 1",
                           SD_MAX_TRAINED);
        }
        r->trained[r->n_trained++] = json_number_value(item);
    }
    return SD_OK;
}

static int read_recipe(sd_recipe *r, const json_t *json, sd_error *err)
{
    int64_t format = 0, max_tokens = 0;
    const char *text = NULL;
    int rc = sd_json_get_int(json, "format", true, 1, 1, &format, err);
    if (rc == SD_OK) {
        rc = sd_json_get_int(json, "max_tokens", false, 1, 1 << 20, &max_tokens, err);
    }
    if (rc == SD_OK) {
        rc = sd_json_get_string(json, "prompt_template", false, &text, err);
    }
    const json_t *schedule = rc == SD_OK ? json_object_get(json, "schedule") : NULL;
    if (schedule && !json_is_object(schedule)) {
        rc = sd_fail(err, SD_ERR_FORMAT, "key \"schedule\": expected an object, found %s", sd_json_type_name(schedule));
    } else if (schedule) {
        rc = read_schedule(&r->schedule, schedule, err);
    }
    if (rc == SD_OK) {
        rc = read_trained(r, json_object_get(json, "trained_speedups"), err);
    }
    r->max_tokens = (int)max_tokens;
    if (rc == SD_OK && text) {
        r->prompt_template = sd_strdup(text);
        rc = r->prompt_template ? SD_OK : sd_fail_memory(err, strlen(text), "a prompt template");
    }
    return rc;
}

int sd_recipe_load(sd_recipe *r, const char *dir, sd_error *err)
{
    *r = (sd_recipe){0};
    sd_schedule_options_default(&r->schedule);
    if (!sd_dir_exists(dir)) {
        return sd_fail(err, SD_ERR_ARG, "%s: %s; expected a model directory", dir,
                       sd_file_exists(dir) ? "is a file" : "no such directory");
    }
    char *path = sd_path_join(dir, "skipdecode.json");
    if (!path) {
        return sd_fail_memory(err, strlen(dir) + 16, "a file name");
    }
    int rc = SD_OK;
    if (sd_file_exists(path)) {
        json_t *json;
        rc = sd_json_load(&json, path, err);
        if (rc == SD_OK) {
            rc = read_recipe(r, json, err);
            if (rc != SD_OK) {
                (void)sd_fail_prefix(err, rc, "%s", path);
            }
            json_decref(json);
        }
        r->present = rc == SD_OK;
    }
    if (rc != SD_OK) {
        sd_recipe_clear(r);
    }
    sd_free(path);
    return rc;
}

void sd_recipe_clear(sd_recipe *r)
{
    sd_free(r->prompt_template);
    sd_schedule_options_clear(&r->schedule);
    *r = (sd_recipe){0};
}

void sd_recipe_take_schedule(sd_recipe *r, sd_schedule_options *options)
{
    *options = r->schedule;
    sd_schedule_options_default(&r->schedule);
}

/* ---- writing ---- */

static json_t *make_schedule(const sd_schedule_options *o)
{
    json_t *prompt = o->prompt == SD_PROMPT_FULL ? json_string("full")
                     : o->prompt == SD_PROMPT_MAX ? json_string("max") : json_integer(o->prompt);
    json_t *json = json_pack("{s:i, s:o}", "warmup", o->warmup, "prompt", prompt);
    bool ok = json != NULL;
    if (ok && o->horizon > 0) {
        ok = json_object_set_new(json, "horizon", json_integer(o->horizon)) == 0;
    }
    if (ok && o->ranking) {
        json_t *ranking = json_array();
        for (int i = 0; i < o->n_ranking; i++) {
            ok = json_array_append_new(ranking, json_integer(o->ranking[i])) == 0 && ok;
        }
        ok = json_object_set_new(json, "ranking", ranking) == 0 && ok;
    }
    if (!ok) {
        json_decref(json);
    }
    return ok ? json : NULL;
}

static json_t *make_recipe(const sd_recipe *r)
{
    json_t *json = json_pack("{s:i, s:s*, s:o}", "format", 1, "prompt_template", r->prompt_template, "schedule",
                             make_schedule(&r->schedule));
    bool ok = json != NULL;
    if (ok && r->n_trained > 0) {
        json_t *trained = json_array();
        for (int i = 0; i < r->n_trained; i++) {
            ok = json_array_append_new(trained, json_real(r->trained[i])) == 0 && ok;
        }
        ok = json_object_set_new(json, "trained_speedups", trained) == 0 && ok;
    }
    if (ok && r->max_tokens > 0) {
        ok = json_object_set_new(json, "max_tokens", json_integer(r->max_tokens)) == 0;
    }
    if (!ok) {
        json_decref(json);
    }
    return ok ? json : NULL;
}

int sd_recipe_save(const sd_recipe *r, const char *dir, sd_error *err)
{
    json_t *json = make_recipe(r);
    char *text = json ? json_dumps(json, JSON_INDENT(2)) : NULL, *path = sd_path_join(dir, "skipdecode.json");
    sd_atomic_file file;
    int rc = text && path ? sd_atomic_open(&file, path, err) : sd_fail_memory(err, 4096, "skipdecode.json");
    if (rc == SD_OK) {
        (void)fprintf(file.stream, "%s\n", text); /* errors stay in the stream and come out at commit */
        rc = sd_atomic_commit(&file, err);
    }
    sd_free(path);
    free(text);
    json_decref(json);
    return rc;
}
