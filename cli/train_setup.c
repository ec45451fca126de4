/* SPDX-License-Identifier: MIT
 *
 * From options to data, schedules, steps and settings. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/gnuplot.h"
#include "cli/train.h"
#include "src/base/alloc.h"
#include "src/base/cpu.h"
#include "src/base/error.h"
#include "src/base/file.h"
#include "src/schedule/schedule.h"
#include "src/tokenizer/tokenizer.h"

enum { DEFAULT_BATCH = 80 };
static const char default_speedups[] = "1,2,3,4,5";

/* ---- the model and its tokenizer ---- */

static int load_config_file(sd_config *config, const char *path, sd_error *err)
{
    sd_file file;
    int rc = sd_file_open(&file, path, false, err);
    if (rc == SD_OK) {
        rc = sd_config_parse(config, (const char *)file.data, file.size, path, err);
        sd_file_close(&file);
    }
    return rc;
}

static int load_model_files(sd_train_job *job, sd_error *err)
{
    const sd_train_flags *f = job->flags;
    int rc = f->dir ? sd_config_load(&job->config, f->dir, err) : load_config_file(&job->config, f->config, err);
    rc = rc == SD_OK ? sd_recipe_load(&job->recipe, f->dir ? f->dir : f->tokenizer, err) : rc;
    rc = rc == SD_OK ? sd_tokenizer_load(&job->tok, f->dir ? f->dir : f->tokenizer, err) : rc;
    if (rc == SD_OK && sd_tokenizer_size(job->tok) > job->config.vocab) {
        rc = sd_fail(err, SD_ERR_ARG,
                     "%s: a vocabulary of %d, and the tokenizer of %s has %d tokens; expected at least as "
                     "many",
                     f->dir ? f->dir : f->config, job->config.vocab, f->dir ? f->dir : f->tokenizer,
                     sd_tokenizer_size(job->tok));
    }
    return rc;
}

/* ---- data ---- */

static int choose_too_long(const char *text, sd_too_long *choice, sd_error *err)
{
    static const char *const names[] = {"error", "skip", "cut"}; /* in the order of sd_too_long */
    *choice = SD_TOO_LONG_ERROR;
    for (int i = 0; text && i < 3; i++) {
        if (strcmp(text, names[i]) == 0) {
            *choice = (sd_too_long)i;
            return SD_OK;
        }
    }
    return text ? sd_fail(err, SD_ERR_ARG, "--too-long \"%s\"; expected error, skip or cut", text) : SD_OK;
}

static int read_files(sd_train_job *job, sd_dataset *data, const sd_strings *files, const sd_strings *responses,
                      const sd_dataset_options *options, sd_error *err)
{
    const sd_train_flags *f = job->flags;
    int rc = SD_OK;
    for (int i = 0; rc == SD_OK && i < files->n; i++) {
        const sd_data_source source = {
            .path = files->items[i],
            .responses = responses->n > 0 ? responses->items[i] : NULL,
            .prompt_template = f->data.prompt_template ? f->data.prompt_template : job->recipe.prompt_template,
            .response = f->data.response ? f->data.response : "response",
            .limit = (size_t)f->limit,
        };
        rc = sd_dataset_read(data, &source, options, err);
    }
    return rc;
}

static int read_data(sd_train_job *job, sd_error *err)
{
    const sd_train_flags *f = job->flags;
    const int positions = job->config.max_positions + 1; /* the last token is never fed */
    sd_dataset_options o = {.tok = job->tok, .vocab = job->config.vocab,
                            .end_id = job->config.eos_id >= 0 ? job->config.eos_id : sd_tokenizer_eos(job->tok),
                            .max_tokens = f->max_length ? f->max_length : positions};
    if (o.max_tokens > positions) {
        return sd_fail(err, SD_ERR_ARG, "--max-length %d; the model has %d positions, so rows of at most %d tokens",
                       f->max_length, job->config.max_positions, positions);
    }
    if (o.end_id < 0) {
        return sd_fail(err, SD_ERR_ARG,
                       "neither config.json nor the tokenizer names an end token (eos_token_id), which "
                       "responses end with");
    }
    int rc = choose_too_long(f->too_long, &o.too_long, err);
    rc = rc == SD_OK ? read_files(job, &job->data, &f->data.data, &f->data.responses, &o, err) : rc;
    rc = rc == SD_OK ? read_files(job, &job->dev, &f->dev, &f->dev_responses, &o, err) : rc;
    if (rc == SD_OK) {
        sd_dataset_thin(&job->dev, (size_t)f->dev_rows);
    }
    return rc;
}

