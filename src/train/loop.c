/* SPDX-License-Identifier: MIT */
#include "src/train/loop.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/error.h"
#include "src/base/rng.h"
#include "src/schedule/schedule.h"
#include "src/train/net.h"

/* The average is over about this many steps, and is not believed before. */
enum { WATCHED = 50 };

typedef struct sd_step_row {
    uint32_t example;
    int lane, order; /* order: as they came, for a sort that is the same everywhere */
} sd_step_row;

struct sd_trainer {
    sd_trainer_options options;
    const sd_dataset *data;
    sd_batcher batcher;
    int laid_out; /* epoch; -1: none */
    sd_net *net;
    sd_trainer_position at;
    sd_step_row *rows; /* [cap_rows] of the step */
    int n_rows, cap_rows;
    sd_net_row *micro; /* [cap_micro] */
    double *nll;       /* [cap_micro] */
    int cap_micro;
};

static sd_net_options net_options(const sd_trainer_options *o)
{
    return (sd_net_options){.dir = o->model_dir, .config = o->config, .seed = o->seed, .threads = o->threads,
                            .bf16 = o->bf16, .dropout = (float)o->dropout, .lora_rank = o->lora_rank,
                            .distill = (float)o->distill, .init_std = (float)o->init_std, .teacher_dir = o->teacher_dir,
                            .max_tokens = o->micro_tokens > o->longest_row ? o->micro_tokens : o->longest_row};
}

int sd_trainer_plan_memory(const sd_trainer_options *o, sd_trainer_memory *memory, sd_error *err)
{
    const sd_net_options no = net_options(o);
    return sd_net_plan(&no, &memory->n_params, &memory->n_trained, &memory->weights, &memory->activations, err);
}

int sd_trainer_create(sd_trainer **out, const sd_trainer_options *options, const sd_dataset *data, sd_error *err)
{
    *out = NULL;
    sd_trainer *t = sd_calloc(1, sizeof *t);
    if (!t) {
        return sd_fail_memory(err, sizeof *t, "a trainer");
    }
    t->options = *options;
    t->options.n_ranks = options->n_ranks > 1 ? options->n_ranks : 1;
    t->data = data;
    t->laid_out = -1;
    const sd_net_options no = net_options(options);
    int rc = sd_batcher_create(&t->batcher, data, &options->batch, err);
    rc = rc == SD_OK ? sd_net_create(&t->net, &no, err) : rc;
    if (rc != SD_OK) {
        sd_trainer_free(t);
        return rc;
    }
    *out = t;
    return SD_OK;
}

void sd_trainer_free(sd_trainer *t)
{
    if (t) {
        sd_net_free(t->net);
        sd_batcher_clear(&t->batcher);
        sd_free(t->rows);
        sd_free(t->micro);
    sd_free(t->nll);
        sd_free(t);
    }
}

sd_trainer_position *sd_trainer_at(sd_trainer *t) { return &t->at; }

/* ---- the rows of a step ---- */

static int add_batch(sd_trainer *t, size_t batch, const sd_stage *stage, sd_error *err)
{
    int n;
    const uint32_t *examples = sd_batcher_rows(&t->batcher, batch, &n);
    if (t->n_rows + n > t->cap_rows) {
        const int cap = 2 * (t->n_rows + n);
        sd_step_row *rows = sd_realloc(t->rows, (size_t)cap, sizeof *rows);
        if (!rows) {
            return sd_fail_memory(err, (size_t)cap * sizeof *rows, "the rows of a step");
        }
        t->rows = rows;
        t->cap_rows = cap;
    }
    for (int i = 0; i < n; i++) {
        const int lane = stage->lane[sd_batch_speed(t->at.batches, i, stage->n_speeds)];
        t->rows[t->n_rows] = (sd_step_row){examples[i], lane, t->n_rows};
        t->n_rows++;
    }
    t->at.batches++;
    return SD_OK;
}

