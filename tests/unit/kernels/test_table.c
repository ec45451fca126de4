/* SPDX-License-Identifier: MIT
 *
 * The tables, and each entry of the level in use on a case that can be checked by hand. The exhaustive comparison is
 * tests/kernels. */
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/pool.h"
#include "src/kernels/kernels.h"
#include "tests/support/support.h"

static const sd_kernels *selected(void)
{
    sd_cpu_level_id level;
    sd_error err;
    sd_assert_ok(sd_cpu_select(&level, &err), &err);
    const sd_kernels *t = sd_kernels_get(level);
    assert_string_equal(t->name, sd_cpu_level_name(level));
    return t;
}

static void *get_all(void *out)
{
    const sd_kernels **tables = out;
    for (int l = 0; l <= (int)sd_cpu_detect(); l++) {
        tables[l] = sd_kernels_get((sd_cpu_level_id)l);
    }
    return NULL;
}

/* Run first: the tables are built while several threads ask for them. */
static void test_get_from_threads(void **state)
{
    (void)state;
    enum { THREADS = 8 };
    pthread_t threads[THREADS];
    const sd_kernels *tables[THREADS][SD_CPU_LEVELS] = {0};
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, get_all, tables[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_memory_equal(tables[i], tables[0], sizeof tables[0]);
    }
    for (int l = 0; l <= (int)sd_cpu_detect(); l++) {
        const sd_kernels *t = tables[0][l];
        assert_string_equal(t->name, sd_cpu_level_name((sd_cpu_level_id)l));
        assert_true(t->gemm[SD_W_F32] && t->gemm[SD_W_BF16] && t->layernorm && t->gelu && t->gelu_tanh && t->attention);
        assert_non_null(t->argmax);
    }
}

static void test_gemm_by_hand(void **state)
{
    (void)state;
    const sd_kernels *t = selected();
    const float w[2][3] = {{1, 2, 3}, {-1, 0.5f, -2}}, x[2][4] = {{1, 1, 1, NAN}, {2, 0, -1, NAN}};
    const float bias[2] = {0.5f, 1}, residual[2][2] = {{10, 20}, {30, 40}};
    for (int type = 0; type < SD_W_TYPES; type++) {
        const size_t bytes = sd_matrix_bytes((sd_wtype)type, 2, 3);
        sd_matrix m = {.type = (sd_wtype)type, .n = 2, .k = 3, .data = sd_malloc_aligned(bytes, 1)};
        assert_non_null(m.data);
        memset(m.data, 0, bytes);
        sd_matrix_pack_rows(&m, 0, 2, w[0]);
        float y[2][2] = {{0}};
        sd_gemm g = {.w = &m, .x = x[0], .x_stride = 4, .y = y[0], .y_stride = 2, .rows = 2};
        t->gemm[type](&g, 0, 1);
        sd_assert_close(y[0], (const float[]){6, -2.5f, -1, 0}, 4, 0, 0, "product");
        g.bias = bias;
        g.act = SD_ACT_RELU;
        t->gemm[type](&g, 0, 1);
        sd_assert_close(y[0], (const float[]){6.5f, 0, 0, 1}, 4, 0, 0, "relu of product and bias");
        g.residual = residual[0];
        t->gemm[type](&g, 0, 1);
        sd_assert_close(y[0], (const float[]){16.5f, 20, 30, 41}, 4, 0, 0, "and residual after relu");
        g.rows = 0;
        t->gemm[type](&g, 0, 1);
        sd_assert_close(y[0], (const float[]){16.5f, 20, 30, 41}, 4, 0, 0, "no rows, nothing written");
        sd_free_aligned(m.data);
    }
}

typedef struct job {
    const sd_kernels *t;
    const sd_gemm *g;
    int tasks;
} job;

static void run_panels(void *context, int task, int worker)
{
    (void)worker;
    const job *j = context;
    const int panels = sd_matrix_panels(j->g->w->n);
    j->t->gemm[j->g->w->type](j->g, panels * task / j->tasks, panels * (task + 1) / j->tasks);
}

