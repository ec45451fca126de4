/* SPDX-License-Identifier: MIT
 *
 * A net: its parameters, what learning needs beside them, and the loss. */
#include "src/train/net.h"

#include <math.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/cpu.h"
#include "src/schedule/schedule.h"
#include "src/train/net_internal.h"

enum { ARRAYS = 4 }; /* values, gradients, two moments */

static int check_options(const sd_net_options *o, sd_error *err)
{
    if (!(o->dropout >= 0.0f && o->dropout < 1.0f)) {
        return sd_fail(err, SD_ERR_ARG, "dropout is %g; expected at least 0 and below 1", (double)o->dropout);
    }
    if (!(o->distill >= 0.0f && o->distill <= 1.0f)) {
        return sd_fail(err, SD_ERR_ARG, "the share of distillation is %g; expected 0 to 1", (double)o->distill);
    }
    if (o->distill > 0.0f && !o->dir && !o->teacher_dir) {
        return sd_fail(err, SD_ERR_ARG, "random weights are no teacher: give a checkpoint to distil from");
    }
    if (o->max_tokens < 1 || o->max_tokens > 1 << 24) {
        return sd_fail(err, SD_ERR_ARG, "a micro-batch of at most %d tokens; expected 1 to %d", o->max_tokens, 1 << 24);
    }
    if (o->bf16) {
        return sd_fail(err, SD_ERR_UNSUPPORTED, "training computes in f32; bf16 products are not built yet");
    }
    if (o->lora_rank != 0) {
        return sd_fail(err, SD_ERR_UNSUPPORTED, "training changes all weights; adapters (LoRA) are not built yet");
    }
    return SD_OK;
}

static int thread_count(const sd_net_options *o) { return o->threads > 0 ? o->threads : sd_cpu_default_threads(); }

/* ---- the teacher: at full depth and frozen, of its own configuration but the same vocabulary ---- */

static int teacher_config(const sd_net_options *o, sd_config *config, sd_error *err)
{
    if (!o->teacher_dir) {
        *config = *o->config;
        return SD_OK;
    }
    int rc = sd_config_load(config, o->teacher_dir, err);
    if (rc == SD_OK && config->vocab != o->config->vocab) {
        rc = sd_fail(err, SD_ERR_ARG, "%s: the teacher has %d tokens in its vocabulary, the model %d: they must be the "
                     "same", o->teacher_dir, config->vocab, o->config->vocab);
    }
    return rc;
}

static int create_teacher(sd_net *net, const sd_net_options *o, sd_error *err)
{
    sd_config config;
    int rc = teacher_config(o, &config, err);
    rc = rc == SD_OK ? sd_params_lay_out(&net->teacher, &config, err) : rc;
    rc = rc == SD_OK ? sd_params_load(&net->teacher, o->teacher_dir ? o->teacher_dir : o->dir, err) : rc;
    if (rc == SD_OK && net->teacher.config.vocab != net->params.config.vocab) {
        rc = sd_fail(err, SD_ERR_ARG, "the teacher's embedding has %d rows, the model's %d: they must be the same",
                     net->teacher.config.vocab, net->params.config.vocab);
    }
    rc = rc == SD_OK ? sd_pass_create(&net->teacher_pass, &net->teacher, o->max_tokens, false, net->threads, err) : rc;
    if (rc == SD_OK) {
        const size_t values = (size_t)net->pass.logit_rows * (size_t)net->params.config.vocab;
        net->teacher_logits = sd_malloc_aligned(values, sizeof(float));
        rc = net->teacher_logits ? SD_OK : sd_fail_memory(err, values * sizeof(float), "the teacher's logits");
    }
    return rc;
}

/* ---- life ---- */

