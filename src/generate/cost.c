/* SPDX-License-Identifier: MIT */
#include "src/generate/cost.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/engine/session.h"

/* SHORT: positions at which budgets are compared. What longer caches cost is measured apart, on as few layers and
 * positions as hold CACHE_BYTES, since filling the caches of all layers would take longer than everything else. */
enum { SHORT = 8, CACHE_BYTES = 256 << 20, MAX_ROUNDS = 40, FEWEST_ROUNDS = 2, PROBES = SD_COST_POINTS + 2 };

/* settle_seconds: a shorter step may find its weights in a cache, if the step before was one like it. */
static const double calibration_seconds = 1.5, timed_seconds = 1e-3, settle_seconds = 20e-3;

/* ---- measuring ---- */

/* Rows that take the same decode step over and over. */
typedef struct sd_meter {
    const sd_model *model;
    sd_session *session;
    sd_feed *feeds; /* [rows] */
    int rows;
} sd_meter;

/* One thing to be timed. */
typedef struct sd_probe {
    sd_meter *meter;
    const sd_schedule *schedule;
    int n_times;
    double times[MAX_ROUNDS]; /* seconds a step */
} sd_probe;

typedef struct sd_bank {
    sd_meter near, far;             /* few positions, all layers; many positions, some layers */
    sd_schedule *schedules[PROBES]; /* [n] constant budgets */
    sd_probe probes[PROBES];        /* [n] budgets, rising, then `some` layers at few and at many positions */
    int n;
} sd_bank;

static void close_meter(sd_meter *m)
{
    sd_session_free(m->session);
    sd_free(m->feeds);
}

static void close_bank(sd_bank *b)
{
    close_meter(&b->near);
    close_meter(&b->far);
    for (int i = 0; i < PROBES; i++) {
        sd_schedule_free(b->schedules[i]);
    }
}

/* schedule: what the rows' caches are planned for. */
static int open_meter(sd_meter *m, const sd_model *model, int rows, const sd_schedule *schedule, int n_positions,
                      sd_error *err)
{
    static const int32_t token = 0;
    *m = (sd_meter){.model = model, .rows = rows, .feeds = sd_calloc((size_t)rows, sizeof *m->feeds)};
    int rc = m->feeds ? SD_OK : sd_fail_memory(err, (size_t)rows * sizeof *m->feeds, "measuring");
    rc = rc == SD_OK ? sd_session_create(&m->session, model, rows, err) : rc;
    for (int r = 0; rc == SD_OK && r < rows; r++) {
        int row = 0;
        rc = sd_session_add(m->session, n_positions, 2, schedule, &row, err); /* two tokens: one decode step */
        if (rc == SD_OK) {
            sd_session_assume_prompt(m->session, row);
            m->feeds[r] = (sd_feed){.row = row, .ids = &token, .n = 1};
        }
    }
    return rc;
}

static int constant_schedule(sd_schedule **schedule, int n_layers, int layers, sd_error *err)
{
    sd_schedule_options so;
    sd_schedule_options_default(&so);
    so.full = layers == n_layers;
    so.warmup = 0;
    so.max_layers = so.min_layers = so.prompt = layers;
    so.horizon = 1;
    return sd_schedule_create(schedule, n_layers, 1, &so, err);
}

static int add_probe(sd_bank *b, sd_meter *meter, int n_layers, int layers, sd_error *err)
{
    int rc = constant_schedule(&b->schedules[b->n], n_layers, layers, err);
    b->probes[b->n] = (sd_probe){.meter = meter, .schedule = b->schedules[b->n]};
    b->n++;
    return rc;
}

static int step(const sd_probe *p, sd_error *err)
{
    sd_meter *m = p->meter;
    for (int r = 0; r < m->rows; r++) {
        sd_session_rewind(m->session, m->feeds[r].row, p->schedule);
    }
    int rc = sd_session_forward(m->session, m->feeds, m->rows, err);
    for (int r = 0; rc == SD_OK && r < m->rows; r++) { /* greedy choice is part of a step */
        volatile int token = m->model->kernels->argmax(sd_session_logits(m->session, r), m->model->config.vocab);
        (void)token;
    }
    return rc;
}

