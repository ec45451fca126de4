/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "src/base/alloc.h"
#include "src/base/error.h"
#include "src/generate/recipe.h"
#include "src/schedule/schedule.h"

typedef struct sd_logits_job {
    const char *dir;
    sd_model *model;
    sd_model_info info;
    sd_schedule *schedule;
    int32_t *ids, *forced;
    int n_ids, n_forced;
    bool json;
} sd_logits_job;

static void print_ids(const char *key, const int32_t *ids, int n)
{
    printf("\"%s\":[", key);
    for (int i = 0; i < n; i++) {
        printf("%s%d", i ? "," : "", ids[i]);
    }
    printf("],");
}

/* JSON has no NaN or infinity: null says that a logit is not finite. */
static void print_row_json(const sd_logits_job *job, const float *logits, int step)
{
    printf("%s{\"step\":", step < 0 ? "" : ",");
    step < 0 ? (void)printf("null") : (void)printf("%d", step);
    printf(",\"position\":%d,\"layers\":[", job->n_ids + step);
    const char *comma = "";
    for (int l = 0; l < job->info.n_layers; l++) {
        if (sd_schedule_runs(job->schedule, l, step)) {
            printf("%s%d", comma, l);
            comma = ",";
        }
    }
    printf("],\"logits\":[");
    for (int i = 0; i < job->info.vocab_size; i++) {
        if (i) {
            putchar(',');
        }
        isfinite(logits[i]) ? (void)printf("%.9g", (double)logits[i]) : (void)printf("null");
    }
    printf("]}\n");
}

static void print_row_text(const sd_logits_job *job, const float *logits, int step)
{
    int best = 0;
    for (int i = 1; i < job->info.vocab_size; i++) {
        best = logits[i] > logits[best] ? i : best;
    }
    char name[16] = "prompt";
    if (step >= 0) {
        (void)snprintf(name, sizeof name, "%d", step);
    }
    printf("%6s  position %5d  layers %3d  top id %6d  logit %.6g\n", name, job->n_ids + step,
           step < 0 ? sd_schedule_prompt_budget(job->schedule) : sd_schedule_budget(job->schedule, step), best,
           (double)logits[best]);
}

static int print_head_json(const sd_logits_job *job, sd_error *err)
{
    json_t *dir = sd_cli_json_path(job->dir);
    if (!dir) {
        return sd_fail_memory(err, strlen(job->dir), "a JSON string");
    }
    printf("{\"model\":");
    (void)json_dumpf(dir, stdout, JSON_ENCODE_ANY);
    json_decref(dir);
    printf(",\"n_layers\":%d,\"vocab_size\":%d,", job->info.n_layers, job->info.vocab_size);
    print_ids("ids", job->ids, job->n_ids);
    print_ids("forced", job->forced, job->n_forced);
    printf("\"schedule\":\"%s\",\"rows\":[\n", sd_schedule_text(job->schedule));
    return SD_OK;
}

static void print_row(const sd_logits_job *job, const float *logits, int step)
{
    job->json ? print_row_json(job, logits, step) : print_row_text(job, logits, step);
}

static int run(const sd_logits_job *job, sd_error *err)
{
    sd_session *session;
    int rc = sd_session_create(&session, job->model, 1, err);
    if (rc != SD_OK) {
        return rc;
    }
    int row;
    rc = sd_session_add(session, job->n_ids, job->n_forced + 1, job->schedule, &row, err);
    if (rc == SD_OK) {
        rc = sd_session_forward(session, &(sd_feed){row, job->ids, job->n_ids}, 1, err);
    }
    if (rc == SD_OK && job->json) {
        rc = print_head_json(job, err);
    }
    for (int j = 0; rc == SD_OK && j <= job->n_forced; j++) {
        print_row(job, sd_session_logits(session, 0), j - 1);
        if (j < job->n_forced) {
            rc = sd_session_forward(session, &(sd_feed){row, &job->forced[j], 1}, 1, err);
        }
    }
    if (rc == SD_OK && job->json) {
        printf("]}\n");
    }
    sd_session_free(session);
    return rc;
}

/* Before anything is printed: a bad id in --forced must not leave half a JSON object behind. */
static int check_ids(const sd_logits_job *job, const char *option, const int32_t *ids, int n, sd_error *err)
{
    for (int i = 0; i < n; i++) {
        if (ids[i] >= job->info.vocab_size) {
            return sd_fail(err, SD_ERR_ARG, "%s: value %d is %d; the model's token ids are 0 .. %d", option, i + 1,
                           ids[i], job->info.vocab_size - 1);
        }
    }
    return SD_OK;
}

static int prepare(sd_logits_job *job, const sd_model_flags *mf, const sd_schedule_flags *sf, const char *ids,
                   const char *forced, sd_error *err)
{
    sd_model_options mo;
    sd_recipe recipe;
    int rc = sd_recipe_load(&recipe, job->dir, err);
    if (rc != SD_OK) {
        return rc;
    }
    sd_schedule_options so;
    sd_recipe_take_schedule(&recipe, &so);
    sd_recipe_clear(&recipe);
    rc = sd_parse_ids(ids, "--ids", false, &job->ids, &job->n_ids, err);
    if (rc == SD_OK) {
        rc = sd_parse_ids(forced, "--forced", true, &job->forced, &job->n_forced, err);
    }
    if (rc == SD_OK) {
        rc = sd_model_flags_resolve(mf, &mo, err);
    }
    if (rc == SD_OK) {
        rc = sd_model_load(&job->model, job->dir, &mo, err);
    }
    if (rc == SD_OK) {
        sd_model_get_info(job->model, &job->info);
        rc = check_ids(job, "--ids", job->ids, job->n_ids, err);
    }
    if (rc == SD_OK) {
        rc = check_ids(job, "--forced", job->forced, job->n_forced, err);
    }
    if (rc == SD_OK) {
        rc = sd_schedule_flags_resolve(sf, job->info.n_layers, false, &so, err);
    }
    if (rc == SD_OK) {
        rc = sd_schedule_create(&job->schedule, job->info.n_layers, job->n_forced + 1, &so, err);
    }
    sd_schedule_options_clear(&so);
    return rc;
}

int sd_verb_logits(int argc, char **argv)
{
    sd_logits_job job = {0};
    sd_model_flags mf = {0};
    sd_schedule_flags sf = {0};
    const char *ids = NULL, *forced = "";
    const sd_option options[] = {
        {"ids", "LIST", SD_OPTION_STRING, &ids, "token ids of the prompt, separated by commas (BOS included)"},
        {"forced", "LIST", SD_OPTION_STRING, &forced, "token ids fed as generated tokens 0, 1, ..."},
        SD_SCHEDULE_OPTIONS(sf),
        SD_MODEL_OPTIONS(mf),
        {"json", NULL, SD_OPTION_FLAG, &job.json, "all logits, as one JSON object"},
    };
    int code = sd_options_read("logits", options, sizeof options / sizeof *options, argc, argv, &job.dir, 1);
    if (code >= 0) {
        return code;
    }
    if (!ids) {
        return sd_cli_usage("logits", "--ids is missing");
    }
    sd_error err = {0};
    int rc = prepare(&job, &mf, &sf, ids, forced, &err);
    if (rc == SD_OK) {
        rc = run(&job, &err);
    }
    code = rc == SD_OK ? sd_cli_close_stdout(SD_EXIT_OK) : sd_cli_fail(&err);
    sd_schedule_free(job.schedule);
    sd_model_free(job.model);
    sd_free(job.ids);
    sd_free(job.forced);
    return code;
}
