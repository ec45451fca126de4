/* SPDX-License-Identifier: MIT
 *
 * Packed matrices: the layout that kernels.h promises, element by element. */
#include <limits.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/half.h"
#include "src/base/pool.h"
#include "src/base/rng.h"
#include "src/kernels/kernels.h"
#include "tests/support/support.h"

/* Where the header says that element (o, i) is, in elements of the type. */
static size_t place(sd_wtype type, size_t k, size_t o, size_t i)
{
    if (type == SD_W_F32) {
        return ((o / 64) * k + i) * 64 + o % 64;
    }
    return (((o / 64) * ((k + 1) / 2) + i / 2) * 64 + o % 64) * 2 + i % 2;
}

static sd_matrix new_matrix(sd_wtype type, int n, int k)
{
    const size_t bytes = sd_matrix_bytes(type, n, k);
    sd_matrix m = {.type = type, .n = n, .k = k, .data = sd_malloc_aligned(bytes, 1)};
    assert_non_null(m.data);
    memset(m.data, 0, bytes);
    return m;
}

/* [n, k], about -1 .. 1, with values that bf16 rounds up, down and to even; released with sd_free. */
static float *random_rows(int n, int k)
{
    sd_rng rng;
    sd_rng_seed(&rng, (uint64_t)n * 1000 + (uint64_t)k);
    float *x = sd_malloc((size_t)n * (size_t)k, sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < (size_t)n * (size_t)k; i++) {
        x[i] = (float)(2 * sd_rng_double(&rng) - 1);
    }
    return x;
}

static void assert_packed(const sd_matrix *m, const float *rows)
{
    const size_t n = (size_t)m->n, k = (size_t)m->k, width = m->type == SD_W_F32 ? 4 : 2;
    const size_t elements = sd_matrix_bytes(m->type, m->n, m->k) / width;
    unsigned char *seen = sd_calloc(elements, 1);
    assert_non_null(seen);
    for (size_t o = 0; o < n; o++) {
        for (size_t i = 0; i < k; i++) {
            const size_t at = place(m->type, k, o, i);
            assert_in_range(at, 0, elements - 1);
            assert_false(seen[at]);
            seen[at] = 1;
            if (m->type == SD_W_F32) {
                assert_memory_equal((const char *)m->data + 4 * at, &rows[o * k + i], 4);
            } else {
                const uint16_t want = sd_f32_to_bf16(rows[o * k + i]);
                assert_memory_equal((const char *)m->data + 2 * at, &want, 2);
            }
        }
    }
    for (size_t at = 0; at < elements; at++) { /* what no element fills is zero */
        for (size_t b = 0; b < width && !seen[at]; b++) {
            assert_int_equal(((const unsigned char *)m->data)[width * at + b], 0);
        }
    }
    sd_free(seen);
}

static const int sizes[][2] = {
    {1, 1}, {1, 2}, {2, 1}, {63, 17}, {64, 16}, {65, 15}, {67, 33}, {128, 64}, {130, 257}, {200, 31}};
enum { SIZES = sizeof sizes / sizeof *sizes };

static void test_layout(void **state)
{
    (void)state;
    for (int type = 0; type < SD_W_TYPES; type++) {
        for (size_t s = 0; s < SIZES; s++) {
            sd_matrix m = new_matrix((sd_wtype)type, sizes[s][0], sizes[s][1]);
            float *rows = random_rows(m.n, m.k);
            sd_matrix_pack_rows(&m, 0, m.n, rows);
            assert_packed(&m, rows);
            sd_free(rows);
            sd_free_aligned(m.data);
        }
    }
}

