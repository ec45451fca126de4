/* SPDX-License-Identifier: MIT
 *
 * The forward pass against a second one written here from docs/METHOD.md and the architecture alone: plain loops in
 * double, no cache, no batch, no packing; a layer outside A(j) is the identity. Every norm order, flag and weight type,
 * and proof that the comparison would notice a single layer that runs although it should not. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/engine/session.h"
#include "tests/support/random_schedule.h"
#include "tests/support/support.h"
#include "tests/support/tiny_model.h"

enum { MAX_TOKENS = 32, MAX_LAYERS = 8, MAX_HIDDEN = 64, MAX_FFN = 80, MAX_VOCAB = 80 };

/* ---- the naive forward ---- */

typedef double row[MAX_HIDDEN];

typedef struct naive {
    const sd_tiny_model *tiny;
    int n;                               /* tokens */
    bool runs[MAX_TOKENS][MAX_LAYERS];   /* does this token run this layer? */
    row x[MAX_TOKENS];                   /* the residual stream */
    row k[MAX_TOKENS], v[MAX_TOKENS];    /* of the layer at hand */
    double logits[MAX_TOKENS][MAX_VOCAB];
} naive;

/* layer -1: outside the layers. NULL if the model has no such tensor. */
static const float *values(const naive *f, int layer, const char *name, const char *part)
{
    char whole[80];
    if (layer < 0) {
        (void)snprintf(whole, sizeof whole, "%s%s", name, part);
    } else {
        (void)snprintf(whole, sizeof whole, "layers.%d.%s%s", layer, name, part);
    }
    const sd_tiny_tensor *t = sd_tiny_find(f->tiny, whole);
    return t ? t->values : NULL;
}

/* y = W x + b; b may be NULL. */
static void product(double *y, int n_out, const double *x, int n_in, const float *w, const float *b)
{
    for (int o = 0; o < n_out; o++) {
        double sum = b ? (double)b[o] : 0;
        for (int i = 0; i < n_in; i++) {
            sum += (double)w[o * n_in + i] * x[i];
        }
        y[o] = sum;
    }
}

static void linear(const naive *f, int layer, const char *name, double *y, int n_out, const double *x, int n_in)
{
    product(y, n_out, x, n_in, values(f, layer, name, ".weight"), values(f, layer, name, ".bias"));
}

/* y may be x. */
static void norm(const naive *f, int layer, const char *name, double *y, const double *x)
{
    int n = f->tiny->options.hidden;
    const float *gain = values(f, layer, name, ".weight"), *bias = values(f, layer, name, ".bias");
    double mean = 0, variance = 0;
    for (int i = 0; i < n; i++) {
        mean += x[i] / n;
    }
    for (int i = 0; i < n; i++) {
        variance += (x[i] - mean) * (x[i] - mean) / n;
    }
    for (int i = 0; i < n; i++) {
        y[i] = (x[i] - mean) / sqrt(variance + 1e-5) * (gain ? (double)gain[i] : 1) + (bias ? (double)bias[i] : 0);
    }
}

static double activate(const sd_tiny_options *o, double x)
{
    if (strcmp(o->activation, "relu") == 0) {
        return x > 0 ? x : 0;
    }
    if (strcmp(o->activation, "gelu") == 0) {
        return 0.5 * x * (1 + erf(x / sqrt(2.0)));
    }
    return 0.5 * x * (1 + tanh(sqrt(2 / acos(-1.0)) * (x + 0.044715 * x * x * x)));
}

/* Token `at` over the positions up to its own that ran the layer: with a schedule that keeps the invariant, all of
 * them. */
static void attend(const naive *f, int layer, int at, const double *q, double *out)
{
    int n_heads = f->tiny->options.n_heads, hd = f->tiny->options.hidden / n_heads;
    for (int h = 0; h < n_heads; h++) {
        double score[MAX_TOKENS], most = -INFINITY, total = 0;
        for (int p = 0; p <= at; p++) {
            score[p] = 0;
            for (int d = h * hd; d < (h + 1) * hd; d++) {
                score[p] += q[d] * f->k[p][d] / sqrt((double)hd);
            }
            score[p] = f->runs[p][layer] ? score[p] : -INFINITY;
            most = score[p] > most ? score[p] : most;
        }
        for (int p = 0; p <= at; p++) {
            score[p] = exp(score[p] - most);
            total += score[p];
        }
        for (int d = h * hd; d < (h + 1) * hd; d++) {
            out[d] = 0;
            for (int p = 0; p <= at; p++) {
                out[d] += score[p] / total * f->v[p][d];
            }
        }
    }
}

