/* SPDX-License-Identifier: MIT
 *
 * Training against the reference in PyTorch: the loss and every gradient of a batch that mixes full depth and
 * schedules, and the losses of fifty steps. Then what has no need of a reference: the same batch one row at a time
 * gives the same gradients, twice the same bits, and a saved state goes on as if nothing had been. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/file.h"
#include "src/base/json.h"
#include "src/checkpoint/readers.h"
#include "src/train/net.h"
#include "tests/support/support.h"

static const char *const fixtures[] = {"opt-tiny-prenorm", "opt-tiny-350m", "opt-tiny-gelu-nobias"};
enum { N_FIXTURES = sizeof fixtures / sizeof *fixtures, MAX_ROWS = 8, MAX_TOKENS = 64, MAX_PATH = 256, ROOM = 512 };
static const double largest_error = 1e-4; /* relative, L2, of a gradient */

typedef struct fixture {
    char dir[MAX_PATH];
    sd_config config;
    json_t *json;
    sd_net *net;
    sd_net_row rows[MAX_ROWS];
    sd_schedule *schedules[MAX_ROWS];
    int32_t prompts[MAX_ROWS][MAX_TOKENS], responses[MAX_ROWS][MAX_TOKENS];
    int n;
    double scale;
} fixture;

static int read_ids(int32_t *dst, const json_t *list)
{
    const int n = (int)json_array_size(list);
    assert_in_range(n, 1, MAX_TOKENS);
    for (int i = 0; i < n; i++) {
        int64_t id = 0;
        assert_true(sd_json_as_int(json_array_get(list, (size_t)i), &id));
        dst[i] = (int32_t)id;
    }
    return n;
}

static sd_net *new_net(const fixture *f, float dropout, float distill)
{
    sd_error err = {0};
    sd_net *net = NULL;
    const sd_net_options o = {.dir = f->dir, .config = &f->config, .threads = 2, .max_tokens = ROOM, .dropout = dropout,
                              .distill = distill};
    sd_assert_ok(sd_net_create(&net, &o, &err), &err);
    return net;
}

static void open_fixture(fixture *f, const char *name)
{
    char path[2 * MAX_PATH];
    sd_error err = {0};
    *f = (fixture){0};
    (void)snprintf(f->dir, sizeof f->dir, "tests/fixtures/%s", name);
    sd_assert_ok(sd_config_load(&f->config, f->dir, &err), &err);
    (void)snprintf(path, sizeof path, "%s/training.json", f->dir);
    sd_assert_ok(sd_json_load(&f->json, path, &err), &err);
    const json_t *rows = json_object_get(f->json, "rows");
    f->n = (int)json_array_size(rows);
    assert_in_range(f->n, 2, MAX_ROWS);
    f->scale = json_number_value(json_object_get(f->json, "scale"));
    for (int r = 0; r < f->n; r++) {
        const json_t *row = json_array_get(rows, (size_t)r);
        sd_net_row *to = &f->rows[r];
        to->n_prompt = read_ids(f->prompts[r], json_object_get(row, "prompt"));
        to->n_response = read_ids(f->responses[r], json_object_get(row, "response"));
        to->prompt = f->prompts[r];
        to->response = f->responses[r];
        sd_schedule_options o;
        sd_schedule_options_default(&o);
        sd_assert_ok(sd_schedule_parse(&o, json_string_value(json_object_get(row, "schedule")), &err), &err);
        sd_assert_ok(sd_schedule_create(&f->schedules[r], f->config.n_layers, to->n_response, &o, &err), &err);
        sd_schedule_options_clear(&o);
        to->schedule = f->schedules[r];
    }
    f->net = new_net(f, 0.0f, 0.0f);
}

static void close_fixture(fixture *f)
{
    for (int r = 0; r < f->n; r++) {
        sd_schedule_free(f->schedules[r]);
    }
    sd_net_free(f->net);
    json_decref(f->json);
}

static double backward(const fixture *f, sd_net *net, uint64_t noise)
{
    sd_error err = {0};
    double nll[MAX_ROWS], sum = 0.0;
    sd_assert_ok(sd_net_backward(net, f->rows, f->n, (float)f->scale, noise, nll, &err), &err);
    for (int r = 0; r < f->n; r++) {
        sum += nll[r];
    }
    return sum;
}

static double relative_error(const float *got, const float *want, size_t n)
{
    double difference = 0.0, size = 0.0;
    for (size_t i = 0; i < n; i++) {
        difference += ((double)got[i] - (double)want[i]) * ((double)got[i] - (double)want[i]);
        size += (double)want[i] * (double)want[i];
    }
    return sqrt(difference / (size > 0.0 ? size : 1.0));
}

