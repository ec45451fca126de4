/* SPDX-License-Identifier: MIT
 *
 * A row's logits depend on that row alone, bit for bit: not on the other rows of a pass, their lengths and budgets, nor
 * on when rows come and go, how the prompt is cut, or how many threads there are. Over random models and schedules. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "src/engine/session.h"
#include "tests/support/random_schedule.h"
#include "tests/support/support.h"
#include "tests/support/tiny_model.h"

enum { MAX_TOKENS = 40 };

typedef struct job {
    int n_prompt, n_forced, vocab;
    int32_t ids[MAX_TOKENS];
    sd_schedule *schedule; /* NULL: all layers */
    float *logits;         /* [n_forced + 1][vocab]: row 0 after the prompt, row j + 1 after step j */
    /* while it runs */
    int row, fed; /* row -1: not in the session */
} job;

static job random_job(const sd_model *model, sd_schedule *schedule, int longest_prompt, sd_rng *rng)
{
    job j = {.vocab = model->config.vocab, .schedule = schedule, .row = -1};
    j.n_prompt = sd_random_int(rng, 1, longest_prompt);
    j.n_forced = sd_random_int(rng, 0, 14);
    for (int i = 0; i < j.n_prompt + j.n_forced; i++) {
        j.ids[i] = sd_random_int(rng, 0, j.vocab - 1);
    }
    j.logits = calloc((size_t)(j.n_forced + 1) * (size_t)j.vocab, sizeof *j.logits);
    assert_non_null(j.logits);
    return j;
}

static void free_job(job *j)
{
    sd_schedule_free(j->schedule);
    free(j->logits);
}

static sd_session *new_session(const sd_model *model, int rows)
{
    sd_session *session;
    sd_error err = {0};
    sd_assert_ok(sd_session_create(&session, model, rows, &err), &err);
    return session;
}

static void add_job(sd_session *session, job *j)
{
    sd_error err = {0};
    sd_assert_ok(sd_session_add(session, j->n_prompt, j->n_forced + 1, j->schedule, &j->row, &err), &err);
    j->fed = 0;
}

/* The next tokens of the job: at most `most` of the prompt, or one generated token. */
static sd_feed next_feed(const job *j, int most)
{
    int left = j->n_prompt - j->fed;
    return (sd_feed){.row = j->row, .ids = j->ids + j->fed, .n = left <= 0 ? 1 : left < most ? left : most};
}

static bool is_over(const job *j) { return j->fed == j->n_prompt + j->n_forced; }

/* Where the logits after the tokens fed so far belong; NULL within the prompt. */
static float *place(const job *j)
{
    return j->fed < j->n_prompt ? NULL : j->logits + (size_t)(j->fed - j->n_prompt) * (size_t)j->vocab;
}

static void run_alone(const sd_model *model, job *j, int chunk)
{
    sd_session *session = new_session(model, 1);
    sd_error err = {0};
    add_job(session, j);
    while (!is_over(j)) {
        const sd_feed feed = next_feed(j, chunk);
        sd_assert_ok(sd_session_forward(session, &feed, 1, &err), &err);
        j->fed += feed.n;
        const float *logits = sd_session_logits(session, 0);
        assert_int_equal(logits != NULL, place(j) != NULL);
        if (logits) {
            memcpy(place(j), logits, (size_t)j->vocab * sizeof *logits);
        }
    }
    sd_session_free(session);
}

static void assert_same_bits(const job *j, const float *got, const char *what)
{
    size_t n = (size_t)j->vocab;
    if (memcmp(got, place(j), n * sizeof *got) != 0) {
        fail_msg("%s: after %d of %d tokens the logits differ by %.3g", what, j->fed, j->n_prompt + j->n_forced,
                 sd_max_difference(got, place(j), n));
    }
}

/* A copy with logits of its own, still to be computed; release these with free(copy.logits). */
static job without_logits(const job *j)
{
    job copy = *j;
    copy.logits = calloc((size_t)(j->n_forced + 1) * (size_t)j->vocab, sizeof *copy.logits);
    assert_non_null(copy.logits);
    return copy;
}