/* ---- schedules ---- */

static int choose_horizon(sd_train_job *job, sd_error *err)
{
    const char *text = job->flags->horizon ? job->flags->horizon : "mean";
    int steps = 0;
    if (strcmp(text, "mean") == 0) {
        steps = sd_dataset_mean_steps(&job->data);
    } else if (strcmp(text, "p90") == 0) {
        int rc = sd_dataset_quantile_steps(&job->data, 0.9, &steps, err);
        if (rc != SD_OK) {
            return rc;
        }
    } else {
        char *end;
        const long n = strtol(text, &end, 10);
        if (end == text || *end != '\0' || n < 1 || n > 1 << 20) {
            return sd_fail(err, SD_ERR_ARG, "--horizon \"%s\"; expected mean, p90 or a number of steps", text);
        }
        steps = (int)n;
    }
    job->base.horizon = steps;
    return SD_OK;
}

/* Adds a schedule under a name. */
static int add_lane(sd_train_job *job, sd_schedule_options *options, double speedup, int number, sd_error *err)
{
    sd_lane *l = &job->lanes[job->n_lanes];
    if (speedup > 0) {
        (void)snprintf(l->name, sizeof l->name, "%g", speedup);
    } else {
        (void)snprintf(l->name, sizeof l->name, "schedule %d", number);
    }
    int rc = sd_schedule_create(&job->schedules[job->n_lanes], job->config.n_layers, job->data.longest_response,
                                options, err);
    l->schedule = job->schedules[job->n_lanes];
    job->speedups[job->n_lanes] = speedup;
    job->n_lanes += rc == SD_OK;
    return rc;
}

static int add_speed(sd_train_job *job, double speedup, sd_error *err)
{
    sd_schedule_options o = job->base; /* its list is lent; a preset frees budgets only, and there are none */
    int rc = sd_schedule_preset(&o, job->config.n_layers, speedup, err);
    return rc == SD_OK ? add_lane(job, &o, speedup, 0, err) : rc;
}

static int add_spec(sd_train_job *job, const char *text, int number, sd_error *err)
{
    sd_schedule_options o = {.warmup = job->base.warmup, .horizon = job->base.horizon, .prompt = job->base.prompt};
    sd_buf ranking = {0};
    int rc = SD_OK;
    if (job->base.ranking && !strstr(text, "ranking=")) { /* by way of text, so that the list is o's own */
        for (int i = 0; i < job->base.n_ranking; i++) {
            sd_buf_printf(&ranking, "%s%d", i ? ":" : "ranking=", job->base.ranking[i]);
        }
        rc = ranking.failed ? sd_fail_memory(err, ranking.cap, "a ranking") : sd_schedule_parse(&o, ranking.data, err);
    }
    rc = rc == SD_OK ? sd_schedule_parse(&o, text, err) : rc;
    rc = rc == SD_OK ? add_lane(job, &o, 0, number, err) : rc;
    sd_schedule_options_clear(&o);
    sd_buf_free(&ranking);
    return rc == SD_OK ? rc : sd_fail_prefix(err, rc, "--schedule %d", number);
}

