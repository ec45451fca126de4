/* SPDX-License-Identifier: MIT */
#include "src/generate/cost.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "src/base/error.h"
#include "src/engine/session.h"

/* SHORT: positions at which budgets are compared; the cost of longer caches is measured apart, on as few layers as hold
 * CACHE_BYTES, since filling the caches of all layers would take longer than everything else. */
enum { SHORT = 8, MAX_STEPS = 256, FEWEST_STEPS = 8, CACHE_BYTES = 256 << 20, MAX_ROUNDS = 40, FEWEST_ROUNDS = 2 };

static const double calibration_seconds = 1.2, timed_seconds = 1e-3;

/* A batch that decodes with a constant budget. */
typedef struct sd_meter {
    const sd_model *model;
    sd_session *session;
    sd_schedule *schedule;
    sd_feed *feeds; /* [rows] */
    int rows, layers, left; /* left: steps for which the caches have room */
    int n_times;
    double times[MAX_ROUNDS]; /* seconds a step */
} sd_meter;

static void close_meter(sd_meter *m)
{
    sd_session_free(m->session);
    sd_schedule_free(m->schedule);
    sd_free(m->feeds);
    *m = (sd_meter){0};
}

static int open_rows(sd_meter *m, int n_positions, int steps, sd_error *err)
{
    static const int32_t token = 0;
    int rc = SD_OK;
    for (int r = 0; rc == SD_OK && r < m->rows; r++) {
        int row = 0;
        rc = sd_session_add(m->session, n_positions, steps + 1, m->schedule, &row, err);
        if (rc == SD_OK) {
            sd_session_assume_prompt(m->session, row);
            m->feeds[r] = (sd_feed){.row = row, .ids = &token, .n = 1};
        }
    }
    return rc;
}

static int open_meter(sd_meter *m, const sd_model *model, int rows, int layers, int n_positions, sd_error *err)
{
    sd_model_info info;
    sd_model_get_info(model, &info);
    sd_schedule_options so;
    sd_schedule_options_default(&so);
    so.full = layers == info.n_layers;
    so.warmup = 0;
    so.max_layers = so.min_layers = so.prompt = layers;
    so.horizon = 1;
    *m = (sd_meter){.model = model, .rows = rows, .layers = layers};
    const sd_kv_shape shape = sd_model_kv_shape(model);
    const size_t a_position = sd_kv_plan(&shape, NULL, 1, 1) * (size_t)rows;
    const size_t room = CACHE_BYTES / (a_position + 1);
    m->left = room > MAX_STEPS ? MAX_STEPS : room < FEWEST_STEPS ? FEWEST_STEPS : (int)room;
    m->left = m->left < info.max_positions - n_positions ? m->left : info.max_positions - n_positions;
    m->feeds = sd_calloc((size_t)rows, sizeof *m->feeds);
    int rc = m->feeds ? SD_OK : sd_fail_memory(err, (size_t)rows * sizeof *m->feeds, "measuring");
    rc = rc == SD_OK ? sd_schedule_create(&m->schedule, info.n_layers, 1, &so, err) : rc;
    rc = rc == SD_OK ? sd_session_create(&m->session, model, rows, err) : rc;
    rc = rc == SD_OK ? open_rows(m, n_positions, m->left, err) : rc;
    if (rc != SD_OK) {
        close_meter(m);
    }
    return rc;
}

static int step(sd_meter *m, sd_error *err)
{
    int rc = sd_session_forward(m->session, m->feeds, m->rows, err);
    for (int r = 0; rc == SD_OK && r < m->rows; r++) { /* greedy choice is part of a step */
        volatile int token = m->model->kernels->argmax(sd_session_logits(m->session, r), m->model->config.vocab);
        (void)token;
    }
    m->left--;
    return rc;
}