static int by_lane(const void *a, const void *b)
{
    const sd_step_row *x = a, *y = b;
    return x->lane != y->lane ? (x->lane > y->lane) - (x->lane < y->lane)
                              : (x->order > y->order) - (x->order < y->order);
}

/* Moves on over the step's batches. */
static int take_rows(sd_trainer *t, sd_error *err)
{
    const sd_stage *stage = &t->options.stages->stage[sd_stages_at(t->options.stages, t->at.step)];
    if (t->laid_out != (int)t->at.epoch) {
        int rc = sd_batcher_epoch(&t->batcher, (int)t->at.epoch, err);
        if (rc != SD_OK) {
            return rc;
        }
        t->laid_out = (int)t->at.epoch;
    }
    t->n_rows = 0;
    for (int i = 0; i < t->options.batch.accumulate && (size_t)t->at.batch < t->batcher.n_batches; i++) {
        int rc = add_batch(t, (size_t)t->at.batch, stage, err);
        if (rc != SD_OK) {
            return rc;
        }
        t->at.batch++;
    }
    if ((size_t)t->at.batch >= t->batcher.n_batches) {
        t->at.batch = 0;
        t->at.epoch++;
    }
    qsort(t->rows, (size_t)t->n_rows, sizeof *t->rows, by_lane);
    return SD_OK;
}

static int reserve_micro(sd_trainer *t, int n, sd_error *err)
{
    if (n > t->cap_micro) {
        sd_net_row *micro = sd_realloc(t->micro, (size_t)n, sizeof *micro);
        t->micro = micro ? micro : t->micro;
        double *nll = micro ? sd_realloc(t->nll, (size_t)n, sizeof *nll) : NULL;
        t->nll = nll ? nll : t->nll;
        if (!nll) {
            return sd_fail_memory(err, (size_t)n * sizeof *micro, "the rows of a step");
        }
        t->cap_micro = n;
    }
    return SD_OK;
}

static sd_net_row net_row(const sd_trainer *t, const sd_dataset *data, uint32_t example, int lane)
{
    const sd_example *e = &data->examples[example];
    return (sd_net_row){data->ids + e->prompt, data->ids + e->response, e->n_prompt, e->n_response,
                        t->options.lanes[lane].schedule};
}

static int64_t fed(const sd_net_row *row) { return row->n_prompt + row->n_response - 1; }

/* Leaves this process its share of the rows: every n-th of each lane, so that all have about as much to do. */
static void share_rows(sd_trainer *t)
{
    int kept = 0, n = 0, lane = -1;
    for (int i = 0; i < t->n_rows; i++) {
        n = t->rows[i].lane == lane ? n + 1 : 0;
        lane = t->rows[i].lane;
        /* turned by the lane, so that remainders do not all go to the first */
        if ((n + lane) % t->options.n_ranks == t->options.rank) {
            t->rows[kept++] = t->rows[i];
        }
    }
    t->n_rows = kept;
}

/* How many of the rows from `from` on are a micro-batch: of one ranking, and of no more tokens than fit. */
static int micro_rows(const sd_trainer *t, int from)
{
    const sd_schedule *ranking = NULL;
    int64_t tokens = 0;
    int n = 0;
    for (int i = from; i < t->n_rows; i++, n++) {
        const sd_net_row row = net_row(t, t->data, t->rows[i].example, t->rows[i].lane);
        tokens += fed(&row);
        if (n > 0 && tokens > t->options.micro_tokens) {
            break;
        }
        if (!sd_schedule_is_full(row.schedule)) {
            ranking = ranking ? ranking : row.schedule;
            if (!sd_schedule_same_ranking(ranking, row.schedule)) {
                break;
            }
        }
    }
    return n;
}

/* ---- a step ---- */