int sd_net_plan(const sd_net_options *o, int64_t *n_params, int64_t *n_trained, size_t *weight_bytes,
                size_t *activation_bytes, sd_error *err)
{
    sd_params params = {0}, teacher = {0};
    sd_config config;
    int rc = check_options(o, err);
    rc = rc == SD_OK ? sd_params_lay_out(&params, o->config, err) : rc;
    if (rc == SD_OK) {
        *n_params = 0;
        for (size_t i = 0; i < params.n_list; i++) {
            *n_params += (int64_t)params.list[i].n;
        }
        *n_trained = *n_params;
        *weight_bytes = ARRAYS * params.n * sizeof(float);
        *activation_bytes = sd_pass_bytes(o->config, o->max_tokens, true, thread_count(o));
    }
    if (rc == SD_OK && o->distill > 0.0f) {
        rc = teacher_config(o, &config, err);
        rc = rc == SD_OK ? sd_params_lay_out(&teacher, &config, err) : rc;
        if (rc == SD_OK) {
            *weight_bytes += teacher.n * sizeof(float);
            const size_t more = sd_pass_bytes(&config, o->max_tokens, false, thread_count(o));
            *activation_bytes = *activation_bytes > SIZE_MAX - more ? SIZE_MAX : *activation_bytes + more;
        }
    }
    sd_params_clear(&params);
    sd_params_clear(&teacher);
    return rc;
}

static int create_learning(sd_net *net, sd_error *err)
{
    float **arrays[] = {&net->gradients, &net->m, &net->v};
    const size_t n = net->params.n;
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        *arrays[i] = sd_malloc_aligned(n, sizeof(float));
        if (!*arrays[i]) {
            return sd_fail_memory(err, n * sizeof(float), "the gradients and moments");
        }
        memset(*arrays[i], 0, n * sizeof(float));
    }
    return SD_OK;
}

int sd_net_create(sd_net **out, const sd_net_options *o, sd_error *err)
{
    *out = NULL;
    int rc = check_options(o, err);
    if (rc != SD_OK) {
        return rc;
    }
    sd_net *net = sd_calloc(1, sizeof *net);
    if (!net) {
        return sd_fail_memory(err, sizeof *net, "the net");
    }
    net->threads = thread_count(o);
    net->dropout = o->dropout;
    net->distill = o->distill;
    net->max_tokens = o->max_tokens;
    rc = sd_pool_create(&net->pool, net->threads, err);
    net->threads = rc == SD_OK ? sd_pool_size(net->pool) : 0;
    rc = rc == SD_OK ? sd_params_lay_out(&net->params, o->config, err) : rc;
    if (rc == SD_OK) {
        rc = o->dir ? sd_params_load(&net->params, o->dir, err)
                    : sd_params_random(&net->params, o->seed, o->init_std > 0.0f ? o->init_std : 0.02f, err);
    }
    rc = rc == SD_OK ? create_learning(net, err) : rc;
    rc = rc == SD_OK ? sd_pass_create(&net->pass, &net->params, o->max_tokens, true, net->threads, err) : rc;
    rc = rc == SD_OK && o->distill > 0.0f ? create_teacher(net, o, err) : rc;
    if (rc != SD_OK) {
        sd_net_free(net);
        return rc;
    }
    *out = net;
    return SD_OK;
}

void sd_net_free(sd_net *net)
{
    if (!net) {
        return;
    }
    sd_pool_free(net->pool);
    sd_pass_clear(&net->pass);
    sd_pass_clear(&net->teacher_pass);
    sd_params_clear(&net->params);
    sd_params_clear(&net->teacher);
    sd_free_aligned(net->gradients);
    sd_free_aligned(net->m);
    sd_free_aligned(net->v);
    sd_free_aligned(net->teacher_logits);
    sd_free(net);
}

const sd_config *sd_net_config(const sd_net *net) { return &net->params.config; }

/* ---- loss ---- */

static const int *ranks_of(const sd_net_row *rows, int n_rows)
{
    for (int r = 0; r < n_rows; r++) {
        if (rows[r].schedule && !sd_schedule_is_full(rows[r].schedule)) {
            return sd_schedule_ranks(rows[r].schedule);
        }
    }
    return NULL;
}

