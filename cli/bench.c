/* SPDX-License-Identifier: MIT
 *
 * skipdecode bench: arguments, the model, and the order of the work. */
#include "cli/bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/gnuplot.h"
#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "src/base/error.h"
#include "src/base/rng.h"
#include "src/generate/recipe.h"
#include "src/model/random.h"
#include "src/schedule/schedule.h"

enum { DEFAULT_TOKENS = 128, DEFAULT_REPEAT = 5, QUICK_TOKENS = 32, QUICK_REPEAT = 3 };

/* ---- lists ---- */

/* Full depth is what the others are compared with: it comes first, given or not. */
static int parse_targets(sd_bench *bench, const char *text, sd_error *err)
{
    double given[SD_BENCH_LIST];
    int n;
    int rc = sd_parse_list("speedups", text, false, 1000, SD_BENCH_LIST, given, &n, err);
    bench->targets[0] = 1;
    bench->n_targets = 1;
    for (int i = 0; rc == SD_OK && i < n; i++) {
        if (given[i] != 1 && bench->n_targets == SD_BENCH_LIST) {
            return sd_fail(err, SD_ERR_ARG, "--speedups: more than %d values besides 1; expected at most that many",
                           SD_BENCH_LIST - 1);
        }
        if (given[i] != 1) {
            bench->targets[bench->n_targets++] = given[i];
        }
    }
    return rc;
}

static int parse_batches(sd_bench *bench, const char *text, sd_error *err)
{
    double given[SD_BENCH_LIST];
    int rc = sd_parse_list("batch", text, true, SD_BENCH_BATCH, SD_BENCH_LIST, given, &bench->n_batches, err);
    for (int i = 0; rc == SD_OK && i < bench->n_batches; i++) {
        bench->batches[i] = (int)given[i];
    }
    return rc;
}

static int largest_batch(const sd_bench *bench)
{
    int most = 1;
    for (int i = 0; i < bench->n_batches; i++) {
        most = bench->batches[i] > most ? bench->batches[i] : most;
    }
    return most;
}

/* ---- what is measured ---- */

static int unknown_shape(const char *name, sd_error *err)
{
    char list[256] = "";
    size_t used = 0;
    for (size_t i = 0; i < sd_n_shapes && used < sizeof list; i++) {
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i == 0 ? "" : ", ", sd_shapes[i].name);
    }
    return sd_fail(err, SD_ERR_ARG, "--shape \"%s\"; expected one of %s", name, list);
}

static int find_config(sd_bench *bench, sd_error *err)
{
    const sd_bench_flags *f = bench->flags;
    sd_schedule_options_default(&bench->schedule);
    if (f->shape) {
        const sd_shape *shape = sd_shape_find(f->shape);
        if (!shape) {
            return unknown_shape(f->shape, err);
        }
        bench->config = shape->config;
        bench->name = shape->name;
        return SD_OK;
    }
    bench->name = f->dir;
    sd_recipe recipe;
    int rc = sd_config_load(&bench->config, f->dir, err);
    rc = rc == SD_OK ? sd_recipe_load(&recipe, f->dir, err) : rc;
    if (rc == SD_OK) {
        sd_recipe_take_schedule(&recipe, &bench->schedule);
        sd_recipe_clear(&recipe);
    }
    return rc;
}

/* What was not given is such that it fits the model. */
static int choose_lengths(sd_bench *bench, sd_bench_flags *f, sd_error *err)
{
    const int positions = bench->config.max_positions, usual = f->quick ? QUICK_TOKENS : DEFAULT_TOKENS;
    if (f->n_prompt == 0) {
        f->n_prompt = usual <= positions / 2 ? usual : (positions + 1) / 2;
    }
    if (f->n_gen == 0) {
        const int room = f->n_prompt <= positions ? positions - f->n_prompt + 1 : 2;
        f->n_gen = usual <= room ? usual : room;
    }
    if (f->repeat > SD_BENCH_REPEAT) {
        return sd_fail(err, SD_ERR_ARG, "--repeat %d; expected 1 .. %d", f->repeat, SD_BENCH_REPEAT);
    }
    f->repeat = f->repeat ? f->repeat : f->quick ? QUICK_REPEAT : DEFAULT_REPEAT;
    if (f->n_gen < 2 || f->n_prompt > positions || f->n_gen - 1 > positions - f->n_prompt) {
        return sd_fail(err, SD_ERR_ARG,
                       "--prompt %d and --gen %d: expected a --gen of at least 2, and together at most the %d "
                       "positions of %s + 1",
                       f->n_prompt, f->n_gen, positions, bench->name);
    }
    return SD_OK;
}

/* By seconds: the schedule whose predicted decode meets the target. What steps cost is timed in this run, once for each
 * batch: a cache would be of another hour. */
static int choose_by_clock(sd_bench *bench, int batch, double target, sd_schedule_options *options, double *predicted,
                           sd_error *err)
{
    const sd_bench_flags *f = bench->flags;
    const sd_wall_task task = {bench->config.n_layers, f->n_prompt, f->n_gen - 1, target};
    int rc = bench->cost.rows == batch
                 ? SD_OK
                 : sd_cost_measure(&bench->cost, bench->model, batch, f->n_prompt + f->n_gen - 1, err);
    return rc == SD_OK ? sd_cost_choose(options, &bench->cost, &task, predicted, err) : rc;
}

