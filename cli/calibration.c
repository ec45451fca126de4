/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "cli/calibration.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "src/base/alloc.h"
#include "src/base/cpu.h"
#include "src/base/error.h"
#include "src/base/file.h"
#include "src/base/hash.h"
#include "src/base/json.h"
#include "src/model/model.h"

/* FORMAT changes with what a file means; LARGEST is far above what one needs. */
enum { FORMAT = 1, LARGEST = 4096 };

/* ---- the key ---- */

static uint64_t hash_cpu_name(uint64_t hash)
{
    char line[512];
    FILE *f = fopen("/proc/cpuinfo", "re");
    while (f && fgets(line, sizeof line, f)) {
        if (strncmp(line, "model name", 10) == 0) {
            hash = sd_hash(hash, line, strlen(line));
            break;
        }
    }
    if (f) {
        fclose(f);
    }
    return hash;
}

/* A longer row costs a little more, as a straight line: a power of two is near enough to measure at. */
static int round_up(int n_positions)
{
    int n = 16;
    while (n < n_positions && n < 1 << 24) {
        n *= 2;
    }
    return n;
}

static bool make_key(uint64_t *key, const sd_model *model, int rows, int n_positions)
{
    sd_error ignored = {0};
    sd_cpu_level_id level;
    sd_model_info info;
    sd_model_get_info(model, &info);
    if (sd_cpu_select(&level, &ignored) != SD_OK) {
        return false;
    }
    const int facts[] = {FORMAT, (int)level, info.threads, rows, n_positions};
    uint64_t hash = sd_model_fingerprint(model);
    hash = sd_hash(hash, facts, sizeof facts);
    hash = sd_hash(hash, sd_version(), strlen(sd_version()));
    *key = hash_cpu_name(hash);
    return true;
}

/* ---- the file ---- */

/* The folder, made if it is not there; the caller's. NULL: there is no place for a cache. */
static char *cache_folder(void)
{
    const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char *made = NULL;
    if (!base || base[0] != '/') { /* a relative one does not count, says the specification */
        made = home && home[0] == '/' ? sd_path_join(home, ".cache") : NULL;
        base = made;
    }
    char *folder = base ? sd_path_join(base, "skipdecode") : NULL;
    if (folder) {
        (void)mkdir(base, 0700);
        (void)mkdir(folder, 0700);
    }
    sd_free(made);
    return folder;
}

/* The caller's; NULL: no cache. */
static char *cache_path(uint64_t key)
{
    char name[32];
    (void)snprintf(name, sizeof name, "%016" PRIx64 ".json", key);
    char *folder = cache_folder(), *path = folder ? sd_path_join(folder, name) : NULL;
    sd_free(folder);
    return path;
}

static bool read_numbers(const json_t *o, const char *name, double *values, int n)
{
    const json_t *array = json_object_get(o, name);
    bool ok = json_is_array(array) && json_array_size(array) == (size_t)n;
    for (int i = 0; ok && i < n; i++) {
        ok = json_is_number(json_array_get(array, (size_t)i));
        values[i] = json_number_value(json_array_get(array, (size_t)i));
    }
    return ok;
}

static bool read_int(const json_t *o, const char *name, int64_t min, int64_t max, int *value)
{
    int64_t n;
    const bool ok = sd_json_as_int(json_object_get(o, name), &n) && n >= min && n <= max;
    *value = ok ? (int)n : 0;
    return ok;
}

static bool read_cost(sd_cost *cost, const json_t *o, uint64_t key, int rows, int n_layers)
{
    char hex[17];
    (void)snprintf(hex, sizeof hex, "%016" PRIx64, key);
    const char *found = json_string_value(json_object_get(o, "key"));
    double layers[SD_COST_POINTS];
    int format;
    *cost = (sd_cost){.rows = rows, .attention = json_number_value(json_object_get(o, "attention"))};
    bool ok = found && strcmp(found, hex) == 0 && read_int(o, "format", FORMAT, FORMAT, &format) &&
              read_int(o, "position", 1, 1 << 24, &cost->position) && json_is_number(json_object_get(o, "attention"));
    const size_t n = json_array_size(json_object_get(o, "layers"));
    cost->n_points = n <= SD_COST_POINTS ? (int)n : 0;
    ok = ok && read_numbers(o, "layers", layers, cost->n_points) &&
         read_numbers(o, "seconds", cost->seconds, cost->n_points);
    for (int i = 0; ok && i < cost->n_points; i++) {
        ok = layers[i] >= 1 && layers[i] <= n_layers;
        cost->layers[i] = ok ? (int)layers[i] : 0;
    }
    return ok && sd_cost_is_valid(cost, n_layers);
}

static bool load(sd_cost *cost, const char *path, uint64_t key, int rows, int n_layers)
{
    sd_error ignored = {0};
    struct stat st;
    sd_file file;
    json_t *o = NULL;
    if (stat(path, &st) != 0 || st.st_size > LARGEST || sd_file_open(&file, path, true, &ignored) != SD_OK) {
        return false;
    }
    const bool ok = sd_json_parse(&o, (const char *)file.data, file.size, path, &ignored) == SD_OK &&
                    read_cost(cost, o, key, rows, n_layers);
    json_decref(o);
    sd_file_close(&file);
    return ok;
}

static json_t *cost_json(const sd_cost *cost, uint64_t key)
{
    char hex[17];
    (void)snprintf(hex, sizeof hex, "%016" PRIx64, key);
    json_t *layers = json_array(), *seconds = json_array();
    for (int i = 0; i < cost->n_points; i++) {
        (void)json_array_append_new(layers, json_integer(cost->layers[i]));
        (void)json_array_append_new(seconds, json_real(cost->seconds[i]));
    }
    return json_pack("{s:i, s:s, s:i, s:i, s:o, s:o, s:f}", "format", FORMAT, "key", hex, "rows", cost->rows,
                     "position", cost->position, "layers", layers, "seconds", seconds, "attention", cost->attention);
}

static void store(const sd_cost *cost, const char *path, uint64_t key)
{
    sd_error ignored = {0};
    sd_atomic_file file;
    json_t *o = cost_json(cost, key);
    if (o && sd_atomic_open(&file, path, &ignored) == SD_OK) {
        const bool written = json_dumpf(o, file.stream, JSON_COMPACT) == 0 && fputc('\n', file.stream) != EOF;
        if (written) {
            (void)sd_atomic_commit(&file, &ignored);
        } else {
            sd_atomic_discard(&file);
        }
    }
    json_decref(o);
}

int sd_calibrate(sd_cost *cost, const sd_model *model, int rows, int n_positions, bool *cached, sd_error *err)
{
    const int n_layers = model->config.n_layers, positions = round_up(n_positions);
    uint64_t key;
    char *path = make_key(&key, model, rows, positions) ? cache_path(key) : NULL;
    *cached = path && load(cost, path, key, rows, n_layers);
    int rc = *cached ? SD_OK : sd_cost_measure(cost, model, rows, positions, err);
    if (rc == SD_OK && !*cached && path) {
        store(cost, path, key);
    }
    sd_free(path);
    return rc;
}