static void gradients(void **state)
{
    (void)state;
    for (int i = 0; i < N_FIXTURES; i++) {
        fixture f;
        char path[2 * MAX_PATH];
        sd_error err = {0};
        sd_file file;
        sd_tensor_list list = {0};
        open_fixture(&f, fixtures[i]);
        (void)snprintf(path, sizeof path, "%s/gradients.safetensors", f.dir);
        sd_assert_ok(sd_file_open(&file, path, false, &err), &err);
        sd_assert_ok(sd_safetensors_read(&list, file.data, file.size, path, &err), &err);
        sd_assert_ok(sd_tensor_list_sort(&list, &err), &err);
        const double nll = backward(&f, f.net, 0), want_nll = json_number_value(json_object_get(f.json, "nll"));
        assert_true(fabs(nll - want_nll) <= 1e-5 * want_nll);
        assert_int_equal(sd_net_n_tensors(f.net), list.n);
        for (size_t k = 0; k < list.n; k++) {
            const sd_net_tensor got = sd_net_tensor_at(f.net, k);
            const sd_tensor *t = sd_tensor_list_find(&list, got.name);
            if (!t) {
                fail_msg("%s: the reference has no gradient of %s", f.dir, got.name);
            }
            float *want = malloc((size_t)t->n_elements * sizeof *want);
            assert_non_null(want);
            sd_tensor_read_f32(t, 0, t->n_elements, want);
            double size = 0.0;
            for (int64_t e = 0; e < t->n_elements; e++) {
                size += fabs((double)want[e]);
            }
            /* the keys' biases move no softmax: their gradient is rounding */
            if (!strstr(got.name, "k_proj.bias")) {
                const double error = relative_error(got.gradient, want, (size_t)t->n_elements);
                if (!(error <= largest_error) || !(size > 0.0)) {
                    fail_msg("%s: the gradient of %s is off by %.2e (relative, L2)", f.dir, got.name, error);
                }
            }
            free(want);
        }
        sd_tensor_list_free(&list);
        sd_file_close(&file);
        close_fixture(&f);
    }
}

static void step(sd_net *net, const json_t *adamw, int64_t number)
{
    sd_net_adamw(net, &(sd_adamw){.lr = json_number_value(json_object_get(adamw, "lr")),
                                  .beta1 = json_number_value(json_object_get(adamw, "beta1")),
                                  .beta2 = json_number_value(json_object_get(adamw, "beta2")),
                                  .epsilon = json_number_value(json_object_get(adamw, "epsilon")),
                                  .weight_decay = json_number_value(json_object_get(adamw, "weight_decay")),
                                  .scale = 1.0, .step = number});
    sd_net_zero_gradients(net);
}

static void fifty_steps(void **state)
{
    (void)state;
    for (int i = 0; i < N_FIXTURES; i++) {
        fixture f;
        open_fixture(&f, fixtures[i]);
        const json_t *losses = json_object_get(f.json, "losses"), *adamw = json_object_get(f.json, "adamw");
        assert_int_equal(json_array_size(losses), 50);
        for (int s = 0; s < 50; s++) {
            const double loss = backward(&f, f.net, 0) * f.scale;
            const double want = json_number_value(json_array_get(losses, (size_t)s));
            if (!(fabs(loss - want) <= 1e-3)) {
                fail_msg("%s: step %d: loss %.6f, the reference has %.6f", f.dir, s, loss, want);
            }
            step(f.net, adamw, s + 1);
        }
        close_fixture(&f);
    }
}

static void company_does_not_matter(void **state)
{
    (void)state;
    for (int i = 0; i < N_FIXTURES; i++) {
        fixture f;
        sd_error err = {0};
        open_fixture(&f, fixtures[i]);
        sd_net *alone = new_net(&f, 0.0f, 0.0f);
        double all[MAX_ROWS];
        sd_assert_ok(sd_net_backward(f.net, f.rows, f.n, (float)f.scale, 0, all, &err), &err);
        for (int r = 0; r < f.n; r++) {
            double nll = NAN, loss = NAN;
            sd_assert_ok(sd_net_backward(alone, &f.rows[r], 1, (float)f.scale, 0, &nll, &err), &err);
            sd_assert_ok(sd_net_loss(alone, &f.rows[r], 1, &loss, &err), &err);
            assert_true(fabs(nll - loss) <= 1e-6 * nll);
            assert_true(fabs(nll - all[r]) <= 1e-6 * nll);
        }
        size_t n = 0, m = 0;
        const float *a = sd_net_gradients(f.net, &n), *b = sd_net_gradients(alone, &m);
        assert_int_equal(n, m);
        assert_true(relative_error(b, a, n) <= 1e-5);
        sd_net_free(alone);
        close_fixture(&f);
    }
}

