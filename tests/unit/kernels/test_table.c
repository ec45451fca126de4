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
        assert_true(t->gemm[SD_W_Q8] && t->gemm[SD_W_Q4] && t->pack_input[SD_W_Q8] && t->pack_input[SD_W_Q4]);
        assert_true(t->attention_f16 && t->to_f16 && t->argmax);
        assert_null(t->pack_input[SD_W_F32]);
    }
}

/* The rows of g->x in the form that the table multiplies; the caller frees g->packed_x with sd_free_aligned. */
static void pack_inputs(const sd_kernels *t, sd_gemm *g)
{
    const sd_wtype type = g->w->type;
    g->packed_x = NULL;
    if (!t->pack_input[type]) {
        return;
    }
    g->packed_stride = sd_input_bytes(type, g->w->k);
    assert_true(g->packed_stride > 0 && g->packed_stride % 64 == 0);
    char *packed = sd_malloc_aligned((size_t)g->rows, g->packed_stride);
    assert_non_null(packed);
    for (int r = 0; r < g->rows; r++) {
        t->pack_input[type](packed + (size_t)r * g->packed_stride, g->x + (size_t)r * g->x_stride, g->w->k);
    }
    g->packed_x = packed;
    g->x = NULL; /* not read */
}

static void test_gemm_by_hand(void **state)
{
    (void)state;
    const sd_kernels *t = selected();
    const float w[2][3] = {{1, 2, 3}, {-1, 0.5f, -2}}, x[2][4] = {{1, 1, 1, NAN}, {2, 0, -1, NAN}};
    /* half a step of each weight and each input: steps of 3/127 and 2/127, or of about 3/7 */
    const double off[SD_W_TYPES] = {[SD_W_Q8] = 0.1, [SD_W_Q4] = 0.7};
    const float bias[2] = {0.5f, 1}, residual[2][2] = {{10, 20}, {30, 40}};
    for (int type = 0; type < SD_W_TYPES; type++) {
        const size_t bytes = sd_matrix_bytes((sd_wtype)type, 2, 3);
        sd_matrix m = {.type = (sd_wtype)type, .n = 2, .k = 3, .data = sd_malloc_aligned(bytes, 1)};
        assert_non_null(m.data);
        memset(m.data, 0, bytes);
        sd_matrix_pack_rows(&m, 0, 2, w[0]);
        float y[2][2] = {{0}};
        sd_gemm g = {.w = &m, .x = x[0], .x_stride = 4, .y = y[0], .y_stride = 2, .rows = 2};
        pack_inputs(t, &g);
        t->gemm[type](&g, 0, 1);
        sd_assert_close(y[0], (const float[]){6, -2.5f, -1, 0}, 4, off[type], 0, "product");
        g.bias = bias;
        g.act = SD_ACT_RELU;
        t->gemm[type](&g, 0, 1);
        sd_assert_close(y[0], (const float[]){6.5f, 0, 0, 1}, 4, off[type], 0, "relu of product and bias");
        g.residual = residual[0];
        t->gemm[type](&g, 0, 1);
        sd_assert_close(y[0], (const float[]){16.5f, 20, 30, 41}, 4, off[type], 0, "and residual after relu");
        g.rows = 0;
        y[1][1] = 7;
        t->gemm[type](&g, 0, 1);
        assert_true(y[1][1] == 7); /* no rows, nothing written */
        sd_free_aligned((void *)(uintptr_t)g.packed_x);
        sd_free_aligned(m.data);
    }
}

/* Weights and inputs that every type holds exactly: integers, the largest of each block as large as the type's; so the
 * integer sums, the offsets and the scales must come out to the last bit. Blocks of 32 and one of 5 inputs. */
static void test_quantised_products_are_exact(void **state)
{
    (void)state;
    enum { K = 69, N = 70, ROWS = 6 };
    const sd_kernels *t = selected();
    for (int type = SD_W_Q8; type <= SD_W_Q4; type++) {
        const size_t bytes = sd_matrix_bytes((sd_wtype)type, N, K);
        const int most = type == SD_W_Q8 ? 127 : 7, low = type == SD_W_Q8 ? -127 : -8;
        sd_matrix m = {.type = (sd_wtype)type, .n = N, .k = K, .data = sd_malloc_aligned(bytes, 1)};
        float *w = sd_malloc(N * K, sizeof *w), x[ROWS][K], y[ROWS][N] = {{0}};
        assert_true(m.data && w);
        memset(m.data, 0, bytes);
        for (int o = 0; o < N; o++) {
            for (int i = 0; i < K; i++) { /* scale 2^(o % 3): the ends once a block */
                const int q = i % SD_BLOCK == o % 5 ? low : (o * 7 + i * 13) % (most - low + 1) + low;
                w[o * K + i] = (float)(q * (1 << o % 3));
            }
        }
        for (int r = 0; r < ROWS; r++) {
            for (int i = 0; i < K; i++) {
                x[r][i] = i % SD_BLOCK == r % 5 ? 127 : (float)((r * 31 + i * 17) % 255 - 127);
            }
        }
        sd_matrix_pack_rows(&m, 0, N, w);
        sd_gemm g = {.w = &m, .x = x[0], .x_stride = K, .y = y[0], .y_stride = N, .rows = ROWS};
        pack_inputs(t, &g);
        t->gemm[type](&g, 0, sd_matrix_panels(N));
        for (int r = 0; r < ROWS; r++) {
            for (int o = 0; o < N; o++) {
                int64_t want = 0;
                for (int i = 0; i < K; i++) {
                    want += (int64_t)w[o * K + i] * (int64_t)x[r][i];
                }
                assert_true((double)y[r][o] == (double)want);
            }
        }
        sd_free(w);
        sd_free_aligned((void *)(uintptr_t)g.packed_x);
        sd_free_aligned(m.data);
    }
}