/* The same bits for 1 .. 4 threads, and for the rows in one call or in chunks. */
static void check_splits(const sd_kernels *t, sd_wtype type)
{
    enum { N = 70 * 7, K = 1031, ROWS = 19 };
    const size_t bytes = sd_matrix_bytes(type, N, K);
    sd_matrix m = {.type = type, .n = N, .k = K, .data = sd_malloc_aligned(bytes, 1)};
    float *w = sd_malloc(N * K, sizeof *w), *x = sd_malloc(ROWS * K, sizeof *x);
    float *want = sd_calloc(ROWS * N, sizeof *want), *got = sd_calloc(ROWS * N, sizeof *got);
    assert_true(m.data && w && x && want && got);
    memset(m.data, 0, bytes);
    for (int i = 0; i < N * K; i++) {
        w[i] = sinf((float)i);
    }
    for (int i = 0; i < ROWS * K; i++) {
        x[i] = cosf((float)i);
    }
    sd_matrix_pack_rows(&m, 0, N, w);
    sd_gemm g = {.w = &m, .x = x, .x_stride = K, .y = want, .y_stride = N, .rows = ROWS};
    t->gemm[type](&g, 0, sd_matrix_panels(N));
    g.y = got;
    for (int threads = 1; threads <= 4; threads++) {
        sd_pool *pool;
        sd_error err;
        sd_assert_ok(sd_pool_create(&pool, threads, &err), &err);
        memset(got, 0, ROWS * N * sizeof *got);
        sd_pool_run(pool, threads, run_panels, &(job){t, &g, threads});
        assert_memory_equal(got, want, ROWS * N * sizeof *got);
        sd_pool_free(pool);
    }
    memset(got, 0, ROWS * N * sizeof *got);
    for (int first = 0, chunk = 1; first < ROWS; first += chunk, chunk++) {
        chunk = chunk < ROWS - first ? chunk : ROWS - first;
        g.rows = chunk;
        g.x = x + first * K;
        g.y = got + first * N;
        t->gemm[type](&g, 0, sd_matrix_panels(N));
    }
    assert_memory_equal(got, want, ROWS * N * sizeof *got);
    sd_free(w);
    sd_free(x);
    sd_free(want);
    sd_free(got);
    sd_free_aligned(m.data);
}

static void test_bits_do_not_depend_on_the_split(void **state)
{
    (void)state;
    for (int type = 0; type < SD_W_TYPES; type++) {
        check_splits(selected(), (sd_wtype)type);
    }
}

static void test_rows_by_hand(void **state)
{
    (void)state;
    const sd_kernels *t = selected();
    float x[4] = {1, 3, 1, 3}, y[4];
    t->layernorm(y, x, NULL, NULL, 4, 0.0f);
    sd_assert_close(y, (const float[]){-1, 1, -1, 1}, 4, 0, 0, "layernorm");
    t->layernorm(x, x, (const float[]){2, 2, 3, 3}, (const float[]){1, 1, 0, 0}, 4, 0.0f);
    sd_assert_close(x, (const float[]){-1, 3, -3, 3}, 4, 0, 0, "layernorm with gain and bias, in place");

    /* from tables of the normal distribution: x Phi(x) */
    float v[3] = {-1, 0, 2};
    t->gelu(v, 3);
    sd_assert_close(v, (const float[]){-0.158655254f, 0, 1.954499736f}, 3, 3e-7, 0, "gelu");
    float u[3] = {-1, 0, 2};
    t->gelu_tanh(u, 3);
    sd_assert_close(u, (const float[]){-0.158808009f, 0, 1.954597694f}, 3, 3e-7, 0, "gelu_tanh");

    assert_int_equal(t->argmax((const float[]){1, 5, NAN, 5, -INFINITY}, 5), 1);
    assert_int_equal(t->argmax((const float[]){NAN, -INFINITY}, 2), 1);
    assert_int_equal(t->argmax((const float[]){NAN, NAN}, 2), 0);
}

static void test_attention_by_hand(void **state)
{
    (void)state;
    const sd_kernels *t = selected();
    /* Scores ln 1, ln 2, ln 5 at scale 1: weights 1/8, 2/8, 5/8. */
    const float q[2] = {1, 0}, k[3][2] = {{0, 7}, {0.693147181f, 7}, {1.609437912f, 7}};
    const float v[3][2] = {{8, 0}, {16, 8}, {-8, 8}};
    float out[2], scores[3];
    t->attention(out, q, k[0], v[0], scores, 3, 2, 1.0f);
    sd_assert_close(out, (const float[]){0, 7}, 2, 1e-5, 0, "weights 1 : 2 : 5");
    t->attention(out, q, k[0], v[0], scores, 2, 2, 0.0f);
    sd_assert_close(out, (const float[]){12, 4}, 2, 1e-5, 0, "equal weights");
    t->attention(out, q, k[0], v[0], scores, 1, 2, 1.0f);
    sd_assert_close(out, (const float[]){8, 0}, 2, 0, 0, "one position");
}

int main(void)
{
    sd_skip_unless_level();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_get_from_threads), cmocka_unit_test(test_gemm_by_hand),
        cmocka_unit_test(test_bits_do_not_depend_on_the_split), cmocka_unit_test(test_rows_by_hand),
        cmocka_unit_test(test_attention_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