static void add(double *x, const double *y, int n)
{
    for (int i = 0; i < n; i++) {
        x[i] += y[i];
    }
}

static void run_layer(naive *f, int l)
{
    const sd_tiny_options *o = &f->tiny->options;
    for (int t = 0; t < f->n; t++) {
        double in[MAX_HIDDEN], q[MAX_HIDDEN], mixed[MAX_HIDDEN], out[MAX_HIDDEN], ffn[MAX_FFN], *x = f->x[t];
        if (!f->runs[t][l]) {
            continue;
        }
        memcpy(in, x, sizeof in);
        if (!o->post_norm) {
            norm(f, l, "self_attn_layer_norm", in, x);
        }
        linear(f, l, "self_attn.q_proj", q, o->hidden, in, o->hidden);
        linear(f, l, "self_attn.k_proj", f->k[t], o->hidden, in, o->hidden);
        linear(f, l, "self_attn.v_proj", f->v[t], o->hidden, in, o->hidden);
        attend(f, l, t, q, mixed);
        linear(f, l, "self_attn.out_proj", out, o->hidden, mixed, o->hidden);
        add(x, out, o->hidden);
        if (o->post_norm) {
            norm(f, l, "self_attn_layer_norm", x, x);
            memcpy(in, x, sizeof in);
        } else {
            norm(f, l, "final_layer_norm", in, x);
        }
        linear(f, l, "fc1", ffn, o->ffn, in, o->hidden);
        for (int i = 0; i < o->ffn; i++) {
            ffn[i] = activate(o, ffn[i]);
        }
        linear(f, l, "fc2", out, o->hidden, ffn, o->ffn);
        add(x, out, o->hidden);
        if (o->post_norm) {
            norm(f, l, "final_layer_norm", x, x);
        }
    }
}

static void embed(naive *f, const int32_t *ids)
{
    const sd_tiny_options *o = &f->tiny->options;
    const float *words = values(f, -1, "embed_tokens.weight", "");
    const float *places = values(f, -1, "embed_positions.weight", "");
    const float *project = values(f, -1, "project_in.weight", "");
    for (int t = 0; t < f->n; t++) {
        double word[MAX_HIDDEN];
        for (int i = 0; i < o->embed; i++) {
            word[i] = (double)words[ids[t] * o->embed + i];
        }
        memcpy(f->x[t], word, sizeof word);
        if (project) {
            product(f->x[t], o->hidden, word, o->embed, project, NULL);
        }
        for (int i = 0; i < o->hidden; i++) {
            f->x[t][i] += (double)places[(t + 2) * o->hidden + i];
        }
    }
}

static void forward(naive *f, const int32_t *ids)
{
    const sd_tiny_options *o = &f->tiny->options;
    const float *head = values(f, -1, o->untied ? "lm_head.weight" : "embed_tokens.weight", "");
    const float *project = values(f, -1, "project_out.weight", "");
    embed(f, ids);
    for (int l = 0; l < o->n_layers; l++) {
        run_layer(f, l);
    }
    for (int t = 0; t < f->n; t++) {
        double last[MAX_HIDDEN], narrow[MAX_HIDDEN];
        memcpy(last, f->x[t], sizeof last);
        if (!o->post_norm && !o->no_final_norm) {
            norm(f, -1, "final_layer_norm", last, last);
        }
        memcpy(narrow, last, sizeof narrow);
        if (project) {
            product(narrow, o->embed, last, o->hidden, project, NULL);
        }
        product(f->logits[t], o->vocab, narrow, o->embed, head, NULL);
    }
}

/* ---- the library's ---- */

typedef struct task {
    int n_prompt, n_forced;
    int32_t ids[MAX_TOKENS];
    const sd_schedule *schedule; /* NULL: all layers */
} task;