static int gradients(sd_trainer *t, double scale, double sums[SD_MAX_LANES], sd_step_report *r, sd_error *err)
{
    uint64_t micro = 0;
    int rc = SD_OK;
    for (int from = 0, n; rc == SD_OK && from < t->n_rows; from += n, micro++) {
        n = micro_rows(t, from);
        rc = reserve_micro(t, n, err);
        for (int i = 0; rc == SD_OK && i < n; i++) {
            t->micro[i] = net_row(t, t->data, t->rows[from + i].example, t->rows[from + i].lane);
            r->tokens += fed(&t->micro[i]);
        }
        /* no two micro-batches of a run have the same */
        uint64_t noise = t->options.seed ^ ((uint64_t)t->at.step << 32 | (uint64_t)t->options.rank << 16 | micro);
        noise = sd_rng_splitmix(&noise);
        rc = rc == SD_OK ? sd_net_backward(t->net, t->micro, n, (float)scale, noise, t->nll, err) : rc;
        for (int i = 0; rc == SD_OK && i < n; i++) {
            sums[t->rows[from + i].lane] += t->nll[i];
        }
    }
    return rc;
}

/* Over all processes. */
static void add_up(sd_trainer *t, double sums[SD_MAX_LANES], sd_step_report *r)
{
    const sd_trainer_options *o = &t->options;
    if (o->n_ranks == 1) {
        return;
    }
    double tokens = (double)r->tokens;
    size_t n;
    float *values = sd_net_gradients(t->net, &n);
    o->sum_f32(o->context, values, n);
    o->sum_f64(o->context, sums, (size_t)o->n_lanes);
    o->sum_f64(o->context, &tokens, 1);
    r->tokens = (int64_t)tokens;
}

/* Whether the run is lost: the average loss is far above what it was in this stage. A new stage may start high. */
static bool diverges(sd_trainer *t, double loss)
{
    sd_trainer_position *at = &t->at;
    const sd_stages *stages = t->options.stages;
    if (at->step == 0 || sd_stages_at(stages, at->step) != sd_stages_at(stages, at->step - 1)) {
        at->watched = 0;
    }
    const double share = at->watched < WATCHED ? 1.0 / (double)(at->watched + 1) : 1.0 / WATCHED;
    at->average = at->watched == 0 ? loss : at->average + share * (loss - at->average);
    at->lowest = at->watched == 0 || at->average < at->lowest ? at->average : at->lowest;
    at->watched++;
    return at->watched > WATCHED && at->average > 2 * at->lowest + 1;
}

bool sd_trainer_is_well(const sd_trainer *t)
{
    return t->at.watched <= WATCHED || t->at.average <= 1.3 * t->at.lowest + 0.3;
}

static int check_step(sd_trainer *t, const sd_step_report *r, sd_error *err)
{
    if (!isfinite(r->loss) || !isfinite(r->grad_norm)) {
        return sd_fail(err, SD_ERR_STATE,
                       "step %lld: the loss is %g and the norm of its gradient %g; a lower --lr, a longer "
                       "--warmup-steps or --products f32 may help",
                       (long long)t->at.step + 1, r->loss, r->grad_norm);
    }
    return diverges(t, r->loss)
               ? sd_fail(err, SD_ERR_STATE,
                         "step %lld: the loss diverges: its average is %.3f and has been %.3f; a lower "
                         "--lr or a longer --warmup-steps may help",
                         (long long)t->at.step + 1, t->at.average, t->at.lowest)
               : SD_OK;
}

