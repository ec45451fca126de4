/* SPDX-License-Identifier: MIT */
#include "src/schedule/schedule.h"

#include <math.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/error.h"
#include "src/base/log.h"

/* Nothing decodes more steps than this; a larger horizon is a typing error, and tables stay small. */
enum { MAX_HORIZON = 1 << 20, MAX_LAYERS = 1 << 14 };

struct sd_schedule {
    int n_layers;
    int prompt;     /* k_p, resolved to layers */
    int n_budgets;  /* >= 1 */
    int *budgets;   /* [n_budgets] k(j); the last one holds for all later steps */
    int *rank;      /* [n_layers] */
    bool own_order; /* the ranking was given by hand */
    char *text;
};

void sd_schedule_options_default(sd_schedule_options *options)
{
    *options = (sd_schedule_options){.full = true, .warmup = 1, .prompt = SD_PROMPT_FULL};
}

/* Speedups are written in decimals: where one makes a half exactly, the last bit of its double must not decide. */
static double round_half_up(double x) { return floor(x + 0.5 + 1e-9); }

static int clamp(double x, int low, int high) { return x < low ? low : x > high ? high : (int)x; }

int sd_schedule_preset(sd_schedule_options *options, int n_layers, double speedup, sd_error *err)
{
    if (!(speedup >= 1) || !isfinite(speedup)) {
        return sd_fail(err, SD_ERR_ARG, "speedup %g: expected a number of at least 1 (1 runs all layers)", speedup);
    }
    int low = options->warmup + 1;
    if (options->warmup < 0 || low > n_layers) {
        return sd_fail(err, SD_ERR_ARG, "warmup %d: expected 0 .. %d for a model of %d layers", options->warmup,
                       n_layers - 1, n_layers);
    }
    double mean = n_layers / speedup;
    double max = round_half_up(4.0 / 3.0 * mean), min = round_half_up(2.0 / 3.0 * mean);
    if (max > n_layers) { /* cut at the top: the other end rises by as much, so that the mean stays L/s */
        max = n_layers;
        min = round_half_up(2 * mean - n_layers);
    }
    if (min < low) { /* more than the warm-up must run, so the target is missed */
        double reached = 2.0 * n_layers / (clamp(max, low, n_layers) + low);
        sd_warn("speedup %g is out of reach: a token runs at least %d of this model's %d layers (warm-up + 1), so the "
                "schedule comes to %.2fx over its horizon",
                speedup, low, n_layers, reached);
    }
    options->full = speedup == 1;
    options->max_layers = clamp(max, low, n_layers);
    options->min_layers = clamp(min, low, options->max_layers);
    sd_free((void *)(uintptr_t)options->budgets);
    options->budgets = NULL;
    options->n_budgets = 0;
    return SD_OK;
}

/* k(j) = floor(max - (max - min) j / (N - 1) + 1/2), in integers so that every machine and language agrees. */
static int line_budget(int max, int min, int horizon, int step)
{
    if (horizon == 1) {
        return max;
    }
    int64_t span = horizon - 1, fall = (int64_t)(max - min) * step;
    return (int)((2 * span * max - 2 * fall + span) / (2 * span));
}

static int check_budget(int k, int low, int n_layers, const char *what, sd_error *err)
{
    if (k < low || k > n_layers) {
        return sd_fail(err, SD_ERR_ARG, "%s: a budget of %d layers is outside %d .. %d (warm-up + 1 .. all layers)",
                       what, k, low, n_layers);
    }
    return SD_OK;
}