/* The head and the loss, some outputs at a time. nll: [n_rows]. scale 0: no gradient. */
static void head_loss(sd_net *net, float scale, bool distill, double *nll)
{
    sd_pass *p = &net->pass;
    const int vocab = net->params.config.vocab, embed = net->params.config.embed;
    const int teacher_embed = net->teacher.config.embed;
    const bool gradient = scale != 0.0f;
    const sd_slot slot = net->params.config.tied ? SD_SLOT_EMBED : SD_SLOT_HEAD;
    memset(nll, 0, (size_t)p->n_rows * sizeof *nll);
    for (int at = 0; at < p->outputs; at += p->logit_rows) {
        const int rows = p->outputs - at < p->logit_rows ? p->outputs - at : p->logit_rows;
        const float *in = sd_pass_head_input(p) + (size_t)at * (size_t)embed;
        sd_math_product(p->logits, in, sd_pass_head(p), rows, vocab, embed);
        if (distill) {
            sd_math_product(net->teacher_logits,
                            sd_pass_head_input(&net->teacher_pass) + (size_t)at * (size_t)teacher_embed,
                            sd_pass_head(&net->teacher_pass), rows, vocab, teacher_embed);
        }
        sd_math_cross_entropy(p->nll, p->logits, p->target + at, distill ? net->teacher_logits : NULL, net->distill,
                              rows, vocab, scale, gradient);
        for (int r = 0; r < rows; r++) {
            nll[p->row[p->output[at + r]]] += p->nll[r];
        }
        if (gradient) {
            sd_math_product_weights(sd_param_in(&net->params, net->gradients, slot, 0), p->logits, in, rows, vocab,
                                    embed);
            sd_math_product_inputs(p->dlast + (size_t)at * (size_t)embed, p->logits, sd_pass_head(p), rows, vocab,
                                   embed, false);
        }
    }
}

int sd_net_backward(sd_net *net, const sd_net_row *rows, int n_rows, float scale, uint64_t noise, double *nll,
                    sd_error *err)
{
    const bool distill = net->distill > 0.0f;
    const int *ranks = ranks_of(rows, n_rows);
    sd_math_use(net->pool);
    int rc = sd_pass_set(&net->pass, rows, n_rows, false, err);
    rc = rc == SD_OK && distill ? sd_pass_set(&net->teacher_pass, rows, n_rows, true, err) : rc;
    if (rc != SD_OK) {
        return rc;
    }
    if (distill) {
        sd_pass_forward(&net->teacher_pass, NULL, 0.0f, 0, false);
    }
    sd_pass_forward(&net->pass, ranks, net->dropout, noise, true);
    head_loss(net, scale, distill, nll);
    sd_pass_backward(&net->pass, net->gradients, ranks, net->dropout, noise);
    return SD_OK;
}

int sd_net_loss(sd_net *net, const sd_net_row *rows, int n_rows, double *nll, sd_error *err)
{
    sd_math_use(net->pool);
    const int rc = sd_pass_set(&net->pass, rows, n_rows, false, err);
    if (rc != SD_OK) {
        return rc;
    }
    sd_pass_forward(&net->pass, ranks_of(rows, n_rows), 0.0f, 0, false);
    head_loss(net, 0.0f, false, nll);
    return SD_OK;
}

/* ---- gradients and the optimiser ---- */

void sd_net_zero_gradients(sd_net *net) { memset(net->gradients, 0, net->params.n * sizeof(float)); }

float *sd_net_gradients(sd_net *net, size_t *n)
{
    *n = net->params.n;
    return net->gradients;
}

double sd_net_gradient_norm(const sd_net *net) { return sqrt(sd_math_sum_of_squares(net->gradients, net->params.n)); }

void sd_net_adamw(sd_net *net, const sd_adamw *a)
{
    const double correction1 = 1.0 - pow(a->beta1, (double)a->step), correction2 = 1.0 - pow(a->beta2, (double)a->step);
    sd_adamw_numbers numbers = {
        .beta1 = (float)a->beta1, .beta2 = (float)a->beta2, .step_size = (float)(a->lr / correction1),
        .scale_v = (float)(1.0 / sqrt(correction2)), .epsilon = (float)a->epsilon, .scale = (float)a->scale,
    };
    sd_math_use(net->pool);
    for (size_t i = 0; i < net->params.n_list; i++) {
        const sd_param *p = &net->params.list[i];
        numbers.keep = p->rank == 2 ? (float)(1.0 - a->lr * a->weight_decay) : 1.0f;
        sd_math_adamw(net->params.values + p->at, net->m + p->at, net->v + p->at, net->gradients + p->at, p->n,
                      &numbers);
    }
}

/* ---- tensors by name ---- */

size_t sd_net_n_tensors(const sd_net *net) { return net->params.n_list; }

sd_net_tensor sd_net_tensor_at(const sd_net *net, size_t i)
{
    const sd_param *p = &net->params.list[i];
    return (sd_net_tensor){.name = p->name, .rank = p->rank, .shape = {p->shape[0], p->shape[1]},
                           .values = net->params.values + p->at, .gradient = net->gradients + p->at};
}
