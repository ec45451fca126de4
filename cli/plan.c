/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "cli/calibration.h"
#include "cli/cli.h"
#include "cli/gnuplot.h"
#include "src/base/error.h"
#include "src/base/file.h"
#include "src/engine/kv.h"
#include "src/generate/recipe.h"
#include "src/model/model.h"
#include "src/schedule/schedule.h"

enum { PICTURE_WIDTH = 64, DEFAULT_PROMPT = 32, DEFAULT_MAX_TOKENS = 64, DEFAULT_BATCH = 32 };

typedef struct sd_plan {
    const char *dir, *plot;
    sd_model_flags model;
    sd_schedule_flags flags;
    int max_tokens, n_prompt, batch;
    bool json;
    sd_kv_type kv_type;
    sd_config config;
    sd_schedule *schedule;
    /* what the schedule comes to, over the max_tokens - 1 steps of a row that generates max_tokens */
    int steps;
    double mean_budget, layer_speedup, request_layer_speedup;
    int horizon; /* steps over which the budget falls: the mean over these is what --speedup sets */
    double horizon_speedup;
    size_t kv_bytes, kv_full;
    bool by_clock, cached; /* the schedule was chosen by seconds; by steps timed in an earlier run */
    /* predicted, of the mean step over the horizon, for the whole batch */
    double full_step_seconds, step_seconds, predicted_speedup;
} sd_plan;

static void work_out(sd_plan *p)
{
    const sd_config *c = &p->config;
    p->steps = p->max_tokens - 1;
    int64_t run = 0;
    for (int j = 0; j < p->steps; j++) {
        run += sd_schedule_budget(p->schedule, j);
    }
    p->mean_budget = p->steps ? (double)run / p->steps : sd_schedule_budget(p->schedule, 0);
    p->layer_speedup = sd_schedule_layer_speedup(p->schedule, p->steps);
    p->horizon = sd_schedule_horizon(p->schedule);
    p->horizon_speedup = sd_schedule_layer_speedup(p->schedule, p->horizon);
    double prompt = (double)p->n_prompt * sd_schedule_prompt_budget(p->schedule);
    p->request_layer_speedup = (double)c->n_layers * (p->n_prompt + p->steps) / (prompt + (double)run);
    const sd_kv_shape shape = {.n_layers = c->n_layers, .n_heads = c->n_heads, .head_dim = c->head_dim,
                               .type = p->kv_type};
    p->kv_bytes = sd_kv_plan(&shape, p->schedule, p->n_prompt, p->max_tokens);
    p->kv_full = sd_kv_plan(&shape, NULL, p->n_prompt, p->max_tokens);
}

/* What the clock adds; NULL when memory is out. */
static json_t *clock_json(const sd_plan *p)
{
    return json_pack("{s:s, s:f, s:i, s:f, s:f, s:f}", "measure", "wall", "target_speedup", p->flags.speedup, "batch",
                     p->batch, "full_step_seconds", p->full_step_seconds, "step_seconds", p->step_seconds,
                     "predicted_speedup", p->predicted_speedup);
}

static int print_json(const sd_plan *p, sd_error *err)
{
    json_t *budgets = json_array(), *layers = json_array();
    for (int j = 0; j < p->steps; j++) {
        json_array_append_new(budgets, json_integer(sd_schedule_budget(p->schedule, j)));
    }
    for (int l = 0; l < p->config.n_layers; l++) {
        json_array_append_new(layers, json_integer(sd_schedule_layer_steps(p->schedule, l, p->steps)));
    }
    json_t *o = json_pack("{s:o, s:s, s:i, s:i, s:i, s:i, s:f, s:f, s:i, s:f, s:f, s:I, s:I, s:o, s:o}", "model",
                          sd_cli_json_path(p->dir), "schedule", sd_schedule_text(p->schedule), "n_layers",
                          p->config.n_layers, "prompt_tokens", p->n_prompt, "max_tokens", p->max_tokens,
                          "prompt_budget", sd_schedule_prompt_budget(p->schedule), "mean_budget", p->mean_budget,
                          "layer_speedup", p->layer_speedup, "horizon", p->horizon, "horizon_layer_speedup",
                          p->horizon_speedup, "request_layer_speedup", p->request_layer_speedup,
                          "kv_bytes_per_row", (json_int_t)p->kv_bytes, "kv_bytes_full", (json_int_t)p->kv_full,
                          "budgets", budgets, "layer_steps", layers);
    json_t *clock = p->by_clock ? clock_json(p) : NULL;
    if (p->by_clock && (!o || json_object_update(o, clock) != 0)) {
        json_decref(o);
        o = NULL;
    }
    json_decref(clock);
    return sd_cli_print_json(o, 0, err);
}

