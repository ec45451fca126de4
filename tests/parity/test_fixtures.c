/* SPDX-License-Identifier: MIT
 *
 * The library against the reference in PyTorch: every case of every tests/fixtures/opt-tiny-*, logits after the prompt
 * and after every forced token. Then the same cases with the prompt cut into chunks, and all cases that share a ranking
 * together in one session: bit for bit what each gave alone. */
#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/file.h"
#include "src/base/json.h"
#include "src/checkpoint/readers.h"
#include "src/schedule/schedule.h"
#include "tests/support/support.h"

static const char fixtures[] = "tests/fixtures";
static const double tolerance = 2e-4; /* absolute; the logits reach 50 */
enum { N_FIXTURES = 5, MAX_CASES = 64, MAX_TOKENS = 96, MAX_PATH = 512 };

typedef struct parity_case {
    const char *name;
    int32_t ids[MAX_TOKENS]; /* the prompt, then the forced tokens */
    int n_prompt, n_forced;
    sd_schedule *schedule;
    float *expected, *got; /* [n_forced + 1][vocab] */
    int row, fed;          /* while it runs */
} parity_case;

typedef struct fixture {
    char dir[MAX_PATH];
    sd_model *model;
    sd_model_info info;
    json_t *json;
    parity_case cases[MAX_CASES];
    int n;
} fixture;

/* ---- reading a fixture ---- */

static int read_ids(int32_t *dst, int room, const json_t *list)
{
    int n = (int)json_array_size(list);
    assert_true(json_is_array(list) && n <= room);
    for (int i = 0; i < n; i++) {
        int64_t id;
        assert_true(sd_json_as_int(json_array_get(list, (size_t)i), &id));
        dst[i] = (int32_t)id;
    }
    return n;
}

static void read_case(const fixture *f, parity_case *c, const json_t *json, const sd_tensor_list *answers)
{
    sd_error err = {0};
    c->name = json_string_value(json_object_get(json, "name"));
    assert_non_null(c->name);
    c->n_prompt = read_ids(c->ids, MAX_TOKENS, json_object_get(json, "ids"));
    c->n_forced = read_ids(c->ids + c->n_prompt, MAX_TOKENS - c->n_prompt, json_object_get(json, "forced"));
    sd_schedule_options o;
    sd_schedule_options_default(&o);
    sd_assert_ok(sd_schedule_parse(&o, json_string_value(json_object_get(json, "schedule")), &err), &err);
    sd_assert_ok(sd_schedule_create(&c->schedule, f->info.n_layers, c->n_forced + 1, &o, &err), &err);
    sd_schedule_options_clear(&o);
    const sd_tensor *t = sd_tensor_list_find(answers, c->name);
    assert_non_null(t);
    assert_true(t->dtype == SD_DTYPE_F32 && t->rank == 2);
    assert_int_equal(t->shape[0], c->n_forced + 1);
    assert_int_equal(t->shape[1], f->info.vocab_size);
    c->expected = malloc((size_t)t->n_elements * sizeof(float));
    c->got = calloc((size_t)t->n_elements, sizeof(float));
    assert_true(c->expected && c->got);
    sd_tensor_read_f32(t, 0, t->n_elements, c->expected);
}

static void open_fixture(fixture *f, const char *name)
{
    char path[2 * MAX_PATH];
    sd_error err = {0};
    const sd_model_options load = {.weights = SD_WEIGHTS_F32, .threads = 2};
    *f = (fixture){0};
    assert_true(snprintf(f->dir, sizeof f->dir, "%s/%s", fixtures, name) < (int)sizeof f->dir);
    sd_assert_ok(sd_model_load(&f->model, f->dir, &load, &err), &err);
    sd_model_get_info(f->model, &f->info);
    (void)snprintf(path, sizeof path, "%s/cases.json", f->dir);
    sd_assert_ok(sd_json_load(&f->json, path, &err), &err);
    sd_file file;
    sd_tensor_list answers = {0};
    (void)snprintf(path, sizeof path, "%s/expected.safetensors", f->dir);
    sd_assert_ok(sd_file_open(&file, path, false, &err), &err);
    sd_assert_ok(sd_safetensors_read(&answers, file.data, file.size, path, &err), &err);
    sd_assert_ok(sd_tensor_list_sort(&answers, &err), &err);
    f->n = (int)json_array_size(f->json);
    assert_in_range(f->n, 1, MAX_CASES);
    assert_int_equal(answers.n, f->n);
    for (int i = 0; i < f->n; i++) {
        read_case(f, &f->cases[i], json_array_get(f->json, (size_t)i), &answers);
    }
    sd_tensor_list_free(&answers);
    sd_file_close(&file);
}

static void close_fixture(fixture *f)
{
    for (int i = 0; i < f->n; i++) {
        sd_schedule_free(f->cases[i].schedule);
        free(f->cases[i].expected);
        free(f->cases[i].got);
    }
    json_decref(f->json);
    sd_model_free(f->model);
}

/* ---- running cases ---- */

static sd_session *new_session(const fixture *f, int rows)
{
    sd_session *session;
    sd_error err = {0};
    sd_assert_ok(sd_session_create(&session, f->model, rows, &err), &err);
    return session;
}

static void add_case(sd_session *session, parity_case *c)
{
    sd_error err = {0};
    sd_assert_ok(sd_session_add(session, c->n_prompt, c->n_forced + 1, c->schedule, &c->row, &err), &err);
    c->fed = 0;
}

static bool is_over(const parity_case *c) { return c->fed == c->n_prompt + c->n_forced; }