static int parse_base(sd_train_job *job, sd_error *err)
{
    const sd_train_flags *f = job->flags;
    sd_recipe_take_schedule(&job->recipe, &job->base);
    job->base.warmup = f->warmup >= 0 ? f->warmup : job->base.warmup;
    const struct { const char *key, *value; } given[] = {{"prompt", f->prompt}, {"ranking", f->ranking}};
    for (size_t i = 0; i < 2; i++) {
        if (!given[i].value) {
            continue;
        }
        sd_buf text = {0};
        sd_buf_printf(&text, "%s=%s", given[i].key, given[i].value);
        int rc = text.failed || strchr(given[i].value, ',')
                     ? sd_fail(err, SD_ERR_ARG, "\"%s\" is not one value", given[i].value)
                     : sd_schedule_parse(&job->base, text.data, err);
        sd_buf_free(&text);
        if (rc != SD_OK) {
            return sd_fail_prefix(err, rc, "--%s", given[i].key);
        }
    }
    return choose_horizon(job, err);
}

static int make_lanes(sd_train_job *job, sd_error *err)
{
    const sd_train_flags *f = job->flags;
    int rc = parse_base(job, err);
    if (rc == SD_OK && f->schedules.n > 0) {
        job->stages.n = 1;
        job->stages.stage[0].n_speeds = f->schedules.n;
        for (int i = 0; rc == SD_OK && i < f->schedules.n; i++) {
            rc = add_spec(job, f->schedules.items[i], i + 1, err);
            job->stages.stage[0].lane[i] = i;
        }
        return rc;
    }
    rc = rc == SD_OK ? sd_stages_parse(&job->stages, f->speedups ? f->speedups : default_speedups, err) : rc;
    double speeds[SD_MAX_LANES];
    const int n = rc == SD_OK ? sd_stages_speeds(&job->stages, speeds) : 0;
    for (int i = 0; rc == SD_OK && i < n; i++) {
        rc = add_speed(job, speeds[i], err);
    }
    for (int s = 0; rc == SD_OK && s < job->stages.n; s++) {
        for (int i = 0; i < job->stages.stage[s].n_speeds; i++) {
            int *lane = &job->stages.stage[s].lane[i];
            while (job->speedups[*lane] != job->stages.stage[s].speeds[i]) {
                (*lane)++;
            }
        }
    }
    return rc == SD_OK ? rc : sd_fail_prefix(err, rc, "--speedups");
}

/* ---- steps ---- */

static int count_steps(sd_train_job *job, sd_error *err)
{
    const sd_train_flags *f = job->flags;
    job->options.batch = (sd_batch_options){.rows = f->batch_tokens ? 0 : f->batch ? f->batch : DEFAULT_BATCH,
                                            .tokens = f->batch_tokens, .accumulate = f->accumulate,
                                            .min_rows = sd_stages_most_speeds(&job->stages), .seed = f->seed};
    sd_batcher batcher;
    int rc = sd_batcher_create(&batcher, &job->data, &job->options.batch, err);
    if (rc != SD_OK) {
        return sd_fail_prefix(err, rc, "--batch");
    }
    job->n_steps = f->steps;
    if (!f->steps) {
        rc = sd_batcher_count(&batcher, f->epochs ? f->epochs : 1, &job->n_steps, err);
    }
    sd_batcher_clear(&batcher);
    rc = rc == SD_OK ? sd_stages_place(&job->stages, job->n_steps, err) : rc;
    return rc;
}

/* "300" steps or "10m". */
static int parse_save_every(sd_train_job *job, sd_error *err)
{
    const char *text = job->flags->save_every ? job->flags->save_every : "10m";
    char *end;
    const double n = strtod(text, &end);
    const bool minutes = *end == 'm' && end[1] == '\0';
    if (end == text || (!minutes && (*end != '\0' || n != floor(n))) || !(n > 0) || !(n < 1e9)) {
        return sd_fail(err, SD_ERR_ARG,
                       "--save-every \"%s\"; expected a number of steps, or of minutes with an m: 500, 10m", text);
    }
    job->save_steps = minutes ? 0 : (int64_t)n;
    job->save_seconds = minutes ? n * 60 : 0;
    return SD_OK;
}