static void assert_same_jobs(const job *got, const job *expected, const char *what)
{
    job at = *expected;
    for (int step = 0; step <= at.n_forced; step++) {
        at.fed = at.n_prompt + step;
        assert_same_bits(&at, got->logits + (size_t)step * (size_t)at.vocab, what);
    }
}

/* The jobs again, alone, expecting what they hold. */
static void check_alone(const sd_model *model, const job *jobs, int n, int chunk, const char *what)
{
    for (int i = 0; i < n; i++) {
        job again = without_logits(&jobs[i]);
        run_alone(model, &again, chunk);
        assert_same_jobs(&again, &jobs[i], what);
        free(again.logits);
    }
}

/* The jobs together in a session that cannot hold them all: rows come when there is room, a pass feeds a random part of
 * those there are, in random order and chunks, and a row leaves some time after it is over. */
static void check_together(const sd_model *model, job *jobs, int n, int rows, sd_rng *rng)
{
    sd_session *session = new_session(model, rows);
    sd_error err = {0};
    int *open = calloc((size_t)n, sizeof *open), next = 0, n_open = 0;
    sd_feed *feeds = calloc((size_t)rows, sizeof *feeds);
    assert_true(open && feeds);
    while (next < n || n_open > 0) {
        while (next < n && n_open < rows && (n_open == 0 || sd_random_int(rng, 0, 2) > 0)) {
            add_job(session, &jobs[next]);
            open[n_open++] = next++;
        }
        int n_feeds = 0, fed[64];
        for (int i = 0; i < n_open; i++) {
            int at = sd_random_int(rng, i, n_open - 1), swap = open[i]; /* shuffles as it goes */
            open[i] = open[at];
            open[at] = swap;
            job *j = &jobs[open[i]];
            if (is_over(j) || (n_open > 1 && sd_random_int(rng, 0, 4) == 0)) {
                continue;
            }
            fed[n_feeds] = open[i];
            feeds[n_feeds++] = next_feed(j, sd_random_int(rng, 1, 12));
        }
        if (n_feeds > 0) {
            sd_assert_ok(sd_session_forward(session, feeds, n_feeds, &err), &err);
        }
        for (int f = 0; f < n_feeds; f++) {
            job *j = &jobs[fed[f]];
            j->fed += feeds[f].n;
            assert_int_equal(sd_session_logits(session, f) != NULL, place(j) != NULL);
            if (place(j)) {
                assert_same_bits(j, sd_session_logits(session, f), "in a batch");
            }
        }
        for (int i = 0; i < n_open;) {
            bool leaves = is_over(&jobs[open[i]]) && sd_random_int(rng, 0, 1);
            if (leaves) {
                sd_session_remove(session, jobs[open[i]].row);
                open[i] = open[--n_open];
            }
            i += !leaves;
        }
    }
    assert_int_equal(sd_session_kv_bytes(session), 0);
    free(open);
    free(feeds);
    sd_session_free(session);
}

static sd_schedule *random_schedule(sd_schedule_options *o, int n_layers, sd_rng *rng)
{
    sd_schedule *schedule;
    sd_error err = {0};
    sd_random_budgets(o, n_layers, rng);
    sd_assert_ok(sd_schedule_create(&schedule, n_layers, 15, o, &err), &err);
    return schedule;
}

/* n jobs of one ranking, a few of them at full depth, run alone in one pass over the prompt: what is expected. */
static void make_jobs(const sd_model *model, job *jobs, int n, int longest_prompt, sd_rng *rng)
{
    sd_schedule_options o;
    sd_schedule_options_default(&o);
    sd_random_policy(&o, model->config.n_layers, rng);
    for (int i = 0; i < n; i++) {
        sd_schedule *schedule = i % 5 == 4 ? NULL : random_schedule(&o, model->config.n_layers, rng);
        jobs[i] = random_job(model, schedule, longest_prompt, rng);
        run_alone(model, &jobs[i], MAX_TOKENS);
    }
    sd_schedule_options_clear(&o);
}