/* The next at most `chunk` tokens of the prompt, or one forced token. */
static sd_feed next_feed(const parity_case *c, int chunk)
{
    int left = c->n_prompt - c->fed;
    return (sd_feed){.row = c->row, .ids = c->ids + c->fed, .n = left <= 0 ? 1 : left < chunk ? left : chunk};
}

/* Counts the tokens of the feed in; where they end in the case's logits, NULL within the prompt. */
static float *advance(const fixture *f, parity_case *c, int tokens)
{
    c->fed += tokens;
    return c->fed < c->n_prompt ? NULL : c->got + (size_t)(c->fed - c->n_prompt) * (size_t)f->info.vocab_size;
}

static void run_alone(const fixture *f, parity_case *c)
{
    sd_session *session = new_session(f, 1);
    sd_error err = {0};
    add_case(session, c);
    while (!is_over(c)) {
        const sd_feed feed = next_feed(c, MAX_TOKENS);
        sd_assert_ok(sd_session_forward(session, &feed, 1, &err), &err);
        float *place = advance(f, c, feed.n);
        assert_non_null(place);
        memcpy(place, sd_session_logits(session, 0), (size_t)f->info.vocab_size * sizeof(float));
    }
    sd_session_free(session);
}

/* The n cases in one session, the next chunk or token of each in every pass; expected are the bits of each alone. */
static void run_again(const fixture *f, parity_case *const *cases, int n, int chunk, const char *how)
{
    sd_session *session = new_session(f, n);
    sd_error err = {0};
    for (int i = 0; i < n; i++) {
        add_case(session, cases[i]);
    }
    for (;;) {
        sd_feed feeds[MAX_CASES];
        parity_case *fed[MAX_CASES];
        int n_feeds = 0;
        for (int i = 0; i < n; i++) {
            if (!is_over(cases[i])) {
                fed[n_feeds] = cases[i];
                feeds[n_feeds++] = next_feed(cases[i], chunk);
            }
        }
        if (n_feeds == 0) {
            break;
        }
        sd_assert_ok(sd_session_forward(session, feeds, n_feeds, &err), &err);
        for (int i = 0; i < n_feeds; i++) {
            const float *logits = sd_session_logits(session, i), *alone = advance(f, fed[i], feeds[i].n);
            assert_int_equal(logits != NULL, alone != NULL);
            size_t vocab = (size_t)f->info.vocab_size;
            if (logits && memcmp(logits, alone, vocab * sizeof(float)) != 0) {
                fail_msg("%s, case %s, %s: logits at token %d differ by %.3g from those alone", f->dir, fed[i]->name,
                         how, fed[i]->fed, sd_max_difference(logits, alone, vocab));
            }
        }
    }
    sd_session_free(session);
}

/* One batch per ranking; cases at full depth go with the first. Returns the size of the largest. */
static int run_batches(fixture *f, int chunk)
{
    bool done[MAX_CASES] = {false};
    int largest = 0;
    for (int first = 0; first < f->n; first++) {
        parity_case *batch[MAX_CASES];
        int n = 0;
        const sd_schedule *ranking = NULL;
        for (int i = first; i < f->n; i++) {
            const sd_schedule *s = f->cases[i].schedule;
            if (!done[i] && (!ranking || sd_schedule_same_ranking(ranking, s))) {
                ranking = ranking && !sd_schedule_is_full(ranking) ? ranking : s;
                batch[n++] = &f->cases[i];
                done[i] = true;
            }
        }
        if (n > 0) {
            run_again(f, batch, n, chunk, "in a batch");
        }
        largest = n > largest ? n : largest;
    }
    return largest;
}

static double check_fixture(const char *name)
{
    fixture f;
    open_fixture(&f, name);
    double worst = 0;
    for (int i = 0; i < f.n; i++) {
        parity_case *c = &f.cases[i];
        char what[MAX_PATH];
        (void)snprintf(what, sizeof what, "%s, case %s", name, c->name);
        run_alone(&f, c);
        size_t n = (size_t)(c->n_forced + 1) * (size_t)f.info.vocab_size;
        sd_assert_close(c->got, c->expected, n, tolerance, 0, what);
        double d = sd_max_difference(c->got, c->expected, n);
        worst = d > worst ? d : worst;
        const int chunks[] = {1, 3, 7};
        for (int k = 0; k < 3; k++) {
            run_again(&f, &c, 1, chunks[k], "with the prompt in chunks");
        }
    }
    assert_true(run_batches(&f, MAX_TOKENS) > 5); /* or this would test nothing */
    assert_true(run_batches(&f, 5) > 5);
    print_message("%s: %d cases at level %s, largest difference of a logit %.2g\n", name, f.n, sd_cpu_level(), worst);
    close_fixture(&f);
    return worst;
}

static int is_fixture(const struct dirent *entry) { return strncmp(entry->d_name, "opt-tiny-", 9) == 0; }

static void every_fixture_agrees_with_the_reference(void **state)
{
    (void)state;
    struct dirent **entries;
    int n = scandir(fixtures, &entries, is_fixture, alphasort);
    if (n < N_FIXTURES) {
        fail_msg("%s holds %d opt-tiny-* directories, expected %d or more; run from the repository's root", fixtures, n,
                 N_FIXTURES);
    }
    double worst = 0;
    for (int i = 0; i < n; i++) {
        double d = check_fixture(entries[i]->d_name);
        worst = d > worst ? d : worst;
        free(entries[i]);
    }
    free(entries);
    print_message("%d fixtures: largest difference of a logit %.2g, allowed %.2g\n", n, worst, tolerance);
}

int main(void)
{
    sd_skip_unless_level();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_fixture_agrees_with_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