/* Steps with one budget are one line of the table. */
static void print_table(const sd_plan *p)
{
    printf("\n      steps  layers  which\n");
    for (int j = 0; j < p->steps;) {
        int budget = sd_schedule_budget(p->schedule, j), end = j + 1;
        while (end < p->steps && sd_schedule_budget(p->schedule, end) == budget) {
            end++;
        }
        char range[32];
        (void)snprintf(range, sizeof range, end - j > 1 ? "%d-%d" : "%d", j, end - 1);
        printf("%11s  %6d  ", range, budget);
        const char *comma = "";
        for (int l = 0; l < p->config.n_layers;) {
            int first = l;
            while (l < p->config.n_layers && sd_schedule_runs(p->schedule, l, j)) {
                l++;
            }
            if (l > first) {
                printf(l - first > 1 ? "%s%d-%d" : "%s%d", comma, first, l - 1);
                comma = ",";
            }
            l += l == first;
        }
        putchar('\n');
        j = end;
    }
}

static int print_text(const sd_plan *p, sd_error *err)
{
    printf("%s: %d layers, prompt of %d tokens, %d to generate\n", p->dir, p->config.n_layers, p->n_prompt,
           p->max_tokens);
    printf("schedule               %s\n", sd_schedule_text(p->schedule));
    printf("prompt budget          %d layers\n", sd_schedule_prompt_budget(p->schedule));
    printf("mean budget            %.2f layers a decode step, over %d steps\n", p->mean_budget, p->steps);
    if (p->by_clock) {
        printf("decode step            %.3g ms at full depth, %.3g ms on the schedule, %d row%s (predicted from steps "
               "timed %s)\n", p->full_step_seconds * 1e3, p->step_seconds * 1e3, p->batch, p->batch == 1 ? "" : "s",
               p->cached ? "earlier" : "just now");
        printf("decode speedup         %.2fx by the clock, predicted; the target is %gx\n", p->predicted_speedup,
               p->flags.speedup);
    }
    printf("layer speedup          %.2fx in decoding, %.2fx over the request, prompt included (layers, not seconds)\n",
           p->layer_speedup, p->request_layer_speedup);
    if (p->horizon > 1 && p->horizon != p->steps) {
        const char *why = p->horizon < p->steps ? "steps past it run the smallest budget" : "this row ends before it";
        printf("                       %.2fx over the schedule's horizon of %d steps; %s\n", p->horizon_speedup,
               p->horizon, why);
    }
    printf("KV cache of a row      %zu bytes; the full model's %zu (%.2fx), as %s\n", p->kv_bytes, p->kv_full,
           (double)p->kv_full / (double)(p->kv_bytes ? p->kv_bytes : 1),
           p->kv_type == SD_KV_F16 ? "f16" : "f32");
    print_table(p);
    sd_buf picture = {0};
    sd_schedule_draw(p->schedule, p->steps > 0 ? p->steps : 1, PICTURE_WIDTH, &picture);
    int rc = picture.failed ? sd_fail_memory(err, picture.len, "the picture") : SD_OK;
    if (rc == SD_OK) {
        printf("\n%s          +-> decode steps 0 .. %d\n", picture.data, p->steps > 0 ? p->steps - 1 : 0);
    }
    sd_buf_free(&picture);
    return rc;
}