static const struct {
    sd_tiny_options options;
    sd_model_options load; /* but for the threads */
} models[] = {
    {{.seed = 1}, {0}},
    {{.seed = 2, .post_norm = true, .embed = 10, .n_layers = 6}, {0}},
    {{.seed = 3, .n_layers = 7, .hidden = 20, .n_heads = 2, .ffn = 30, .dtype = SD_DTYPE_BF16}, {0}},
    {{.seed = 4, .activation = "gelu", .no_bias = true, .no_affine = true, .untied = true}, {0}},
    {{.seed = 5, .n_layers = 1, .no_final_norm = true, .activation = "gelu_new"}, {0}},
    /* every type of weights with both caches; odd sizes, and blocks that the inputs do not fill */
    {{.seed = 6, .hidden = 27, .ffn = 45}, {.weights = SD_WEIGHTS_F32, .kv = SD_KV_F16}},
    {{.seed = 7, .hidden = 27, .ffn = 45}, {.weights = SD_WEIGHTS_BF16, .kv = SD_KV_F32}},
    {{.seed = 8, .hidden = 40, .n_heads = 4, .ffn = 65}, {.weights = SD_WEIGHTS_Q8, .kv = SD_KV_F32}},
    {{.seed = 9, .hidden = 40, .n_heads = 4, .ffn = 65}, {.weights = SD_WEIGHTS_Q4, .kv = SD_KV_F32}},
    {{.seed = 10, .embed = 33}, {.weights = SD_WEIGHTS_Q4, .head = SD_WEIGHTS_F32, .kv = SD_KV_F16}},
    /* wide enough that products, rows and attention are spread over the threads, even for one token */
    {{.seed = 11, .n_layers = 3, .hidden = 96, .n_heads = 4, .ffn = 384, .vocab = 300}, {.weights = SD_WEIGHTS_BF16}},
    {{.seed = 12, .n_layers = 3, .hidden = 96, .n_heads = 4, .ffn = 384, .vocab = 300}, {.weights = SD_WEIGHTS_Q4}},
    {{.seed = 13, .n_layers = 3, .hidden = 96, .n_heads = 4, .ffn = 384, .vocab = 300}, {.weights = SD_WEIGHTS_Q8}},
    {{.seed = 14, .n_layers = 3, .hidden = 96, .n_heads = 4, .ffn = 384, .vocab = 300}, {0}},
};
enum { N_MODELS = sizeof models / sizeof *models, N_JOBS = 12 };

static sd_model *make_model(int m, int threads)
{
    sd_tiny_model tiny;
    sd_tiny_make(&tiny, &models[m].options);
    sd_model_options load = models[m].load;
    load.threads = threads;
    sd_model *model = sd_tiny_load(&tiny, &load);
    sd_tiny_clear(&tiny);
    return model;
}

static void a_row_does_not_depend_on_its_batch(void **state)
{
    (void)state;
    for (int m = 0; m < N_MODELS; m++) {
        sd_model *model = make_model(m, 1);
        sd_rng rng;
        sd_rng_seed(&rng, models[m].options.seed);
        job jobs[N_JOBS];
        make_jobs(model, jobs, N_JOBS, 24, &rng);
        check_together(model, jobs, N_JOBS, N_JOBS, &rng);
        check_together(model, jobs, N_JOBS, 5, &rng);
        check_together(model, jobs, N_JOBS, 1, &rng);
        for (int i = 0; i < N_JOBS; i++) {
            free_job(&jobs[i]);
        }
        sd_model_free(model);
    }
}

static void a_prompt_may_be_cut_anywhere(void **state)
{
    (void)state;
    for (int m = 0; m < N_MODELS; m++) {
        sd_model *model = make_model(m, 1);
        sd_rng rng;
        sd_rng_seed(&rng, 100 + models[m].options.seed);
        job jobs[4];
        make_jobs(model, jobs, 4, 24, &rng);
        check_alone(model, jobs, 4, 1, "prompt token by token");
        check_alone(model, jobs, 4, 3, "prompt in threes");
        check_alone(model, jobs, 4, 7, "prompt in sevens");
        for (int i = 0; i < 4; i++) {
            free_job(&jobs[i]);
        }
        sd_model_free(model);
    }
}