static int fill_line(sd_schedule *s, const sd_schedule_options *o, int low, int max_tokens, sd_error *err)
{
    int max = o->max_layers ? o->max_layers : s->n_layers;
    int min = o->min_layers ? o->min_layers : max;
    int horizon = o->horizon ? o->horizon : max_tokens;
    int rc = check_budget(max, low, s->n_layers, "schedule max", err);
    if (rc == SD_OK) {
        rc = check_budget(min, low, s->n_layers, "schedule min", err);
    }
    if (rc != SD_OK) {
        return rc;
    }
    if (min > max) {
        return sd_fail(err, SD_ERR_ARG,
                       "schedule: min=%d is larger than max=%d, but a budget may only fall: an earlier token "
                       "would lack K/V in the layers that a later one runs",
                       min, max);
    }
    if (horizon < 1 || horizon > MAX_HORIZON) {
        return sd_fail(err, SD_ERR_ARG, "schedule horizon %d: expected 1 .. %d steps", horizon, MAX_HORIZON);
    }
    s->budgets = sd_malloc((size_t)horizon, sizeof *s->budgets);
    if (!s->budgets) {
        return sd_fail_memory(err, (size_t)horizon * sizeof *s->budgets, "a schedule");
    }
    s->n_budgets = horizon;
    for (int j = 0; j < horizon; j++) {
        s->budgets[j] = line_budget(max, min, horizon, j);
    }
    return SD_OK;
}

static int fill_list(sd_schedule *s, const sd_schedule_options *o, int low, sd_error *err)
{
    if (o->n_budgets < 1 || o->n_budgets > MAX_HORIZON) {
        return sd_fail(err, SD_ERR_ARG, "schedule budgets: %d values, expected 1 .. %d", o->n_budgets, MAX_HORIZON);
    }
    s->budgets = sd_malloc((size_t)o->n_budgets, sizeof *s->budgets);
    if (!s->budgets) {
        return sd_fail_memory(err, (size_t)o->n_budgets * sizeof *s->budgets, "a schedule");
    }
    s->n_budgets = o->n_budgets;
    for (int j = 0; j < o->n_budgets; j++) {
        int rc = check_budget(o->budgets[j], low, s->n_layers, "schedule budgets", err);
        if (rc != SD_OK) {
            return rc;
        }
        if (j > 0 && o->budgets[j] > o->budgets[j - 1]) {
            return sd_fail(err, SD_ERR_ARG,
                           "schedule budgets: step %d runs %d layers after %d at step %d, but a budget may "
                           "only fall: earlier tokens would lack K/V in the added layers",
                           j, o->budgets[j], o->budgets[j - 1], j - 1);
        }
        s->budgets[j] = o->budgets[j];
    }
    return SD_OK;
}

static int fill_ranks(sd_schedule *s, const sd_schedule_options *o, sd_error *err)
{
    int n = s->n_layers;
    if (!o->ranking || o->full) { /* warm-up layers first, then from the top down */
        for (int l = 0; l < n; l++) {
            s->rank[l] = l < o->warmup ? l : o->warmup + (n - 1 - l);
        }
        return SD_OK;
    }
    if (o->n_ranking != n) {
        return sd_fail(err, SD_ERR_ARG, "schedule ranking: %d layers, expected every one of the model's %d once",
                       o->n_ranking, n);
    }
    for (int l = 0; l < n; l++) {
        s->rank[l] = -1;
    }
    for (int r = 0; r < n; r++) {
        int l = o->ranking[r];
        if (l < 0 || l >= n || s->rank[l] >= 0) {
            return sd_fail(err, SD_ERR_ARG,
                           "schedule ranking: layer %d at place %d %s; expected a permutation of 0 .. %d", l, r,
                           l < 0 || l >= n ? "does not exist" : "comes twice", n - 1);
        }
        s->rank[l] = r;
    }
    s->own_order = true;
    return SD_OK;
}

static int resolve_prompt(sd_schedule *s, int prompt, sd_error *err)
{
    int first = s->budgets[0];
    s->prompt = prompt == SD_PROMPT_FULL ? s->n_layers : prompt == SD_PROMPT_MAX ? first : prompt;
    if (s->prompt < first || s->prompt > s->n_layers) {
        return sd_fail(err, SD_ERR_ARG,
                       "schedule prompt=%d: expected full, max, or %d .. %d layers (the first step's budget .. "
                       "all): generated tokens attend to the prompt in every layer they run",
                       prompt, first, s->n_layers);
    }
    return SD_OK;
}