/* ---- the plot ---- */

static void write_plot(const void *plan, FILE *to)
{
    const sd_plan *p = plan;
    fprintf(to, "set terminal pngcairo size 1000,600 font 'sans,12'\n");
    fprintf(to, "set title 'Layers that run at each decode step: %.2fx layer speedup' noenhanced\n", p->layer_speedup);
    fprintf(to, "set xlabel 'decode step'\nset ylabel 'layer'\nset xrange [-0.5:%d.5]\nset yrange [-0.5:%d.5]\n",
            p->steps - 1, p->config.n_layers - 1);
    fprintf(to, "set key below center\nset bmargin 5\nset style fill solid noborder\nset boxwidth 0.9\n");
    fprintf(to, "plot '-' using 1:2:(0.45):(0.42) with boxxyerror lc rgb '#2c7fb8' title 'runs', "
                "'-' using 1:2 with steps lw 2 lc rgb '#d95f0e' title 'budget (number of layers)'\n");
    for (int j = 0; j < p->steps; j++) {
        for (int l = 0; l < p->config.n_layers; l++) {
            if (sd_schedule_runs(p->schedule, l, j)) {
                fprintf(to, "%d %d\n", j, l);
            }
        }
    }
    fputs("e\n", to);
    for (int j = 0; j < p->steps; j++) {
        fprintf(to, "%d %d\n", j, sd_schedule_budget(p->schedule, j));
    }
    fputs("e\n", to);
}

static int plot(const sd_plan *p, sd_error *err)
{
    if (p->steps < 1) {
        return sd_fail(err, SD_ERR_ARG, "--plot: --max-tokens 1 runs no decode step, so there is nothing to draw");
    }
    return sd_gnuplot(p->plot, write_plot, p, err);
}

/* What was not given is such that it fits the model. */
static void set_defaults(sd_plan *p, const sd_recipe *recipe)
{
    int positions = p->config.max_positions;
    if (p->n_prompt == 0) {
        p->n_prompt = positions < DEFAULT_PROMPT ? positions : DEFAULT_PROMPT;
    }
    if (p->max_tokens == 0) {
        int wanted = recipe->max_tokens ? recipe->max_tokens : DEFAULT_MAX_TOKENS, room = positions - p->n_prompt + 1;
        p->max_tokens = room >= 1 && room < wanted ? room : wanted;
    }
}

/* Loads the model, times its steps and sets the budget of *so. */
static int choose_by_clock(sd_plan *p, sd_schedule_options *so, sd_error *err)
{
    sd_model_options mo;
    sd_model *model = NULL;
    sd_cost cost;
    sd_schedule *schedule = NULL;
    const int steps = so->horizon ? so->horizon : p->max_tokens > 1 ? p->max_tokens - 1 : 1;
    const sd_wall_task task = {p->config.n_layers, p->n_prompt, steps, p->flags.speedup};
    int rc = sd_model_flags_resolve(&p->model, &mo, err);
    rc = rc == SD_OK ? sd_model_load(&model, p->dir, &mo, err) : rc;
    rc = rc == SD_OK ? sd_calibrate(&cost, model, p->batch, p->n_prompt + steps, &p->cached, err) : rc;
    rc = rc == SD_OK ? sd_cost_choose(so, &cost, &task, &p->predicted_speedup, err) : rc;
    rc = rc == SD_OK ? sd_schedule_create(&schedule, p->config.n_layers, p->max_tokens, so, err) : rc;
    if (rc == SD_OK) {
        p->kv_type = model->kv;
        p->full_step_seconds = sd_cost_predict(&cost, NULL, p->n_prompt, steps) / steps;
        p->step_seconds = sd_cost_predict(&cost, schedule, p->n_prompt, steps) / steps;
    }
    sd_schedule_free(schedule);
    sd_model_free(model);
    return rc;
}