/* got: [n_forced + 1][vocab], row 0 after the prompt, row j + 1 after step j. */
static void run(const sd_model *model, const task *t, int vocab, float *got)
{
    sd_session *session;
    sd_error err = {0};
    int id;
    sd_assert_ok(sd_session_create(&session, model, 1, &err), &err);
    sd_assert_ok(sd_session_add(session, t->n_prompt, t->n_forced + 1, t->schedule, &id, &err), &err);
    for (int j = -1; j < t->n_forced; j++) {
        const sd_feed feed = {.row = id, .ids = t->ids + (j < 0 ? 0 : t->n_prompt + j), .n = j < 0 ? t->n_prompt : 1};
        sd_assert_ok(sd_session_forward(session, &feed, 1, &err), &err);
        const float *logits = sd_session_logits(session, 0);
        assert_non_null(logits);
        memcpy(got + (size_t)(j + 1) * (size_t)vocab, logits, (size_t)vocab * sizeof *got);
    }
    sd_session_free(session);
}

static task random_task(const sd_tiny_options *o, const sd_schedule *schedule, sd_rng *rng)
{
    task t = {.schedule = schedule};
    t.n_prompt = sd_random_int(rng, 1, 9);
    t.n_forced = sd_random_int(rng, 3, 14);
    for (int i = 0; i < t.n_prompt + t.n_forced; i++) {
        t.ids[i] = sd_random_int(rng, 0, o->vocab - 1);
    }
    return t;
}

static naive *expect(const sd_tiny_model *tiny, const task *t)
{
    naive *f = calloc(1, sizeof *f);
    assert_non_null(f);
    f->tiny = tiny;
    f->n = t->n_prompt + t->n_forced;
    for (int i = 0; i < f->n; i++) {
        for (int l = 0; l < tiny->options.n_layers; l++) {
            f->runs[i][l] = !t->schedule || sd_schedule_runs(t->schedule, l, i < t->n_prompt ? -1 : i - t->n_prompt);
        }
    }
    forward(f, t->ids);
    return f;
}

/* The largest difference over all logits of the task. */
static double difference(const naive *f, const task *t, const float *got)
{
    double worst = 0;
    int vocab = f->tiny->options.vocab;
    for (int j = -1; j < t->n_forced; j++) {
        for (int i = 0; i < vocab; i++) {
            double d = fabs((double)got[(j + 1) * vocab + i] - f->logits[t->n_prompt + j][i]);
            worst = d <= worst ? worst : d;
            assert_true(isfinite(d));
        }
    }
    return worst;
}

static double largest_logit(const naive *f, const task *t)
{
    double most = 0;
    for (int j = -1; j < t->n_forced; j++) {
        for (int i = 0; i < f->tiny->options.vocab; i++) {
            double x = fabs(f->logits[t->n_prompt + j][i]);
            most = x > most ? x : most;
        }
    }
    return most;
}

/* Matrices become what quantisation makes of them, so that the naive forward computes with the same weights. */
static void quantise(sd_tiny_model *tiny, sd_wtype layers, sd_wtype head)
{
    for (size_t i = 0; i < tiny->n; i++) {
        sd_tiny_tensor *t = &tiny->tensors[i];
        if (t->rank != 2 || strstr(t->name, "embed_positions")) {
            continue;
        }
        const bool outer = strstr(t->name, "embed_tokens") || strstr(t->name, "lm_head");
        sd_matrix m = {.type = outer ? head : layers, .n = (int)t->shape[0], .k = (int)t->shape[1]};
        m.data = calloc(sd_matrix_bytes(m.type, m.n, m.k), 1);
        assert_non_null(m.data);
        sd_matrix_pack_rows(&m, 0, m.n, t->values);
        for (int o = 0; o < m.n; o++) {
            sd_matrix_unpack_row(&m, o, t->values + (size_t)o * (size_t)m.k);
        }
        free(m.data);
    }
}