static int write_text(sd_schedule *s, const sd_schedule_options *o, int max_tokens, sd_error *err)
{
    sd_buf b = {0};
    if (sd_schedule_is_full(s)) {
        sd_buf_add_str(&b, "full");
    } else if (o->budgets) {
        sd_buf_printf(&b, "warmup=%d,budgets=", o->warmup);
        for (int j = 0; j < s->n_budgets; j++) {
            sd_buf_printf(&b, "%s%d", j ? ":" : "", s->budgets[j]);
        }
    } else {
        sd_buf_printf(&b, "warmup=%d,max=%d,min=%d,horizon=%d", o->warmup, s->budgets[0],
                      s->n_budgets == 1 ? s->budgets[0] : o->min_layers ? o->min_layers : s->budgets[0],
                      o->horizon ? o->horizon : max_tokens);
    }
    if (!sd_schedule_is_full(s)) {
        if (s->prompt == s->n_layers) {
            sd_buf_add_str(&b, ",prompt=full");
        } else {
            sd_buf_printf(&b, ",prompt=%d", s->prompt);
        }
        for (int r = 0; s->own_order && r < s->n_layers; r++) {
            int layer = 0;
            while (s->rank[layer] != r) {
                layer++;
            }
            sd_buf_printf(&b, "%s%d", r ? ":" : ",ranking=", layer);
        }
    }
    if (b.failed) {
        sd_buf_free(&b);
        return sd_fail_memory(err, 64, "a schedule's text");
    }
    s->text = b.data;
    return SD_OK;
}

/* The invariant everything rests on: sets only shrink, so every layer that runs holds K/V for all earlier positions.
 * True by construction; checked because a mistake above would show up as quietly wrong text. */
static int check_invariant(const sd_schedule *s, sd_error *err)
{
    int before = s->prompt;
    for (int j = 0; j < s->n_budgets; j++) {
        if (s->budgets[j] > before || s->budgets[j] < 1) {
            return sd_fail(err, SD_ERR_STATE, "schedule: internal error: budget %d at step %d after %d", s->budgets[j],
                           j, before);
        }
        before = s->budgets[j];
    }
    return SD_OK;
}

static int build(sd_schedule *s, int max_tokens, const sd_schedule_options *o, sd_error *err)
{
    int low = (o->ranking ? 0 : o->warmup) + 1;
    if (!o->full && (o->warmup < 0 || (!o->ranking && low > s->n_layers))) {
        return sd_fail(err, SD_ERR_ARG, "schedule warmup=%d: expected 0 .. %d for a model of %d layers", o->warmup,
                       s->n_layers - 1, s->n_layers);
    }
    s->rank = sd_malloc((size_t)s->n_layers, sizeof *s->rank);
    if (!s->rank) {
        return sd_fail_memory(err, (size_t)s->n_layers * sizeof *s->rank, "a schedule");
    }
    sd_schedule_options full = {.full = true, .max_layers = s->n_layers, .horizon = 1, .prompt = SD_PROMPT_FULL};
    const sd_schedule_options *lines = o->full ? &full : o;
    int rc = lines->budgets ? fill_list(s, lines, low, err) : fill_line(s, lines, o->full ? 1 : low, max_tokens, err);
    if (rc == SD_OK) {
        rc = fill_ranks(s, lines, err);
    }
    if (rc == SD_OK) {
        rc = resolve_prompt(s, lines->prompt, err);
    }
    if (rc == SD_OK) {
        rc = write_text(s, lines, max_tokens, err);
    }
    return rc == SD_OK ? check_invariant(s, err) : rc;
}