static void the_number_of_threads_changes_nothing(void **state)
{
    (void)state;
    const int threads[] = {2, 3, 5};
    for (int m = 0; m < N_MODELS; m++) {
        sd_model *model = make_model(m, 1);
        sd_rng rng;
        sd_rng_seed(&rng, 200 + models[m].options.seed);
        job jobs[4];
        make_jobs(model, jobs, 4, 24, &rng);
        sd_model_free(model);
        for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
            model = make_model(m, threads[i]);
            sd_model_info info;
            sd_model_get_info(model, &info);
            assert_int_equal(info.threads, threads[i]);
            check_alone(model, jobs, 4, MAX_TOKENS, "on more threads");
            check_together(model, jobs, 4, 4, &rng);
            sd_model_free(model);
        }
        for (int i = 0; i < 4; i++) {
            free_job(&jobs[i]);
        }
    }
}

static void all_layers_as_a_schedule_is_the_plain_forward(void **state)
{
    (void)state;
    for (int m = 0; m < N_MODELS; m++) {
        sd_model *model = make_model(m, 1);
        int n = model->config.n_layers, budgets[] = {n, n, n};
        const sd_schedule_options all[] = {
            {.full = true},
            {.max_layers = n, .prompt = n},
            {.min_layers = n, .horizon = 7, .prompt = SD_PROMPT_MAX},
            {.budgets = budgets, .n_budgets = 3, .prompt = SD_PROMPT_FULL},
        };
        sd_rng rng;
        sd_rng_seed(&rng, 300 + models[m].options.seed);
        job plain = random_job(model, NULL, 24, &rng);
        run_alone(model, &plain, MAX_TOKENS);
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
            sd_error err = {0};
            sd_assert_ok(sd_schedule_create(&plain.schedule, n, 15, &all[i], &err), &err);
            check_alone(model, &plain, 1, MAX_TOKENS, "all layers as a schedule");
            sd_schedule_free(plain.schedule);
        }
        plain.schedule = NULL;
        free_job(&plain);
        sd_model_free(model);
    }
}

/* ---- one model, several sessions at once: the model is only read ---- */

typedef struct thread_job {
    const sd_model *model;
    job job;
} thread_job;

static void *run_in_thread(void *argument)
{
    thread_job *t = argument;
    for (int i = 0; i < 5; i++) {
        run_alone(t->model, &t->job, 3);
    }
    return NULL;
}

static void sessions_of_several_threads_share_a_model(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 3; threads += 2) {
        sd_model *model = make_model(N_MODELS - 1, threads);
        sd_rng rng;
        sd_rng_seed(&rng, 400);
        job jobs[3];
        make_jobs(model, jobs, 3, 12, &rng);
        thread_job together[3];
        pthread_t id[3];
        for (int i = 0; i < 3; i++) {
            together[i] = (thread_job){model, without_logits(&jobs[i])};
            assert_int_equal(pthread_create(&id[i], NULL, run_in_thread, &together[i]), 0);
        }
        for (int i = 0; i < 3; i++) {
            assert_int_equal(pthread_join(id[i], NULL), 0);
            assert_same_jobs(&together[i].job, &jobs[i], "beside other threads");
            free(together[i].job.logits);
            free_job(&jobs[i]);
        }
        sd_model_free(model);
    }
}

int main(void)
{
    sd_skip_unless_level();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_does_not_depend_on_its_batch),
        cmocka_unit_test(a_prompt_may_be_cut_anywhere),
        cmocka_unit_test(the_number_of_threads_changes_nothing),
        cmocka_unit_test(all_layers_as_a_schedule_is_the_plain_forward),
        cmocka_unit_test(sessions_of_several_threads_share_a_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