/* The schedule that is to reach a target. By layers it is the preset whose mean over the steps that run is L / target.
 * *predicted is the decode speedup that the cost model expects of it, NAN where it was not asked. */
static int choose_schedule(sd_bench *bench, int batch, double target, sd_schedule **schedule, double *predicted,
                           sd_error *err)
{
    *predicted = NAN;
    sd_schedule_options options = bench->schedule;
    options.horizon = bench->flags->n_gen - 1;
    int rc = bench->by_clock && target > 1 ? choose_by_clock(bench, batch, target, &options, predicted, err)
                                           : sd_schedule_preset(&options, bench->config.n_layers, target, err);
    rc = rc == SD_OK ? sd_schedule_create(schedule, bench->config.n_layers, bench->flags->n_gen, &options, err) : rc;
    options.ranking = NULL; /* the bench's */
    options.n_ranking = 0;
    sd_schedule_options_clear(&options);
    return rc;
}

static int check_measure(sd_bench *bench, const char *measure, sd_error *err)
{
    bench->by_clock = measure && strcmp(measure, "wall") == 0;
    return !measure || bench->by_clock || strcmp(measure, "layers") == 0
               ? SD_OK
               : sd_fail(err, SD_ERR_ARG, "--measure \"%s\"; expected wall or layers", measure);
}

/* ---- the work ---- */

/* Everything that can be wrong with the arguments, before a weight is touched. */
static int check_arguments(sd_bench *bench, sd_bench_flags *f, sd_model_options *options, sd_error *err)
{
    int rc = parse_batches(bench, f->batches, err);
    rc = rc == SD_OK ? parse_targets(bench, f->speedups, err) : rc;
    rc = rc == SD_OK ? check_measure(bench, f->measure, err) : rc;
    rc = rc == SD_OK ? sd_model_flags_resolve(&f->model, options, err) : rc;
    rc = rc == SD_OK ? find_config(bench, err) : rc;
    rc = rc == SD_OK ? choose_lengths(bench, f, err) : rc;
    return rc == SD_OK && f->plot ? sd_gnuplot_check(f->plot, err) : rc;
}

/* The fastest multiply-adds that the products with these weights could be made of. */
static sd_peak choose_peak(const sd_bench *bench)
{
    const sd_matrix *w = &bench->model->layers[0].qkv.w;
    switch (w->type) {
    case SD_W_Q8:
    case SD_W_Q4: return SD_PEAK_INT8;
    case SD_W_BF16: return bench->model->kernels->pack_input[SD_W_BF16] ? SD_PEAK_BF16 : SD_PEAK_F32;
    default: return SD_PEAK_F32;
    }
}

static int make_model(sd_bench *bench, const sd_model_options *options, sd_error *err)
{
    const sd_bench_flags *f = bench->flags;
    const double start = sd_clock_seconds();
    int rc = f->shape ? sd_model_random(&bench->model, &bench->config, options, f->seed, err)
                      : sd_model_load(&bench->model, f->dir, options, err);
    if (rc != SD_OK) {
        return rc;
    }
    bench->load_seconds = sd_clock_seconds() - start;
    bench->load_peak_rss = sd_bench_peak_rss();
    bench->config = bench->model->config;
    sd_model_get_info(bench->model, &bench->info);
    bench->peak = choose_peak(bench);
    return sd_bench_prepare_probe(bench, err);
}

static int make_tokens(sd_bench *bench, sd_error *err)
{
    const size_t rows = (size_t)largest_batch(bench);
    const size_t n = rows * (size_t)(bench->flags->n_prompt + bench->flags->n_gen);
    bench->tokens = sd_malloc(n, sizeof *bench->tokens);
    bench->feeds = sd_malloc(rows, sizeof *bench->feeds);
    bench->rows = sd_malloc(rows, sizeof *bench->rows);
    if (!bench->tokens || !bench->feeds || !bench->rows) {
        return sd_fail_memory(err, n * sizeof *bench->tokens, "the tokens");
    }
    sd_rng rng;
    sd_rng_seed(&rng, bench->flags->seed);
    for (size_t i = 0; i < n; i++) {
        bench->tokens[i] = (int32_t)sd_rng_below(&rng, (uint64_t)bench->config.vocab);
    }
    return SD_OK;
}

static int make_lines(sd_bench *bench, sd_error *err)
{
    const size_t n = (size_t)bench->n_batches * (size_t)bench->n_targets, repeat = (size_t)bench->flags->repeat;
    bench->lines = sd_calloc(n, sizeof *bench->lines);
    int rc = bench->lines ? SD_OK : sd_fail_memory(err, n * sizeof *bench->lines, "the table");
    for (size_t i = 0; rc == SD_OK && i < n; i++) {
        sd_bench_line *line = &bench->lines[i];
        line->batch = bench->batches[i / (size_t)bench->n_targets];
        line->target = bench->targets[i % (size_t)bench->n_targets];
        line->repetitions = sd_calloc(repeat, sizeof *line->repetitions);
        rc = line->repetitions ? SD_OK : sd_fail_memory(err, repeat * sizeof *line->repetitions, "the table");
        if (rc == SD_OK) {
            rc = choose_schedule(bench, line->batch, line->target, &line->schedule, &line->predicted_speedup, err);
        }
    }
    return rc;
}