int sd_schedule_create(sd_schedule **out, int n_layers, int max_tokens, const sd_schedule_options *options,
                       sd_error *err)
{
    *out = NULL;
    if (n_layers < 1 || n_layers > MAX_LAYERS) {
        return sd_fail(err, SD_ERR_ARG, "schedule: a model of %d layers; expected 1 .. %d", n_layers, MAX_LAYERS);
    }
    if (max_tokens < 1) {
        return sd_fail(err, SD_ERR_ARG, "schedule: max_tokens is %d; expected at least 1", max_tokens);
    }
    sd_schedule *s = sd_calloc(1, sizeof *s);
    if (!s) {
        return sd_fail_memory(err, sizeof *s, "a schedule");
    }
    s->n_layers = n_layers;
    int rc = build(s, max_tokens, options, err);
    if (rc != SD_OK) {
        sd_schedule_free(s);
        return rc;
    }
    *out = s;
    return SD_OK;
}

void sd_schedule_free(sd_schedule *schedule)
{
    if (schedule) {
        sd_free(schedule->budgets);
        sd_free(schedule->rank);
        sd_free(schedule->text);
        sd_free(schedule);
    }
}

int sd_schedule_n_layers(const sd_schedule *schedule) { return schedule->n_layers; }
int sd_schedule_prompt_budget(const sd_schedule *schedule) { return schedule->prompt; }
const int *sd_schedule_ranks(const sd_schedule *schedule) { return schedule->rank; }
const char *sd_schedule_text(const sd_schedule *schedule) { return schedule->text; }

int sd_schedule_budget(const sd_schedule *schedule, int step)
{
    if (step < 0) { /* as for sd_schedule_runs: the prompt */
        return schedule->prompt;
    }
    return schedule->budgets[step < schedule->n_budgets ? step : schedule->n_budgets - 1];
}

bool sd_schedule_runs(const sd_schedule *schedule, int layer, int step)
{
    return schedule->rank[layer] < sd_schedule_budget(schedule, step);
}

int sd_schedule_horizon(const sd_schedule *schedule) { return schedule->n_budgets; }

int sd_schedule_layer_steps(const sd_schedule *schedule, int layer, int steps)
{
    /* budgets fall, so the steps in which the layer runs are a prefix: find its end by bisection */
    int last = schedule->n_budgets - 1;
    if (schedule->rank[layer] < schedule->budgets[last]) {
        return steps;
    }
    int low = 0, high = last; /* runs at every step < low, at none >= high */
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (schedule->rank[layer] < schedule->budgets[middle]) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < steps ? low : steps;
}

double sd_schedule_layer_speedup(const sd_schedule *schedule, int steps)
{
    int64_t run = 0;
    for (int j = 0; j < steps; j++) {
        run += sd_schedule_budget(schedule, j);
    }
    return run > 0 ? (double)schedule->n_layers * steps / (double)run : 1.0;
}

bool sd_schedule_is_full(const sd_schedule *schedule)
{
    return schedule->prompt == schedule->n_layers && schedule->budgets[schedule->n_budgets - 1] == schedule->n_layers;
}

bool sd_schedule_same_ranking(const sd_schedule *a, const sd_schedule *b)
{
    return a->n_layers == b->n_layers && (sd_schedule_is_full(a) || sd_schedule_is_full(b) ||
           memcmp(a->rank, b->rank, (size_t)a->n_layers * sizeof *a->rank) == 0);
}

void sd_schedule_draw(const sd_schedule *schedule, int steps, int width, sd_buf *out)
{
    int columns = steps < width ? steps : width;
    for (int l = schedule->n_layers - 1; l >= 0; l--) {
        sd_buf_printf(out, "layer %3d |", l);
        for (int c = 0; c < columns; c++) {
            int step = (int)((int64_t)c * steps / columns);
            sd_buf_add_str(out, sd_schedule_runs(schedule, l, step) ? "\xE2\x96\x88" : "\xC2\xB7");
        }
        sd_buf_add_str(out, "\n");
    }
}