static int parse_eval_every(sd_train_job *job, sd_error *err)
{
    const char *text = job->flags->eval_every;
    if (!text || strcmp(text, "epoch") == 0) {
        return SD_OK;
    }
    char *end;
    const long n = strtol(text, &end, 10);
    job->eval_every = n;
    return end != text && *end == '\0' && n > 0
               ? SD_OK
               : sd_fail(err, SD_ERR_ARG, "--eval-every \"%s\"; expected a number of steps, or epoch", text);
}

static int parse_choices(sd_train_job *job, sd_error *err)
{
    const sd_train_flags *f = job->flags;
    const char *products = f->products ? f->products : "f32", *save_as = f->save_as ? f->save_as : "f32";
    if (strcmp(products, "f32") != 0 && strcmp(products, "bf16") != 0) {
        return sd_fail(err, SD_ERR_ARG, "--products \"%s\"; expected f32 or bf16", products);
    }
    job->save_as = strcmp(save_as, "bf16") == 0  ? SD_DTYPE_BF16
                   : strcmp(save_as, "f16") == 0 ? SD_DTYPE_F16
                                                 : SD_DTYPE_F32;
    if (job->save_as == SD_DTYPE_F32 && strcmp(save_as, "f32") != 0) {
        return sd_fail(err, SD_ERR_ARG, "--save-as \"%s\"; expected f32, bf16 or f16", save_as);
    }
    if (f->keep && strcmp(f->keep, "best") != 0 && strcmp(f->keep, "last") != 0) {
        return sd_fail(err, SD_ERR_ARG, "--keep \"%s\"; expected best or last", f->keep);
    }
    int rc = parse_save_every(job, err);
    rc = rc == SD_OK ? parse_eval_every(job, err) : rc;
    return rc == SD_OK && f->plot ? sd_gnuplot_check(f->plot, err) : rc;
}

/* ---- settings ---- */

/* What runs where, for what other options add up to. */
static void describe_schedules(const sd_train_job *job, sd_buf *out)
{
    for (int i = 0; i < job->stages.n; i++) {
        const sd_stage *s = &job->stages.stage[i];
        sd_buf_printf(out, "%s", i ? "/" : "");
        for (int k = 0; k < s->n_speeds; k++) {
            sd_buf_printf(out, "%s%s", k ? " " : "", sd_schedule_text(job->schedules[s->lane[k]]));
        }
        sd_buf_printf(out, "@%lld", (long long)s->end);
    }
}

static json_t *number(double x) { return x == floor(x) && fabs(x) < 1e15 ? json_integer((json_int_t)x) : json_real(x); }

/* In the order in which a message is to name the first that differs. Those not given have no entry. */
static int make_settings(sd_train_job *job, sd_error *err)
{
    const sd_train_flags *f = job->flags;
    char data[17], dev[17], seed[24];
    (void)snprintf(data, sizeof data, "%016llx", (unsigned long long)sd_dataset_hash(&job->data));
    (void)snprintf(dev, sizeof dev, "%016llx", (unsigned long long)sd_dataset_hash(&job->dev));
    (void)snprintf(seed, sizeof seed, "%llu", (unsigned long long)f->seed);
    sd_buf schedules = {0};
    describe_schedules(job, &schedules);
    const struct {
        const char *name, *value;
    } texts[] = {
        {"--tokenizer", f->tokenizer}, {"--data", data}, {"--dev", dev}, {"--horizon", f->horizon},
        {"--speedups", f->speedups ? f->speedups : default_speedups}, {"--prompt", f->prompt},
        {"--ranking", f->ranking},
        {"--distill-from", f->distill_from}, {"--seed", seed}, {"--products", f->products ? f->products : "f32"},
        {"--keep", sd_train_keeps_best(job) ? "best" : "last"}, {"--save-as", f->save_as ? f->save_as : "f32"},
    };
    const struct {
        const char *name;
        double value;
    } numbers[] = {
        {"--warmup", job->base.warmup},
        {"the number of steps", (double)job->n_steps},
        {"--batch", job->options.batch.rows},
        {"--batch-tokens", job->options.batch.tokens},
        {"--accumulate", f->accumulate},
        {"--micro-tokens", f->micro_tokens},
        {"--lr", f->lr},
        {"--warmup-steps", f->warmup_steps},
        {"--min-lr", f->min_lr},
        {"--weight-decay", f->weight_decay},
        {"--clip", f->clip},
        {"--beta2", f->beta2},
        {"--dropout", f->dropout},
        {"--init-std", f->init_std},
        {"--distill", f->distill},
        {"--lora-rank", f->lora_rank},
        {"--patience", f->patience},
        {"--eval-every", (double)job->eval_every},
    };
    json_t *o = job->settings = json_object();
    bool ok = json_object_set_new(o, f->dir ? "MODEL" : "--config", sd_cli_json_path(f->dir ? f->dir : f->config)) == 0;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        ok = ok && (!texts[i].value || json_object_set_new(o, texts[i].name, sd_cli_json_path(texts[i].value)) == 0);
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        ok = ok && json_object_set_new(o, numbers[i].name, number(numbers[i].value)) == 0;
    }
    ok = ok && !schedules.failed;
    ok = ok && json_object_set_new(o, "the text of the schedules", json_string(schedules.data)) == 0;
    sd_buf_free(&schedules);
    return ok ? SD_OK : sd_fail_memory(err, 4096, "the settings");
}