/* Runs `tasks` random tasks; the largest difference, or (relative) its share of the task's largest logit. */
static double compare(const sd_tiny_options *options, sd_weight_type weights, sd_kv_type kv, int tasks, bool relative)
{
    sd_tiny_model tiny;
    sd_tiny_make(&tiny, options);
    const sd_model_options load = {.weights = weights, .kv = kv, .threads = 1};
    sd_model *model = sd_tiny_load(&tiny, &load);
    if (weights == SD_WEIGHTS_Q8 || weights == SD_WEIGHTS_Q4) {
        quantise(&tiny, weights == SD_WEIGHTS_Q8 ? SD_W_Q8 : SD_W_Q4, SD_W_Q8);
    }
    sd_rng rng;
    sd_rng_seed(&rng, options->seed);
    double worst = 0;
    for (int i = 0; i < tasks; i++) {
        sd_schedule_options so;
        sd_schedule_options_default(&so);
        sd_schedule *schedule = NULL;
        sd_error err = {0};
        if (i > 0) { /* the first is at full depth */
            sd_random_policy(&so, tiny.options.n_layers, &rng);
            sd_assert_ok(sd_schedule_create(&schedule, tiny.options.n_layers, 20, &so, &err), &err);
        }
        task t = random_task(&tiny.options, schedule, &rng);
        float got[(MAX_TOKENS + 1) * MAX_VOCAB];
        run(model, &t, tiny.options.vocab, got);
        naive *f = expect(&tiny, &t);
        double d = difference(f, &t, got) / (relative ? largest_logit(f, &t) : 1);
        worst = d > worst ? d : worst;
        free(f);
        sd_schedule_free(schedule);
        sd_schedule_options_clear(&so);
    }
    sd_model_free(model);
    sd_tiny_clear(&tiny);
    return worst;
}

/* ---- tests ---- */

static const struct {
    const char *name;
    sd_tiny_options options;
} variants[] = {
    {"pre-norm", {.seed = 1}},
    {"post-norm with projections", {.seed = 2, .post_norm = true, .embed = 10, .n_layers = 6}},
    {"post-norm, untied", {.seed = 3, .post_norm = true, .untied = true}},
    {"projections, untied", {.seed = 4, .embed = 30, .untied = true, .n_layers = 3}},
    {"no final norm", {.seed = 5, .no_final_norm = true}},
    {"no biases", {.seed = 6, .no_bias = true}},
    {"plain norms", {.seed = 7, .no_affine = true}},
    {"gelu", {.seed = 8, .activation = "gelu"}},
    {"gelu_new", {.seed = 9, .activation = "gelu_new"}},
    {"gelu_pytorch_tanh, nothing optional",
     {.seed = 10, .activation = "gelu_pytorch_tanh", .no_bias = true, .no_affine = true, .untied = true}},
    {"one layer, one head", {.seed = 11, .n_layers = 1, .n_heads = 1}},
    {"heads of 1", {.seed = 12, .n_heads = 24}},
    {"wider than a panel", {.seed = 13, .hidden = 64, .n_heads = 4, .ffn = 80, .vocab = 65, .n_layers = 8}},
    {"odd sizes", {.seed = 14, .hidden = 27, .n_heads = 3, .ffn = 31, .vocab = 67}},
    {"stored as f16", {.seed = 15, .dtype = SD_DTYPE_F16}},
    {"stored as f64", {.seed = 16, .dtype = SD_DTYPE_F64}},
};

static void every_variant_is_the_naive_forward(void **state)
{
    (void)state;
    double worst = 0;
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        double d = compare(&variants[i].options, SD_WEIGHTS_F32, SD_KV_F32, 12, false);
        if (!(d <= 1e-4)) {
            fail_msg("%s: logits differ by %.3g", variants[i].name, d);
        }
        worst = d > worst ? d : worst;
    }
    print_message("f32: largest difference of a logit %.2g\n", worst);
}

/* Whether the level in use brings the inputs of a product into a smaller form. */
static bool rounds_inputs(sd_wtype type)
{
    sd_cpu_level_id level;
    sd_error err = {0};
    sd_assert_ok(sd_cpu_select(&level, &err), &err);
    return sd_kernels_get(level)->pack_input[type] != NULL;
}

