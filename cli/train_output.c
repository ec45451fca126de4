/* SPDX-License-Identifier: MIT
 *
 * The trained model as a Hugging Face directory with skipdecode.json, and train.json, which says how it was made. */
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/train.h"
#include "src/base/alloc.h"
#include "src/base/error.h"
#include "src/base/file.h"
#include "src/base/json.h"

static const char weights_file[] = "model.safetensors", facts_file[] = "train.json";

/* What a tokenizer may consist of. */
static const char *const companions[] = {
    "tokenizer.json", "tokenizer_config.json", "vocab.json",
    "merges.txt",     "added_tokens.json",     "special_tokens_map.json",
};
static const char *const own[] = {"config.json", "skipdecode.json", "model.safetensors", "train.json"};
enum { N_COMPANIONS = sizeof companions / sizeof *companions, N_OWN = sizeof own / sizeof *own };

static int join(char **path, const char *dir, const char *name, sd_error *err)
{
    *path = sd_path_join(dir, name);
    return *path ? SD_OK : sd_fail_memory(err, strlen(dir) + strlen(name) + 2, "a file name");
}

/* ---- before the run ---- */

static int is_same_directory(const char *a, const char *b, bool *same, sd_error *err)
{
    struct stat x, y;
    *same = stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
    return *same ? sd_fail(err, SD_ERR_ARG,
                           "%s: is what the model is made from; name another directory for the trained one", a)
                 : SD_OK;
}

/* Whether train.json says that these settings have been run to the end. */
static int read_complete(const sd_train_job *job, bool *complete, sd_error *err)
{
    char *path;
    int rc = join(&path, job->flags->output, facts_file, err);
    json_t *facts = NULL;
    if (rc == SD_OK && sd_file_exists(path)) {
        rc = sd_json_load(&facts, path, err);
    }
    if (rc == SD_OK && json_is_true(json_object_get(facts, "complete"))) {
        rc = sd_train_settings_compare(job->settings, json_object_get(facts, "settings"), err);
        rc = rc == SD_OK ? rc : sd_fail_prefix(err, rc, "%s", job->flags->output);
        *complete = rc == SD_OK;
    }
    json_decref(facts);
    sd_free(path);
    return rc;
}

int sd_train_check_output(const sd_train_job *job, bool *complete, sd_error *err)
{
    const sd_train_flags *f = job->flags;
    const char *name = NULL;
    bool same;
    int rc = is_same_directory(f->output, f->dir ? f->dir : f->tokenizer, &same, err);
    if (rc == SD_OK && sd_file_exists(f->output)) {
        rc = sd_fail(err, SD_ERR_ARG, "%s: is a file; expected the name of a directory", f->output);
    }
    if (rc != SD_OK || !sd_dir_exists(f->output)) {
        return rc;
    }
    rc = sd_checkpoint_exists(f->output, &name, err);
    if (rc != SD_OK || !name || f->overwrite) {
        return rc;
    }
    if (!f->resume) {
        return sd_fail(err, SD_ERR_ARG, "%s: holds a model already (%s); --overwrite replaces it", f->output, name);
    }
    sd_run_dir probe; /* a run that died while it wrote the model has its checkpoint yet */
    rc = sd_run_dir_enter(&probe, f->output, err);
    const bool goes_on = probe.latest >= 0;
    sd_run_dir_leave(&probe, false);
    if (rc != SD_OK || goes_on) {
        return rc;
    }
    rc = read_complete(job, complete, err);
    if (rc == SD_OK && *complete && !f->quiet) {
        fprintf(stderr, "%s: the run is complete already\n", f->output);
    }
    return rc == SD_OK && !*complete
               ? sd_fail(err, SD_ERR_ARG,
                         "%s: holds a model (%s) and no checkpoint to go on from; --overwrite replaces it", f->output,
                         name)
               : rc;
}

/* ---- files ---- */

static int write_json(const char *dir, const char *name, json_t *json, sd_error *err)
{
    char *path = NULL, *text = json ? json_dumps(json, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) : NULL;
    sd_atomic_file file;
    int rc = text ? join(&path, dir, name, err) : sd_fail_memory(err, 4096, name);
    rc = rc == SD_OK ? sd_atomic_open(&file, path, err) : rc;
    if (rc == SD_OK) {
        (void)fprintf(file.stream, "%s\n", text); /* errors stay in the stream and come out at commit */
        rc = sd_atomic_commit(&file, err);
    }
    sd_free(path);
    free(text);
    json_decref(json);
    return rc;
}

/* The configuration as it was, but for the type of the weights: others load them as it says. */
static int write_config(const sd_train_job *job, sd_error *err)
{
    const sd_train_flags *f = job->flags;
    char *path = NULL;
    int rc = f->dir ? join(&path, f->dir, "config.json", err) : SD_OK;
    if (rc != SD_OK) {
        return rc;
    }
    json_error_t je;
    json_t *config = json_load_file(path ? path : f->config, 0, &je); /* integers stay integers */
    sd_free(path);
    if (!config) {
        return sd_fail(err, SD_ERR_FORMAT, "%s: %s", f->dir ? f->dir : f->config, je.text);
    }
    const char *type = job->save_as == SD_DTYPE_F32    ? "float32"
                       : job->save_as == SD_DTYPE_BF16 ? "bfloat16"
                                                       : "float16";
    const bool old = json_object_get(config, "torch_dtype") != NULL;
    if (json_object_set_new(config, old ? "torch_dtype" : "dtype", json_string(type)) != 0) {
        json_decref(config);
        return sd_fail_memory(err, 4096, "config.json");
    }
    return write_json(f->output, "config.json", config, err);
}

