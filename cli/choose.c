/* SPDX-License-Identifier: MIT
 *
 * The schedule of a `skipdecode generate` that was given a speedup by the clock. */
#include <jansson.h>
#include <string.h>

#include "cli/calibration.h"
#include "cli/generate.h"
#include "src/base/error.h"

/* A run that goes on stays on the schedule it began with, or its rows would not be one run's. */
static int take_over(sd_job *job, size_t row, const char *line, sd_error *err)
{
    json_t *o = json_loads(line, JSON_ALLOW_NUL, NULL);
    const char *text = json_string_value(json_object_get(o, "schedule"));
    int rc = text ? sd_schedule_parse(&job->options.schedule, text, err)
                  : sd_fail(err, SD_ERR_ARG, "no \"schedule\" to go on with");
    json_decref(o);
    return rc == SD_OK ? SD_OK
                       : sd_fail_prefix(err, SD_ERR_ARG, "%s: row %zu (--overwrite starts afresh)", job->flags->output,
                                        row);
}

static int measure(sd_job *job, sd_error *err)
{
    const int most_rows = job->options.batch, horizon = job->options.schedule.horizon;
    const int rows = job->n_todo < (size_t)most_rows ? (int)job->n_todo : most_rows;
    int64_t prompts = 0;
    int steps = 1;
    for (size_t i = 0; i < job->input.n; i++) {
        prompts += job->requests[i].n_prompt;
        steps = job->requests[i].max_tokens - 1 > steps ? job->requests[i].max_tokens - 1 : steps;
    }
    const sd_wall_task task = {.n_layers = job->info.n_layers,
                               .n_prompt = (int)(prompts / (int64_t)job->input.n),
                               .steps = horizon ? horizon : steps,
                               .speedup = job->flags->schedule.speedup};
    sd_cost cost;
    int rc = sd_calibrate(&cost, job->model, rows, task.n_prompt + task.steps, &job->cached, err);
    return rc == SD_OK ? sd_cost_choose(&job->options.schedule, &cost, &task, &job->predicted, err) : rc;
}

int sd_job_choose_schedule(sd_job *job, sd_error *err)
{
    if (!job->by_clock) {
        return SD_OK;
    }
    size_t row = 0;
    while (row < job->input.n && !sd_journal_has(&job->journal, row)) {
        row++;
    }
    int rc = row < job->input.n ? take_over(job, row, sd_journal_line(&job->journal, row), err) : measure(job, err);
    return rc == SD_OK ? sd_job_check_schedules(job, err) : rc;
}