static void fill_options(sd_train_job *job)
{
    const sd_train_flags *f = job->flags;
    sd_trainer_options *o = &job->options;
    o->model_dir = f->dir;
    o->config = &job->config;
    o->lanes = job->lanes;
    o->n_lanes = job->n_lanes;
    o->stages = &job->stages;
    o->micro_tokens = f->micro_tokens;
    o->longest_row = job->data.longest > job->dev.longest ? job->data.longest : job->dev.longest;
    o->n_steps = job->n_steps;
    o->warmup_steps = f->warmup_steps;
    o->lr = f->lr;
    o->min_lr = f->min_lr;
    o->beta1 = 0.9;
    o->beta2 = f->beta2;
    o->epsilon = 1e-8;
    o->weight_decay = f->weight_decay;
    o->clip = f->clip;
    o->dropout = f->dropout;
    o->init_std = f->init_std;
    o->distill = f->distill;
    o->teacher_dir = f->distill_from;
    o->seed = f->seed;
    o->threads = f->threads ? f->threads : sd_cpu_default_threads();
    o->bf16 = f->products && strcmp(f->products, "bf16") == 0;
    o->lora_rank = f->lora_rank;
    o->rank = job->ranks.rank;
    o->n_ranks = job->ranks.n;
    o->sum_f32 = sd_ranks_sum_f32;
    o->sum_f64 = sd_ranks_sum_f64;
    o->context = &job->ranks;
}

int sd_train_prepare(sd_train_job *job, sd_error *err)
{
    job->run.lock = -1;
    job->state = (sd_train_state){.best_step = -1, .best_loss = INFINITY};
    sd_schedule_options_default(&job->base);
    int rc = parse_choices(job, err);
    rc = rc == SD_OK ? load_model_files(job, err) : rc;
    rc = rc == SD_OK ? read_data(job, err) : rc;
    rc = rc == SD_OK ? make_lanes(job, err) : rc;
    rc = rc == SD_OK ? count_steps(job, err) : rc;
    if (rc != SD_OK) {
        return rc;
    }
    fill_options(job);
    return make_settings(job, err);
}

void sd_train_clear(sd_train_job *job)
{
    sd_trainer_free(job->trainer);
    if (job->log) {
        fclose(job->log);
    }
    sd_free(job->log_path);
    if (job->entered) {
        sd_run_dir_leave(&job->run, true);
    }
    for (int i = 0; i < job->n_lanes; i++) {
        sd_schedule_free(job->schedules[i]);
    }
    json_decref(job->settings);
    sd_dataset_clear(&job->data);
    sd_dataset_clear(&job->dev);
    sd_tokenizer_free(job->tok);
    sd_schedule_options_clear(&job->base);
    sd_recipe_clear(&job->recipe);
}