/* A file that the source lacks must not stay from a model that was there before. */
static int copy_companion(const char *source, const char *target, const char *name, sd_error *err)
{
    char *from, *to = NULL;
    int rc = join(&from, source, name, err);
    rc = rc == SD_OK ? join(&to, target, name, err) : rc;
    if (rc == SD_OK && sd_file_exists(from)) {
        rc = sd_copy_file(from, to, err);
    } else if (rc == SD_OK && unlink(to) != 0 && errno != ENOENT) {
        rc = sd_fail_errno(err, "%s: cannot remove the old file", to);
    }
    sd_free(from);
    sd_free(to);
    return rc;
}

static int write_recipe(sd_train_job *job, sd_error *err)
{
    const sd_train_flags *f = job->flags;
    char *template = f->data.prompt_template ? sd_strdup(f->data.prompt_template) : NULL;
    if (f->data.prompt_template && !template) {
        return sd_fail_memory(err, strlen(f->data.prompt_template), "a prompt template");
    }
    if (template) {
        sd_free(job->recipe.prompt_template);
        job->recipe.prompt_template = template;
    }
    sd_recipe recipe = {.prompt_template = job->recipe.prompt_template, .schedule = job->base,
                        .max_tokens = job->data.longest_response};
    const sd_stage *last = &job->stages.stage[job->stages.n - 1];
    for (int lane = 0; lane < job->n_lanes; lane++) { /* in ascending order, each once */
        bool trained = false;
        for (int k = 0; k < last->n_speeds; k++) {
            trained = trained || last->lane[k] == lane;
        }
        if (trained && job->speedups[lane] > 0 && recipe.n_trained < SD_MAX_TRAINED) {
            recipe.trained[recipe.n_trained++] = job->speedups[lane];
        }
    }
    return sd_recipe_save(&recipe, f->output, err);
}

static int write_weights(const sd_train_job *job, const char *path, sd_error *err)
{
    if (!sd_train_keeps_best(job) || job->state.best_step < 0) {
        return sd_trainer_save_weights(job->trainer, path, job->save_as, err);
    }
    char *best = sd_run_dir_latest_file(&job->run, sd_train_best_file);
    int rc = best ? sd_copy_file(best, path, err) : sd_fail_memory(err, 4096, "a file name");
    sd_free(best);
    return rc;
}

static int write_facts(const sd_train_job *job, sd_error *err)
{
    const sd_trainer_position *at = sd_trainer_at(job->trainer);
    const bool dev = job->state.best_step >= 0;
    json_t *facts = json_pack("{s:b, s:I, s:I, s:f, s:O}", "complete", 1, "steps", (json_int_t)at->step, "tokens",
                              (json_int_t)at->tokens, "seconds", sd_train_elapsed(job), "settings", job->settings);
    if (facts && dev) {
        (void)json_object_set_new(facts, "best_step", json_integer(job->state.best_step));
        (void)json_object_set_new(facts, "dev_loss", json_real(job->state.best_loss));
    }
    return write_json(job->flags->output, facts_file, facts, err);
}

/* A process that was killed while it wrote may have left NAME.tmp.PID behind; the directory is locked, so nobody is
 * writing it. */
static void remove_leftovers(const char *path)
{
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        const char *end = strstr(entry->d_name, ".tmp.");
        const size_t n = end ? (size_t)(end - entry->d_name) : 0;
        bool ours = false;
        for (size_t i = 0; i < N_COMPANIONS + N_OWN; i++) {
            const char *name = i < N_COMPANIONS ? companions[i] : own[i - N_COMPANIONS];
            ours = ours || (n > 0 && strlen(name) == n && memcmp(name, entry->d_name, n) == 0);
        }
        if (ours && end[5 + strspn(end + 5, "0123456789")] == '\0') {
            (void)unlinkat(dirfd(dir), entry->d_name, 0);
        }
    }
    if (dir) {
        closedir(dir);
    }
}

/* Old weights go first and new ones come last, so that weights never stand beside a configuration that is not theirs;
 * then the word that the run is complete, then the checkpoint goes. */
int sd_train_write_model(sd_train_job *job, sd_error *err)
{
    const sd_train_flags *f = job->flags;
    const char *source = f->dir ? f->dir : f->tokenizer;
    char *weights;
    remove_leftovers(f->output);
    int rc = join(&weights, f->output, weights_file, err);
    if (rc == SD_OK && unlink(weights) != 0 && errno != ENOENT) {
        rc = sd_fail_errno(err, "%s: cannot remove the old file", weights);
    }
    rc = rc == SD_OK ? write_config(job, err) : rc;
    for (size_t i = 0; rc == SD_OK && i < N_COMPANIONS; i++) {
        rc = copy_companion(source, f->output, companions[i], err);
    }
    rc = rc == SD_OK ? write_recipe(job, err) : rc;
    rc = rc == SD_OK ? write_weights(job, weights, err) : rc;
    rc = rc == SD_OK ? write_facts(job, err) : rc;
    sd_free(weights);
    if (rc == SD_OK) {
        sd_run_dir_remove_checkpoints(&job->run);
    } else if (job->run.latest >= 0) {
        (void)sd_fail_prefix(err, rc, "%s: the checkpoint of step %lld stays, --resume goes on from it", f->output,
                             (long long)job->run.latest);
    }
    return rc;
}