static int prepare(sd_plan *p, sd_error *err)
{
    sd_recipe recipe;
    int rc = sd_config_load(&p->config, p->dir, err);
    if (rc == SD_OK) {
        rc = sd_recipe_load(&recipe, p->dir, err);
    }
    if (rc != SD_OK) {
        return rc;
    }
    sd_schedule_options so;
    sd_recipe_take_schedule(&recipe, &so);
    set_defaults(p, &recipe);
    sd_recipe_clear(&recipe);
    rc = sd_schedule_flags_resolve(&p->flags, p->config.n_layers, p->by_clock, &so, err);
    if (rc == SD_OK && (p->max_tokens < 1 || p->n_prompt < 1 || p->n_prompt > p->config.max_positions ||
                        p->max_tokens - 1 > p->config.max_positions - p->n_prompt)) {
        rc = sd_fail(err, SD_ERR_ARG,
                     "--prompt-tokens %d and --max-tokens %d: expected at least 1 each, and together at most the "
                     "model's %d positions + 1",
                     p->n_prompt, p->max_tokens, p->config.max_positions);
    }
    rc = rc == SD_OK && p->by_clock ? choose_by_clock(p, &so, err) : rc;
    rc = rc == SD_OK ? sd_schedule_create(&p->schedule, p->config.n_layers, p->max_tokens, &so, err) : rc;
    sd_schedule_options_clear(&so);
    return rc;
}

/* What must be right before a file is read. Returns -1 to go on. */
static int check_flags(sd_plan *p)
{
    const sd_model_flags *m = &p->model;
    const bool wall = p->flags.measure && strcmp(p->flags.measure, "wall") == 0;
    if (!wall && (m->weights || m->head || m->threads || m->no_mmap || p->batch)) {
        return sd_cli_usage("plan", "--batch, --weights, --head, --threads and --no-mmap say what is timed; expected "
                            "--measure wall with them");
    }
    if (p->batch > 4096) {
        return sd_cli_usage("plan", "--batch %d; expected 1 .. 4096", p->batch);
    }
    p->batch = p->batch ? p->batch : DEFAULT_BATCH;
    return -1;
}

int sd_verb_plan(int argc, char **argv)
{
    sd_plan p = {0};
    const sd_option options[] = {
        SD_SCHEDULE_OPTIONS(p.flags),
        SD_MEASURE_OPTION(p.flags, "layers"),
        {"batch", "N", SD_OPTION_COUNT, &p.batch, "rows decoded together, with --measure wall; default 32"},
        {"max-tokens", "N", SD_OPTION_COUNT, &p.max_tokens, "tokens a row generates; default: the model's, else 64"},
        {"prompt-tokens", "P", SD_OPTION_COUNT, &p.n_prompt, "tokens of its prompt; default 32"},
        SD_MODEL_OPTIONS(p.model),
        {"plot", "FILE.png", SD_OPTION_STRING, &p.plot, "draw layers against steps with gnuplot"},
        {"json", NULL, SD_OPTION_FLAG, &p.json, "one JSON object"},
    };
    int code = sd_options_read("plan", options, sizeof options / sizeof *options, argc, argv, &p.dir, 1);
    code = code < 0 ? check_flags(&p) : code;
    if (code >= 0) {
        return code;
    }
    sd_error err = {0};
    int rc = sd_schedule_flags_by_clock(&p.flags, false, &p.by_clock, &err);
    rc = rc == SD_OK ? sd_parse_kv(p.model.kv, &p.kv_type, &err) : rc;
    rc = rc == SD_OK ? prepare(&p, &err) : rc;
    if (rc == SD_OK && p.plot) { /* before anything is printed */
        rc = sd_check_output(p.plot, &err);
    }
    if (rc == SD_OK) {
        work_out(&p);
        rc = p.json ? print_json(&p, &err) : print_text(&p, &err);
    }
    if (rc == SD_OK && p.plot) {
        rc = plot(&p, &err);
    }
    code = rc == SD_OK ? sd_cli_close_stdout(SD_EXIT_OK) : sd_cli_fail(&err);
    sd_schedule_free(p.schedule);
    return code;
}