int sd_trainer_step(sd_trainer *t, sd_step_report *r, sd_error *err)
{
    const sd_trainer_options *o = &t->options;
    double sums[SD_MAX_LANES] = {0}, targets[SD_MAX_LANES] = {0}, all = 0, total = 0;
    *r = (sd_step_report){.lr = sd_learning_rate(t->at.step, o->n_steps, o->warmup_steps, o->lr, o->min_lr)};
    int rc = take_rows(t, err);
    if (rc != SD_OK) {
        return rc;
    }
    for (int i = 0; i < t->n_rows; i++) {
        targets[t->rows[i].lane] += t->data->examples[t->rows[i].example].n_response;
        all += t->data->examples[t->rows[i].example].n_response;
    }
    sd_net_zero_gradients(t->net);
    share_rows(t);
    rc = gradients(t, 1 / all, sums, r, err);
    if (rc != SD_OK) {
        return rc;
    }
    add_up(t, sums, r);
    for (int lane = 0; lane < o->n_lanes; lane++) {
        r->lane_loss[lane] = targets[lane] > 0 ? sums[lane] / targets[lane] : NAN;
        total += sums[lane];
    }
    r->loss = total / all;
    r->grad_norm = sd_net_gradient_norm(t->net);
    rc = check_step(t, r, err);
    if (rc != SD_OK) {
        return rc;
    }
    const double scale = o->clip > 0 && r->grad_norm > o->clip ? o->clip / r->grad_norm : 1;
    sd_net_adamw(t->net, &(sd_adamw){.lr = r->lr, .beta1 = o->beta1, .beta2 = o->beta2, .epsilon = o->epsilon,
                                     .weight_decay = o->weight_decay, .scale = scale, .step = t->at.step + 1});
    t->at.step++;
    t->at.tokens += r->tokens;
    return SD_OK;
}

/* ---- evaluation ---- */

typedef struct sd_length_key {
    int32_t length;
    uint32_t example;
} sd_length_key;

static int by_length(const void *a, const void *b)
{
    const sd_length_key *x = a, *y = b;
    return x->length != y->length ? (x->length > y->length) - (x->length < y->length)
                                  : (x->example > y->example) - (x->example < y->example);
}

static int sort_by_length(const sd_dataset *data, sd_length_key **keys, sd_error *err)
{
    *keys = sd_malloc(data->n, sizeof **keys);
    if (!*keys) {
        return sd_fail_memory(err, data->n * sizeof **keys, "the order of the examples");
    }
    for (size_t i = 0; i < data->n; i++) {
        (*keys)[i] = (sd_length_key){data->examples[i].n_prompt + data->examples[i].n_response, (uint32_t)i};
    }
    qsort(*keys, data->n, sizeof **keys, by_length);
    return SD_OK;
}

int sd_trainer_evaluate(sd_trainer *t, const sd_dataset *data, int lane, bool (*go_on)(void *user), void *user,
                        double *loss, sd_error *err)
{
    sd_length_key *keys;
    double total = 0;
    int micro = 0, rc = sort_by_length(data, &keys, err);
    for (size_t from = 0, n; rc == SD_OK && from < data->n; from += n) {
        int64_t tokens = 0;
        for (n = 0; from + n < data->n && (n == 0 || tokens + keys[from + n].length <= t->options.micro_tokens); n++) {
            tokens += keys[from + n].length;
        }
        rc = reserve_micro(t, (int)n, err);
        for (size_t i = 0; rc == SD_OK && i < n; i++) {
            t->micro[i] = net_row(t, data, keys[from + i].example, lane);
        }
        const bool ours = micro++ % t->options.n_ranks == t->options.rank;
        rc = rc == SD_OK && ours ? sd_net_loss(t->net, t->micro, (int)n, t->nll, err) : rc;
        for (size_t i = 0; rc == SD_OK && ours && i < n; i++) {
            total += t->nll[i];
        }
        if (rc == SD_OK && go_on && !go_on(user)) {
            rc = sd_fail(err, SD_ERR_CANCELLED, "stopped");
        }
    }
    sd_free(keys);
    if (rc == SD_OK && t->options.n_ranks > 1) {
        t->options.sum_f64(t->options.context, &total, 1);
    }
    *loss = data->response_tokens > 0 ? total / (double)data->response_tokens : NAN;
    return rc;
}

/* ---- files ---- */

int sd_trainer_save_state(sd_trainer *t, const char *path, sd_error *err)
{
    return sd_net_save_state(t->net, path, err);
}

int sd_trainer_load_state(sd_trainer *t, const char *path, sd_error *err)
{
    return sd_net_load_state(t->net, path, err);
}

int sd_trainer_save_weights(sd_trainer *t, const char *path, sd_dtype dtype, sd_error *err)
{
    return sd_net_save_weights(t->net, path, dtype, err);
}