/* A long step is a time. After a short one follow as many as a clock can tell, which then find the caches as steps of
 * their kind leave them. */
static int take_time(sd_probe *p, sd_error *err)
{
    double start = sd_clock_seconds(), now = start;
    int steps = 1, rc = step(p, err);
    now = sd_clock_seconds();
    if (rc == SD_OK && now - start < settle_seconds) {
        start = now;
        for (steps = 0; rc == SD_OK && (steps == 0 || now - start < timed_seconds); steps++) {
            rc = step(p, err);
            now = sd_clock_seconds();
        }
    }
    p->times[p->n_times++] = (now - start) / (steps ? steps : 1);
    return rc;
}

/* Round after round through all probes, so that a machine that changes its speed does so for all of them. */
static int run_probes(sd_bank *b, sd_error *err)
{
    int rc = step(&b->probes[0], err); /* touches memory and wakes threads for the first time */
    rc = rc == SD_OK ? step(&b->probes[b->n - 1], err) : rc;
    const double start = sd_clock_seconds();
    double before = start, now = start;
    for (int round = 0; rc == SD_OK && round < MAX_ROUNDS; round++) {
        if (round >= FEWEST_ROUNDS && now - start + (now - before) > calibration_seconds) {
            break;
        }
        before = now;
        for (int i = 0; rc == SD_OK && i < b->n; i++) {
            rc = take_time(&b->probes[i], err);
        }
        now = sd_clock_seconds();
    }
    return rc;
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(sd_probe *p)
{
    const int n = p->n_times;
    qsort(p->times, (size_t)n, sizeof *p->times, compare_doubles);
    return (p->times[n / 2] + p->times[(n - 1) / 2]) / 2;
}

/* Budgets to measure: the fewest layers that a token runs with the usual warm-up, all, and between them closer together
 * where budgets are small, since there a layer matters most. */
static int choose_points(int *layers, int n_layers)
{
    const double shares[SD_COST_POINTS] = {0, 0.17, 0.33, 0.6, 1};
    int n = 0;
    for (int i = 0; i < SD_COST_POINTS; i++) {
        int k = (int)(shares[i] * n_layers + 0.5);
        k = k < 2 ? 2 : k;
        k = k > n_layers ? n_layers : k;
        if (n == 0 || k > layers[n - 1]) {
            layers[n++] = k;
        }
    }
    return n;
}

/* Where the cost of attention is measured: at *far positions (no less than 2 * near, else not at all) with as many
 * layers as are returned. */
static int choose_attention(const sd_model *model, int rows, int near, int *far)
{
    sd_kv_shape shape = sd_model_kv_shape(model);
    const int n_layers = shape.n_layers, fewest = n_layers < 2 ? 1 : 2;
    shape.n_layers = fewest;
    const size_t a_position = sd_kv_plan(&shape, NULL, 1, 1) * (size_t)rows, room = CACHE_BYTES / a_position;
    if ((size_t)*far > room) {
        *far = room > 2 * (size_t)near ? (int)room : 2 * near;
    }
    const size_t some = room / (size_t)*far * (size_t)fewest;
    return some >= (size_t)n_layers ? n_layers : some < (size_t)fewest ? fewest : (int)some;
}

static void take_medians(sd_cost *cost, sd_bank *b, int some, int far)
{
    for (int i = 0; i < cost->n_points; i++) { /* more layers never take less time; what says so is noise */
        const double seconds = median(&b->probes[i]), before = i > 0 ? cost->seconds[i - 1] : 0;
        cost->seconds[i] = seconds > before ? seconds : before;
    }
    if (b->n > cost->n_points) {
        const double more = median(&b->probes[b->n - 1]) - median(&b->probes[b->n - 2]);
        cost->attention = more > 0 ? more / ((double)some * (far - cost->position)) : 0;
    }
}

int sd_cost_measure(sd_cost *cost, const sd_model *model, int rows, int n_positions, sd_error *err)
{
    const int n_layers = model->config.n_layers, last = model->config.max_positions - 1;
    if (last < 1) {
        return sd_fail(err, SD_ERR_LIMIT, "a model of 1 position has no decode step to measure");
    }
    const int near = SHORT < last ? SHORT : last;
    int far = n_positions < last ? n_positions : last;
    *cost = (sd_cost){.rows = rows, .position = near};
    cost->n_points = choose_points(cost->layers, n_layers);
    sd_bank *b = sd_calloc(1, sizeof *b);
    if (!b) {
        return sd_fail_memory(err, sizeof *b, "measuring");
    }
    int rc = open_meter(&b->near, model, rows, NULL, near, err);
    for (int i = 0; rc == SD_OK && i < cost->n_points; i++) {
        rc = add_probe(b, &b->near, n_layers, cost->layers[i], err);
    }
    int some = 0;
    if (rc == SD_OK && far >= 2 * near) {
        some = choose_attention(model, rows, near, &far);
        rc = add_probe(b, &b->near, n_layers, some, err);
        rc = rc == SD_OK ? add_probe(b, &b->far, n_layers, some, err) : rc;
        rc = rc == SD_OK ? open_meter(&b->far, model, rows, b->schedules[b->n - 1], far, err) : rc;
    }
    rc = rc == SD_OK ? run_probes(b, err) : rc;
    if (rc == SD_OK) {
        take_medians(cost, b, some, far);
    }
    close_bank(b);
    sd_free(b);
    return rc;
}

bool sd_cost_is_valid(const sd_cost *c, int n_layers)
{
    const double shortest = 1e-9, longest = 1e6; /* seconds: nothing outside is a step, and sums stay finite */
    bool ok = c->rows >= 1 && c->position >= 1 && c->n_points >= 1 && c->n_points <= SD_COST_POINTS;
    for (int i = 0; ok && i < c->n_points; i++) {
        ok = c->layers[i] > (i > 0 ? c->layers[i - 1] : 0) && c->seconds[i] >= (i > 0 ? c->seconds[i - 1] : shortest) &&
             c->seconds[i] <= longest;
    }
    return ok && c->layers[c->n_points - 1] == n_layers && c->attention >= 0 && c->attention <= longest;
}

/* ---- predicting ---- */

/* Seconds of a step with k layers at the measured position: straight lines between the points, the first one drawn on
 * to the left, where it is cut so that k layers never cost less than their share of the first point. k = 0: what no
 * budget gets rid of. */
static double step_seconds(const sd_cost *c, int k)
{
    const double least = c->seconds[0] * k / c->layers[0];
    int i = 1;
    while (i < c->n_points - 1 && c->layers[i] < k) {
        i++;
    }
    if (c->n_points == 1) {
        return k >= c->layers[0] ? c->seconds[0] : least;
    }
    const double slope = (c->seconds[i] - c->seconds[i - 1]) / (c->layers[i] - c->layers[i - 1]);
    const double seconds = c->seconds[i - 1] + slope * (k - c->layers[i - 1]);
    return k < c->layers[0] && seconds < least ? least : seconds;
}

static double step_at(const sd_cost *c, int k, int position)
{
    const double seconds = step_seconds(c, k) + c->attention * k * (position - c->position);
    const double least = 0.1 * step_seconds(c, k); /* caches shorter than the measured ones save no more than that */
    return seconds > least ? seconds : least;
}

double sd_cost_predict(const sd_cost *c, const sd_schedule *schedule, int n_prompt, int steps)
{
    double seconds = 0;
    for (int j = 0; j < steps; j++) {
        const int k = schedule ? sd_schedule_budget(schedule, j) : c->layers[c->n_points - 1];
        seconds += step_at(c, k, n_prompt + j + 1);
    }
    return seconds;
}

/* ---- choosing ---- */

static int predict_speedup(const sd_schedule_options *options, const sd_cost *cost, const sd_wall_task *task,
                           double full_seconds, double *speedup, sd_error *err)
{
    sd_schedule *schedule;
    int rc = sd_schedule_create(&schedule, task->n_layers, task->steps + 1, options, err);
    if (rc != SD_OK) {
        return rc;
    }
    *speedup = full_seconds / sd_cost_predict(cost, schedule, task->n_prompt, task->steps);
    sd_schedule_free(schedule);
    return SD_OK;
}

/* The candidates fall to about half of where they start, as the presets do; one that cannot start higher has a free
 * end. */
static bool is_candidate(int max, int min, int low, int high)
{
    return max == low || abs(2 * min - max) <= 2 || (max == high && 2 * min >= max);
}

static void warn_out_of_reach(const sd_cost *cost, const sd_wall_task *task, int low, double best)
{
    const int middle = task->n_prompt + (task->steps + 1) / 2;
    const double full = step_at(cost, task->n_layers, middle), least = step_at(cost, low, middle);
    char fixed[96] = "";
    if (cost->n_points > 1) {
        (void)snprintf(fixed, sizeof fixed, ", of which %.3g ms (the output head above all) do not depend on layers",
                       step_seconds(cost, 0) * 1e3);
    }
    sd_warn("speedup %g is out of reach: at most %.2fx on this machine with %d row%s, where a decode step costs %.3g ms "
            "at full depth and %.3g ms with the fewest layers (%d)%s",
            task->speedup, best, cost->rows, cost->rows == 1 ? "" : "s", full * 1e3, least * 1e3, low, fixed);
}

/* The budgets between which a line may run: *low .. *high. */
static int find_range(const sd_schedule_options *o, int n_layers, int *low, int *high, sd_error *err)
{
    *low = o->ranking ? 1 : o->warmup + 1;
    *high = o->prompt > 0 && o->prompt < n_layers ? o->prompt : n_layers;
    if (*low < 1 || *low > n_layers) {
        return sd_fail(err, SD_ERR_ARG, "warmup %d: expected 0 .. %d for a model of %d layers", o->warmup,
                       n_layers - 1, n_layers);
    }
    if (*low > *high) {
        return sd_fail(err, SD_ERR_ARG, "schedule prompt=%d: expected at least %d layers, warm-up + 1", o->prompt,
                       *low);
    }
    return SD_OK;
}

int sd_cost_choose(sd_schedule_options *options, const sd_cost *cost, const sd_wall_task *task, double *predicted,
                   sd_error *err)
{
    int low, high;
    int rc = find_range(options, task->n_layers, &low, &high, err);
    if (rc != SD_OK) {
        return rc;
    }
    sd_free((void *)(uintptr_t)options->budgets);
    options->budgets = NULL;
    options->n_budgets = 0;
    options->full = false;
    options->horizon = options->horizon ? options->horizon : task->steps;
    const double full_seconds = sd_cost_predict(cost, NULL, task->n_prompt, task->steps);
    int best_max = low, best_min = low;
    double best = 0;
    for (int max = low; max <= high; max++) {
        for (int min = low; min <= max; min++) {
            if (!is_candidate(max, min, low, high)) {
                continue;
            }
            double speedup = 0;
            options->max_layers = max;
            options->min_layers = min;
            rc = predict_speedup(options, cost, task, full_seconds, &speedup, err);
            if (rc != SD_OK) {
                return rc;
            }
            /* enough: the slowest; not enough: the fastest */
            const bool enough = speedup >= task->speedup, had = best >= task->speedup;
            if (enough ? !had || speedup <= best : !had && speedup > best) {
                best = speedup;
                best_max = max;
                best_min = min;
            }
        }
    }
    options->max_layers = best_max;
    options->min_layers = best_min;
    options->full = best_min == task->n_layers;
    *predicted = best;
    if (best < task->speedup) {
        warn_out_of_reach(cost, task, low, best);
    }
    return SD_OK;
}

int sd_schedule_for_wall(sd_schedule_options *options, const sd_model *model, double speedup, int rows, int n_prompt,
                         int steps, double *predicted, sd_error *err)
{
    if (!(speedup >= 1) || !isfinite(speedup) || rows < 1 || n_prompt < 1 || steps < 1) {
        return sd_fail(err, SD_ERR_ARG,
                       "speedup %g, %d rows, %d prompt tokens, %d steps: expected numbers of at least 1", speedup, rows,
                       n_prompt, steps);
    }
    if (speedup == 1) {
        options->full = true;
        *predicted = 1;
        return SD_OK;
    }
    sd_cost cost;
    const sd_wall_task task = {model->config.n_layers, n_prompt, steps, speedup};
    const int positions = n_prompt < model->config.max_positions ? n_prompt + steps : n_prompt;
    int rc = sd_cost_measure(&cost, model, rows, positions, err);
    return rc == SD_OK ? sd_cost_choose(options, &cost, &task, predicted, err) : rc;
}