/* Pieces of 1, 2, 3 ... rows, the last piece first. */
static void test_pieces_in_any_order(void **state)
{
    (void)state;
    for (int type = 0; type < SD_W_TYPES; type++) {
        for (size_t s = 0; s < SIZES; s++) {
            sd_matrix m = new_matrix((sd_wtype)type, sizes[s][0], sizes[s][1]);
            float *rows = random_rows(m.n, m.k);
            for (int last = m.n, piece = 1; last > 0; last -= piece, piece++) {
                piece = piece < last ? piece : last;
                sd_matrix_pack_rows(&m, last - piece, piece, rows + (size_t)(last - piece) * (size_t)m.k);
            }
            assert_packed(&m, rows);
            sd_free(rows);
            sd_free_aligned(m.data);
        }
    }
}

typedef struct pack_job {
    sd_matrix *m;
    const float *rows;
} pack_job;

static void pack_one_panel(void *context, int task, int worker)
{
    (void)worker;
    const pack_job *job = context;
    const int first = task * SD_PANEL, left = job->m->n - first, rows = left < SD_PANEL ? left : SD_PANEL;
    sd_matrix_pack_rows(job->m, first, rows, job->rows + (size_t)first * (size_t)job->m->k);
}

static void test_panels_on_threads(void **state)
{
    (void)state;
    sd_pool *pool;
    sd_error err;
    sd_assert_ok(sd_pool_create(&pool, 4, &err), &err);
    for (int type = 0; type < SD_W_TYPES; type++) {
        sd_matrix m = new_matrix((sd_wtype)type, 1000, 33);
        float *rows = random_rows(m.n, m.k);
        sd_pool_run(pool, sd_matrix_panels(m.n), pack_one_panel, &(pack_job){&m, rows});
        assert_packed(&m, rows);
        sd_free(rows);
        sd_free_aligned(m.data);
    }
    sd_pool_free(pool);
}

static void test_unpack(void **state)
{
    (void)state;
    for (int type = 0; type < SD_W_TYPES; type++) {
        sd_matrix m = new_matrix((sd_wtype)type, 70, 37);
        float *rows = random_rows(m.n, m.k), row[38];
        sd_matrix_pack_rows(&m, 0, m.n, rows);
        for (int o = 0; o < m.n; o++) {
            row[37] = 12345;
            sd_matrix_unpack_row(&m, o, row);
            for (int i = 0; i < m.k; i++) {
                const float x = rows[o * m.k + i], want = type == SD_W_F32 ? x : sd_bf16_to_f32(sd_f32_to_bf16(x));
                assert_memory_equal(&row[i], &want, sizeof want);
            }
            assert_true(row[37] == 12345);
        }
        sd_free(rows);
        sd_free_aligned(m.data);
    }
}

static void test_bytes(void **state)
{
    (void)state;
    assert_int_equal(sd_matrix_bytes(SD_W_F32, 1, 1), 256);
    assert_int_equal(sd_matrix_bytes(SD_W_F32, 64, 3), 768);
    assert_int_equal(sd_matrix_bytes(SD_W_F32, 65, 3), 1536);
    assert_int_equal(sd_matrix_bytes(SD_W_BF16, 64, 4), 512);
    assert_int_equal(sd_matrix_bytes(SD_W_BF16, 64, 3), 512);
    assert_int_equal(sd_matrix_bytes(SD_W_BF16, 50272, 2048), (size_t)786 * 64 * 2048 * 2);
    assert_int_equal(sd_matrix_bytes(SD_W_F32, 0, 5), 0);
    if (sizeof(size_t) == 8) { /* the largest that ints can ask for just fits */
        assert_true(sd_matrix_bytes(SD_W_F32, INT_MAX, INT_MAX) == ((size_t)1 << 33) * INT_MAX);
    }
    assert_true(sd_matrix_bytes(SD_W_F32, -1, 5) == SIZE_MAX);
    assert_true(sd_matrix_bytes(SD_W_BF16, 5, INT_MIN) == SIZE_MAX);
}

int main(void)
{
    sd_skip_unless_level();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout), cmocka_unit_test(test_pieces_in_any_order),
        cmocka_unit_test(test_panels_on_threads), cmocka_unit_test(test_unpack), cmocka_unit_test(test_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