/* As many steps as a clock can tell, one time in the list. */
static int take_time(sd_meter *m, sd_error *err)
{
    const double start = sd_clock_seconds();
    double now;
    int steps = 0, rc = SD_OK;
    do {
        rc = step(m, err);
        steps++;
        now = sd_clock_seconds();
    } while (rc == SD_OK && now - start < timed_seconds && m->left > 0);
    m->times[m->n_times++] = (now - start) / steps;
    return rc;
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(sd_meter *m)
{
    qsort(m->times, (size_t)m->n_times, sizeof *m->times, compare_doubles);
    return m->times[m->n_times / 2];
}

/* Round after round through all meters, so that a machine that changes its speed does so for all of them. */
static int run_meters(sd_meter *meters, int n, sd_error *err)
{
    const double start = sd_clock_seconds();
    int rc = SD_OK;
    for (int i = 0; rc == SD_OK && i < n; i++) { /* the first step touches memory for the first time */
        rc = step(&meters[i], err);
    }
    for (int round = 0; rc == SD_OK && round < MAX_ROUNDS; round++) {
        if (round >= FEWEST_ROUNDS && sd_clock_seconds() - start > calibration_seconds) {
            break;
        }
        for (int i = 0; rc == SD_OK && i < n; i++) {
            if (meters[i].left > 0) {
                rc = take_time(&meters[i], err);
            }
        }
    }
    for (int i = 0; rc == SD_OK && i < n; i++) {
        if (meters[i].n_times == 0) {
            rc = sd_fail(err, SD_ERR_LIMIT, "the model's positions are too few to measure a decode step");
        }
    }
    return rc;
}

/* Budgets to measure: close together where budgets are small, since there a layer matters most. */
static int choose_points(int *layers, int n_layers)
{
    const double shares[SD_COST_POINTS] = {0.08, 0.17, 0.33, 0.6, 1};
    int n = 0;
    for (int i = 0; i < SD_COST_POINTS; i++) {
        int k = (int)(shares[i] * n_layers + 0.5);
        k = k < 1 ? 1 : k;
        if (n == 0 || k > layers[n - 1]) {
            layers[n++] = k;
        }
    }
    return n;
}

/* Fewer layers for the two meters of attention where the caches are large, all of them where they are small. */
static int attention_layers(const sd_model *model, int rows, int n_positions)
{
    sd_kv_shape shape = sd_model_kv_shape(model);
    const int n_layers = shape.n_layers;
    shape.n_layers = 1;
    const size_t layer = sd_kv_plan(&shape, NULL, n_positions, 1) * (size_t)rows, some = CACHE_BYTES / (layer + 1);
    return some >= (size_t)n_layers ? n_layers : some < 2 ? (n_layers < 2 ? n_layers : 2) : (int)some;
}

int sd_cost_measure(sd_cost *cost, const sd_model *model, int rows, int n_positions, sd_error *err)
{
    enum { METERS = SD_COST_POINTS + 2 };
    sd_meter meters[METERS] = {0};
    sd_model_info info;
    sd_model_get_info(model, &info);
    const int most = info.max_positions - FEWEST_STEPS, wanted = n_positions < most ? n_positions : most;
    const int near = SHORT < info.max_positions / 2 ? SHORT : (info.max_positions + 1) / 2;
    const int far = wanted > near ? wanted : near;
    *cost = (sd_cost){.rows = rows, .position = near};
    cost->n_points = choose_points(cost->layers, info.n_layers);
    int n = 0, rc = SD_OK;
    for (; rc == SD_OK && n < cost->n_points; n++) {
        rc = open_meter(&meters[n], model, rows, cost->layers[n], near, err);
    }
    const int some = attention_layers(model, rows, far);
    for (int i = 0; rc == SD_OK && far >= 2 * near && i < 2; i++, n++) {
        rc = open_meter(&meters[n], model, rows, some, i == 0 ? near : far, err);
    }
    rc = rc == SD_OK ? run_meters(meters, n, err) : rc;
    for (int i = 0; rc == SD_OK && i < cost->n_points; i++) {
        cost->seconds[i] = median(&meters[i]);
    }
    if (rc == SD_OK && n > cost->n_points) {
        const double more = median(&meters[n - 1]) - median(&meters[n - 2]);
        cost->attention = more > 0 ? more / ((double)some * (far - near)) : 0;
    }
    for (int i = 0; i < METERS; i++) {
        close_meter(&meters[i]);
    }
    return rc;
}

/* Seconds of a step with k layers at the measured position: straight lines between the points. */
static double step_seconds(const sd_cost *c, int k)
{
    int i = 1;
    while (i < c->n_points - 1 && c->layers[i] < k) {
        i++;
    }
    if (c->n_points == 1) {
        return c->seconds[0];
    }
    const double slope = (c->seconds[i] - c->seconds[i - 1]) / (c->layers[i] - c->layers[i - 1]);
    return c->seconds[i - 1] + slope * (k - c->layers[i - 1]);
}

double sd_cost_predict(const sd_cost *c, const sd_schedule *schedule, int n_prompt, int steps)
{
    double seconds = 0;
    for (int j = 0; j < steps; j++) {
        const int k = schedule ? sd_schedule_budget(schedule, j) : c->layers[c->n_points - 1];
        seconds += step_seconds(c, k) + c->attention * k * (n_prompt + j + 1 - c->position);
    }
    return seconds;
}

static int predict_speedup(const sd_schedule_options *options, const sd_cost *cost, const sd_wall_task *task,
                           double *speedup, sd_error *err)
{
    sd_schedule *schedule;
    int rc = sd_schedule_create(&schedule, task->n_layers, task->steps + 1, options, err);
    if (rc != SD_OK) {
        return rc;
    }
    *speedup = sd_cost_predict(cost, NULL, task->n_prompt, task->steps) /
               sd_cost_predict(cost, schedule, task->n_prompt, task->steps);
    sd_schedule_free(schedule);
    return SD_OK;
}

/* The candidates fall to about half of where they start, as the presets do; one that starts at all layers cannot start
 * higher, so its end is free. */
static bool is_candidate(int max, int min, int n_layers)
{
    return abs(2 * min - max) <= 2 || (max == n_layers && 2 * min >= max);
}

int sd_cost_choose(sd_schedule_options *options, const sd_cost *cost, const sd_wall_task *task, double *predicted,
                   sd_error *err)
{
    const int low = options->ranking ? 1 : options->warmup + 1;
    options->full = false;
    options->horizon = options->horizon ? options->horizon : task->steps;
    int best_max = low, best_min = low;
    double best = 0;
    for (int max = low; max <= task->n_layers; max++) {
        for (int min = low; min <= max; min++) {
            if (!is_candidate(max, min, task->n_layers) && max > low) {
                continue;
            }
            double speedup = 0;
            options->max_layers = max;
            options->min_layers = min;
            int rc = predict_speedup(options, cost, task, &speedup, err);
            if (rc != SD_OK) {
                return rc;
            }
            /* enough: the slowest; not enough: the fastest */
            const bool enough = speedup >= task->speedup, had = best >= task->speedup;
            if (enough ? !had || speedup < best : !had && speedup > best) {
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
    return SD_OK;
}

int sd_schedule_for_wall(sd_schedule_options *options, const sd_model *model, double speedup, int rows, int n_prompt,
                         int steps, double *predicted, sd_error *err)
{
    sd_model_info info;
    sd_model_get_info(model, &info);
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
    const sd_wall_task task = {info.n_layers, n_prompt, steps, speedup};
    int rc = sd_cost_measure(&cost, model, rows, n_prompt + steps, err);
    return rc == SD_OK ? sd_cost_choose(options, &cost, &task, predicted, err) : rc;
}