/* The packed row as kernels.h describes it. */
static void test_packed_inputs_by_hand(void **state)
{
    (void)state;
    const sd_kernels *t = selected();
    float x[34] = {[0] = 127, [1] = -63.5f, [2] = 64.5f, [3] = 0.4f, [31] = -1, [32] = -2, [33] = 1};
    _Alignas(64) char packed[128];
    assert_int_equal(sd_input_bytes(SD_W_Q8, 34), 128);
    assert_int_equal(sd_input_bytes(SD_W_Q4, 8192), 256 * (32 + 4 + 4));
    assert_int_equal(sd_input_bytes(SD_W_BF16, 33), 128);
    assert_int_equal(sd_input_bytes(SD_W_F32, 33), 0);
    for (int type = SD_W_Q8; type <= SD_W_Q4; type++) {
        memset(packed, 0x55, sizeof packed);
        t->pack_input[type](packed, x, 34);
        const sd_q8_input in = sd_q8_input_at(packed, 34);
        const int8_t want[64] = {[0] = 127, [1] = -64, [2] = 64, [31] = -1, [32] = -127, [33] = 64};
        assert_memory_equal(in.q, want, sizeof want);
        assert_true(in.scale[0] == 1 && in.scale[1] == 2.0f / 127);
        assert_int_equal(in.sum[0], 127 - 64 + 64 - 1);
        assert_int_equal(in.sum[1], -127 + 64);
        assert_true((const char *)in.q == packed && (const char *)in.scale == packed + 64);
        assert_true((const char *)in.sum == packed + 64 + 8);

        const float tiny[3] = {SD_SMALLEST_INPUT / 2, 0, -SD_SMALLEST_INPUT / 4}, wrong[3] = {1, NAN, 2};
        t->pack_input[type](packed, tiny, 3);
        const sd_q8_input none = sd_q8_input_at(packed, 3);
        assert_true(none.scale[0] == 0 && none.sum[0] == 0 && none.q[0] == 0 && none.q[2] == 0);
        t->pack_input[type](packed, wrong, 3);
        assert_true(isnan(sd_q8_input_at(packed, 3).scale[0]));
    }
    if (t->pack_input[SD_W_BF16]) {
        t->pack_input[SD_W_BF16](packed, (const float[]){1, 0x1.01p0f, 0x1.03p0f}, 3);
        const uint16_t want[4] = {0x3F80, 0x3F80, 0x3F82, 0}; /* ties to even, and the partner of the last */
        assert_memory_equal(packed, want, sizeof want);
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
    pack_inputs(t, &g);
    const char *packed = g.packed_x;
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
        g.packed_x = packed ? packed + (size_t)first * g.packed_stride : NULL;
        g.y = got + first * N;
        t->gemm[type](&g, 0, sd_matrix_panels(N));
    }
    assert_memory_equal(got, want, ROWS * N * sizeof *got);
    sd_free(w);
    sd_free(x);
    sd_free(want);
    sd_free(got);
    sd_free_aligned((void *)(uintptr_t)packed);
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

    uint16_t hk[3][2], hv[3][2];
    t->to_f16(hk[0], k[0], 6);
    t->to_f16(hv[0], v[0], 6);
    assert_true(hv[0][0] == 0x4800 && hv[2][0] == 0xC800 && hk[0][0] == 0 && hk[1][0] == 0x398C);
    t->attention_f16(out, q, hk[0], hv[0], scores, 3, 2, 1.0f);
    sd_assert_close(out, (const float[]){0, 7}, 2, 1e-2, 0, "weights 1 : 2 : 5, rounded");
    t->attention_f16(out, q, hk[0], hv[0], scores, 2, 2, 0.0f);
    sd_assert_close(out, (const float[]){12, 4}, 2, 1e-5, 0, "equal weights of f16");
    t->attention_f16(out, q, hk[0], hv[0], scores, 1, 2, 1.0f);
    sd_assert_close(out, (const float[]){8, 0}, 2, 0, 0, "one position of f16");
}

int main(void)
{
    sd_skip_unless_level();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_get_from_threads), cmocka_unit_test(test_gemm_by_hand),
        cmocka_unit_test(test_quantised_products_are_exact), cmocka_unit_test(test_packed_inputs_by_hand),
        cmocka_unit_test(test_bits_do_not_depend_on_the_split), cmocka_unit_test(test_rows_by_hand),
        cmocka_unit_test(test_attention_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