static void start_progress(sd_bench *bench)
{
    double rows = 0, work = 0;
    for (int i = 0; i < bench->n_batches * bench->n_targets; i++) {
        const sd_bench_line *line = &bench->lines[i];
        const int runs = bench->flags->repeat * (line->target > 1 || bench->n_targets == 1 ? 1 : 2);
        rows += runs * line->batch;
        work += runs * line->batch * (bench->flags->n_prompt + bench->flags->n_gen) / line->target;
    }
    sd_progress_start(&bench->progress, (int64_t)rows, work, false);
}

static int run(sd_bench *bench, sd_error *err)
{
    int rc = SD_OK;
    sd_bench_print_head(bench);
    start_progress(bench);
    for (int i = 0; rc == SD_OK && i < bench->n_batches; i++) {
        rc = sd_bench_run(bench, i, err);
        sd_progress_clear(&bench->progress);
        rc = rc == SD_OK ? sd_bench_print(bench, i, err) : rc;
        fflush(stdout); /* hours may lie between two batches; a write error stays in stdout */
    }
    return rc == SD_OK && bench->flags->plot ? sd_bench_plot(bench, err) : rc;
}

static void clear(sd_bench *bench)
{
    for (int i = 0; bench->lines && i < bench->n_batches * bench->n_targets; i++) {
        sd_schedule_free(bench->lines[i].schedule);
        sd_free(bench->lines[i].repetitions);
    }
    sd_free(bench->lines);
    sd_free(bench->spans);
    sd_free_aligned(bench->probe_array);
    sd_free(bench->tokens);
    sd_free(bench->feeds);
    sd_free(bench->rows);
    sd_schedule_options_clear(&bench->schedule);
    sd_model_free(bench->model);
}

static int bench_model(sd_bench_flags *f)
{
    sd_bench bench = {.flags = f};
    sd_model_options options;
    sd_error err = {0};
    int rc = check_arguments(&bench, f, &options, &err);
    rc = rc == SD_OK ? make_model(&bench, &options, &err) : rc;
    rc = rc == SD_OK ? make_lines(&bench, &err) : rc;
    rc = rc == SD_OK ? make_tokens(&bench, &err) : rc;
    rc = rc == SD_OK ? run(&bench, &err) : rc;
    const int code = rc == SD_OK ? sd_cli_close_stdout(SD_EXIT_OK) : sd_cli_fail(&err);
    clear(&bench);
    return code;
}

int sd_verb_bench(int argc, char **argv)
{
    sd_bench_flags f = {.batches = "1,8,32", .speedups = "1,2,3,4,5", .prefill_tokens = 512};
    const sd_option options[] = {
        {"shape", "NAME", SD_OPTION_STRING, &f.shape,
         "random weights in the sizes of opt-125m, opt-350m, opt-1.3b, opt-2.7b, opt-6.7b or e2e"},
        SD_MODEL_OPTIONS(f.model),
        {"batch", "LIST", SD_OPTION_STRING, &f.batches, "rows decoded together; default 1,8,32"},
        {"speedups", "LIST", SD_OPTION_STRING, &f.speedups, "targets; default 1,2,3,4,5; 1 is always measured too"},
        {"measure", "NAME", SD_OPTION_STRING, &f.measure, "what a target means: layers (default) or wall"},
        {"prompt", "P", SD_OPTION_COUNT, &f.n_prompt, "tokens of each row's prompt; default 128"},
        {"gen", "N", SD_OPTION_COUNT, &f.n_gen, "tokens each row generates; default 128"},
        {"repeat", "N", SD_OPTION_COUNT, &f.repeat, "repetitions, each with all targets in turn; default 5"},
        {"quick", NULL, SD_OPTION_FLAG, &f.quick, "where not given: 32 + 32 tokens, 3 repetitions"},
        {"prefill-tokens", "N", SD_OPTION_COUNT, &f.prefill_tokens, "most prompt tokens in one pass; default 512"},
        {"seed", "N", SD_OPTION_UINT64, &f.seed, "of random weights and tokens; default 0"},
        {"plot", "FILE.png", SD_OPTION_STRING, &f.plot, "draw tokens a second and speedups with gnuplot"},
        {"json", NULL, SD_OPTION_FLAG, &f.json, "one JSON object a line of the table"},
    };
    int code = sd_options_read("bench", options, sizeof options / sizeof *options, argc, argv, &f.dir, -1);
    if (code >= 0) {
        return code;
    }
    if (!f.dir == !f.shape) {
        return sd_cli_usage("bench", f.dir ? "\"%s\" and --shape exclude each other"
                                           : "expected a model directory or --shape NAME%s",
                            f.dir ? f.dir : "");
    }
    return bench_model(&f);
}