static void same_bits_again(void **state)
{
    (void)state;
    fixture f;
    sd_error err = {0};
    open_fixture(&f, fixtures[0]);
    char *dir = sd_make_temp_dir(), path[MAX_PATH];
    (void)snprintf(path, sizeof path, "%s/state.safetensors", dir);
    sd_net *a = new_net(&f, 0.2f, 0.3f), *b = new_net(&f, 0.2f, 0.3f);
    const json_t *adamw = json_object_get(f.json, "adamw");
    for (int s = 0; s < 6; s++) {
        if (s == 3) { /* b goes on from a's file */
            sd_assert_ok(sd_net_save_state(a, path, &err), &err);
            sd_net_free(b);
            b = new_net(&f, 0.2f, 0.3f);
            sd_assert_ok(sd_net_load_state(b, path, &err), &err);
        }
        const double first = backward(&f, a, (uint64_t)s), second = backward(&f, b, (uint64_t)s);
        assert_memory_equal(&first, &second, sizeof first);
        step(a, adamw, s + 1);
        step(b, adamw, s + 1);
    }
    for (size_t k = 0; k < sd_net_n_tensors(a); k++) {
        const sd_net_tensor x = sd_net_tensor_at(a, k), y = sd_net_tensor_at(b, k);
        size_t n = (size_t)x.shape[0] * (size_t)(x.rank == 2 ? x.shape[1] : 1);
        assert_memory_equal(x.values, y.values, n * sizeof(float));
    }
    /* other noise, other gradients */
    sd_net_zero_gradients(b);
    (void)backward(&f, a, 7);
    (void)backward(&f, b, 8);
    size_t n = 0;
    const float *ga = sd_net_gradients(a, &n), *gb = sd_net_gradients(b, &n);
    assert_true(relative_error(ga, gb, n) > 1e-2);
    sd_net_free(a);
    sd_net_free(b);
    sd_remove_temp_dir(dir);
    close_fixture(&f);
}

/* The model as its own teacher. */
static void distillation(void **state)
{
    (void)state;
    fixture f;
    sd_error err = {0};
    open_fixture(&f, fixtures[0]);
    sd_net *net = new_net(&f, 0.0f, 1.0f);
    for (int r = 0; r < f.n; r++) {
        f.rows[r].schedule = NULL;
    }
    (void)backward(&f, net, 0);
    /* at full depth the model is its teacher: nothing to learn */
    assert_true(sd_net_gradient_norm(net) < 1e-5);
    for (int r = 0; r < f.n; r++) {
        f.rows[r].schedule = f.schedules[r];
    }
    sd_net_zero_gradients(net);
    (void)backward(&f, net, 0);
    assert_true(sd_net_gradient_norm(net) > 1e-3);
    /* it learns to do with fewer layers what it does with all: the loss under the schedule nears the teacher's */
    double before = NAN, after = NAN;
    sd_assert_ok(sd_net_loss(net, &f.rows[2], 1, &before, &err), &err);
    const json_t *adamw = json_object_get(f.json, "adamw");
    double norm = 0.0, first = sd_net_gradient_norm(net);
    for (int s = 0; s < 30; s++) {
        step(net, adamw, s + 1);
        (void)backward(&f, net, 0);
        norm = sd_net_gradient_norm(net);
    }
    sd_assert_ok(sd_net_loss(net, &f.rows[2], 1, &after, &err), &err);
    assert_true(isfinite(after) && isfinite(norm) && norm < first);
    sd_net_free(net);
    close_fixture(&f);
}

static void rows_that_cannot_be(void **state)
{
    (void)state;
    fixture f;
    sd_error err = {0};
    open_fixture(&f, fixtures[0]);
    double nll[ROOM];
    sd_net_row row = f.rows[0];
    f.prompts[0][0] = f.config.vocab;
    sd_assert_fails(sd_net_loss(f.net, &row, 1, nll, &err), SD_ERR_ARG, &err, "token 0 of the prompt");
    f.prompts[0][0] = 2;
    row.n_response = 0;
    sd_assert_fails(sd_net_loss(f.net, &row, 1, nll, &err), SD_ERR_ARG, &err, "at least one of each");
    int32_t *many = calloc(ROOM * 2, sizeof *many);
    row = (sd_net_row){.prompt = many, .response = many, .n_prompt = f.config.max_positions, .n_response = 2};
    sd_assert_fails(sd_net_loss(f.net, &row, 1, nll, &err), SD_ERR_ARG, &err, "positions");
    sd_net_row rows[ROOM];
    for (int i = 0; i < ROOM; i++) {
        rows[i] = (sd_net_row){.prompt = many, .response = many, .n_prompt = 2, .n_response = 1};
    }
    sd_assert_fails(sd_net_loss(f.net, rows, ROOM, nll, &err), SD_ERR_ARG, &err, "room for 512");
    free(many);
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients), cmocka_unit_test(fifty_steps), cmocka_unit_test(company_does_not_matter),
        cmocka_unit_test(same_bits_again), cmocka_unit_test(distillation), cmocka_unit_test(rows_that_cannot_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