/* A bf16 file holds the weights that are computed with, so nothing but f32's rounding is left; where the level rounds
 * the inputs of products to bf16 too, a share of the largest logit is allowed. */
static void bf16_weights_are_the_naive_forward(void **state)
{
    (void)state;
    double worst = 0;
    const sd_tiny_options options[] = {{.seed = 21, .dtype = SD_DTYPE_BF16},
                                       {.seed = 22, .dtype = SD_DTYPE_BF16, .post_norm = true, .embed = 10},
                                       {.seed = 23, .dtype = SD_DTYPE_BF16, .hidden = 27, .ffn = 31, .untied = true}};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        const bool rounded = rounds_inputs(SD_W_BF16);
        double d = compare(&options[i], i % 2 ? SD_WEIGHTS_AUTO : SD_WEIGHTS_BF16, SD_KV_F32, 12, rounded);
        if (!(d <= (rounded ? 2.5e-2 : 1e-4))) {
            fail_msg("bf16, variant %zu: logits differ by %.3g", i, d);
        }
        worst = d > worst ? d : worst;
    }
    print_message("bf16: largest difference of a logit %.2g\n", worst);
}

/* Keys and values lose 11 bits and the inputs of a quantised product all but 8; the weights are the same. The tests
 * below say that one wrong layer moves a logit by far more. */
static void smaller_forms_are_near_the_naive_forward(void **state)
{
    (void)state;
    const struct {
        sd_weight_type weights;
        sd_kv_type kv;
        double allowed;
    } forms[] = {
        {SD_WEIGHTS_F32, SD_KV_F16, 2e-3}, {SD_WEIGHTS_Q8, SD_KV_F32, 0.06}, {SD_WEIGHTS_Q4, SD_KV_AUTO, 0.06},
    };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        double worst = 0;
        for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
            double d = compare(&variants[v].options, forms[i].weights, forms[i].kv, 4, true);
            if (!(d <= forms[i].allowed)) {
                fail_msg("form %zu, %s: logits differ by %.3g of the largest", i, variants[v].name, d);
            }
            worst = d > worst ? d : worst;
        }
        print_message("form %zu: largest difference of a logit %.2g of the largest\n", i, worst);
    }
}

/* Would the tests above notice one layer too many, or one too few, for a single token? */
static void a_wrong_layer_would_be_noticed(void **state)
{
    (void)state;
    sd_tiny_model tiny;
    sd_tiny_make(&tiny, &(sd_tiny_options){.seed = 31});
    sd_model *model = sd_tiny_load(&tiny, &(sd_model_options){.threads = 1});
    sd_error err = {0};
    sd_schedule *schedule;
    const sd_schedule_options so = {.warmup = 1, .max_layers = 4, .min_layers = 2, .horizon = 8,
                                    .prompt = SD_PROMPT_FULL};
    sd_assert_ok(sd_schedule_create(&schedule, tiny.options.n_layers, 9, &so, &err), &err);
    sd_rng rng;
    sd_rng_seed(&rng, 31);
    task t = random_task(&tiny.options, schedule, &rng);
    t.n_forced = 10;
    float got[(MAX_TOKENS + 1) * MAX_VOCAB];
    run(model, &t, tiny.options.vocab, got);
    naive *f = expect(&tiny, &t);
    assert_true(difference(f, &t, got) <= 1e-4);
    for (int i = t.n_prompt; i < f->n; i++) {
        for (int l = 0; l < tiny.options.n_layers; l++) {
            f->runs[i][l] = !f->runs[i][l];
            forward(f, t.ids);
            double d = difference(f, &t, got);
            if (!(d > 0.01)) {
                fail_msg("layer %d at position %d moves the logits by %.3g only", l, i, d);
            }
            f->runs[i][l] = !f->runs[i][l];
        }
    }
    free(f);
    sd_schedule_free(schedule);
    sd_model_free(model);
    sd_tiny_clear(&tiny);
}

int main(void)
{
    sd_skip_unless_level();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_variant_is_the_naive_forward),
        cmocka_unit_test(bf16_weights_are_the_naive_forward),
        cmocka_unit_test(smaller_forms_are_near_the_naive_forward),
        cmocka_unit_test(a_wrong_layer_would_be_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
