/* SPDX-License-Identifier: MIT
 *
 * Packed matrices: the layout that kernels.h promises, element by element. */
#include <limits.h>
#include <math.h>
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

/* f32 and bf16: every element in its place, and zeros where none is. */
static void assert_elements(const sd_matrix *m, const float *rows)
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

/* The scale and the integer of element (o, i), i up to the end of its block, read where the header says. */
static void read_block(const sd_matrix *m, size_t o, size_t i, uint16_t *scale, int *q)
{
    const unsigned char *data = m->data;
    const size_t block = o / 64 * (((size_t)m->k + 31) / 32) + i / 32, lane = o % 64;
    if (m->type == SD_W_Q8) {
        data += block * (128 + 2048);
        *q = data[128 + (i % 32 / 4 * 64 + lane) * 4 + i % 4] - 128;
    } else {
        data += block * (128 + 1024);
        const int byte = data[128 + (i % 32 / 8 * 64 + lane) * 4 + i % 4];
        *q = (i % 8 < 4 ? byte & 15 : byte >> 4) - 8;
    }
    memcpy(scale, data + 2 * lane, sizeof *scale);
}

static int nearest(double x, int low, int high) { return (int)fmax(low, fmin(high, nearbyint(x))); }

static double squared_error(const float *x, size_t n, float scale)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        const double d = (double)x[i] - (double)scale * nearest((double)(scale > 0 ? x[i] / scale : 0), -8, 7);
        sum += d * d;
    }
    return sum;
}

/* One block of one output: n inputs that are there. */
static void assert_block(const sd_matrix *m, const float *x, size_t o, size_t first, size_t n)
{
    uint16_t half;
    float max = 0;
    double error = 0;
    int q;
    read_block(m, o, first, &half, &q);
    const float scale = sd_f16_to_f32(half);
    for (size_t i = 0; i < 32; i++) {
        uint16_t same;
        read_block(m, o, first + i, &same, &q);
        assert_int_equal(same, half);
        if (i >= n) { /* inputs past k have the value zero */
            assert_int_equal(q, 0);
            continue;
        }
        max = fabsf(x[i]) > max ? fabsf(x[i]) : max;
        const double d = fabs((double)x[i] - (double)scale * q);
        error += d * d;
        const bool at_end = m->type == SD_W_Q4 && (q == -8 || q == 7);
        assert_in_range(q + 128, m->type == SD_W_Q8 ? 1 : 120, m->type == SD_W_Q8 ? 255 : 135);
        assert_true(d <= 0.500001 * (double)scale || at_end);
        assert_true(d <= 1.5 * (double)scale);
    }
    if (m->type == SD_W_Q8) {
        assert_int_equal(half, sd_f32_to_f16(max / 127));
    } else { /* no worse than with the largest value at either end */
        assert_true(error <= squared_error(x, n, sd_f16_to_f32(sd_f32_to_f16(max / 7))) * 1.000001);
        assert_true(error <= squared_error(x, n, sd_f16_to_f32(sd_f32_to_f16(max / 8))) * 1.000001);
    }
}

static void assert_blocks(const sd_matrix *m, const float *rows)
{
    const size_t n = (size_t)m->n, k = (size_t)m->k;
    for (size_t o = 0; o < (n + 63) / 64 * 64; o++) {
        for (size_t first = 0; first < k; first += 32) {
            if (o < n) {
                assert_block(m, rows + o * k + first, o, first, k - first < 32 ? k - first : 32);
                continue;
            }
            uint16_t scale; /* outputs past n */
            int q;
            read_block(m, o, first, &scale, &q);
            assert_int_equal(scale, 0);
        }
    }
}

static void assert_packed(const sd_matrix *m, const float *rows)
{
    if (m->type == SD_W_Q8 || m->type == SD_W_Q4) {
        assert_blocks(m, rows);
    } else {
        assert_elements(m, rows);
    }
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

/* From bf16 in memory, at even and odd addresses, in pieces: the same panels as from the f32 of the same values. */
static void test_bf16_as_it_is(void **state)
{
    (void)state;
    for (size_t s = 0; s < SIZES; s++) {
        sd_matrix m = new_matrix(SD_W_BF16, sizes[s][0], sizes[s][1]), want = new_matrix(SD_W_BF16, m.n, m.k);
        const size_t elements = (size_t)m.n * (size_t)m.k, bytes = sd_matrix_bytes(SD_W_BF16, m.n, m.k);
        float *rows = random_rows(m.n, m.k);
        char *memory = sd_malloc(elements * sizeof(uint16_t) + 1, 1);
        assert_non_null(memory);
        sd_matrix_pack_rows(&want, 0, m.n, rows);
        for (size_t shift = 0; shift < 2; shift++) {
            for (size_t i = 0; i < elements; i++) {
                const uint16_t half = sd_f32_to_bf16(rows[i]);
                memcpy(memory + shift + i * sizeof half, &half, sizeof half);
            }
            memset(m.data, 0, bytes);
            for (int last = m.n, piece = 67; last > 0; last -= piece, piece -= 13) {
                piece = piece < 1 ? 1 : piece < last ? piece : last;
                sd_matrix_pack_rows_bf16(&m, last - piece, piece,
                                         memory + shift + (size_t)(last - piece) * (size_t)m.k * sizeof(uint16_t));
            }
            assert_memory_equal(m.data, want.data, bytes);
        }
        sd_free(rows);
        sd_free(memory);
        sd_free_aligned(m.data);
        sd_free_aligned(want.data);
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
                const float x = rows[o * m.k + i];
                float want = type == SD_W_F32 ? x : sd_bf16_to_f32(sd_f32_to_bf16(x));
                if (type == SD_W_Q8 || type == SD_W_Q4) {
                    uint16_t scale;
                    int q;
                    read_block(&m, (size_t)o, (size_t)i, &scale, &q);
                    want = sd_f16_to_f32(scale) * (float)q;
                }
                assert_true(row[i] == want);
            }
            assert_true(row[37] == 12345);
        }
        sd_free(rows);
        sd_free_aligned(m.data);
    }
}

/* A scale of zero makes zeros; a block whose scale would be beyond f16, or that holds what is no number, must not come
 * out as numbers. */
static void test_values_beyond_f16(void **state)
{
    (void)state;
    const float zero[33] = {0}, small[33] = {1e-9f, -1e-10f}, large[33] = {1, 3e38f}, none[33] = {1, NAN, 2};
    const float infinite[33] = {-INFINITY, 5};
    for (int type = SD_W_Q8; type <= SD_W_Q4; type++) {
        sd_matrix m = new_matrix((sd_wtype)type, 3, 33);
        const float *const rows[] = {zero, small, large, none, infinite};
        for (int i = 0; i < 5; i++) {
            float row[33];
            sd_matrix_pack_rows(&m, 1, 1, rows[i]);
            sd_matrix_unpack_row(&m, 1, row);
            assert_true(row[32] == 0);
            for (int c = 0; c < 2; c++) {
                assert_true(i < 2 ? row[c] == 0 : !isfinite(row[c]));
            }
        }
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
    assert_int_equal(sd_matrix_bytes(SD_W_Q8, 64, 32), 64 * 34);
    assert_int_equal(sd_matrix_bytes(SD_W_Q8, 65, 33), 4 * 64 * 34);
    assert_int_equal(sd_matrix_bytes(SD_W_Q4, 1, 1), 64 * 18);
    assert_int_equal(sd_matrix_bytes(SD_W_Q4, 8192, 2048), (size_t)128 * 64 * 64 * 18);
    if (sizeof(size_t) == 8) { /* the largest that ints can ask for just fits */
        assert_true(sd_matrix_bytes(SD_W_F32, INT_MAX, INT_MAX) == ((size_t)1 << 33) * INT_MAX);
    }
    assert_true(sd_matrix_bytes(SD_W_F32, -1, 5) == SIZE_MAX);
    assert_true(sd_matrix_bytes(SD_W_BF16, 5, INT_MIN) == SIZE_MAX);
    assert_true(sd_matrix_bytes(SD_W_Q8, INT_MIN, 5) == SIZE_MAX && sd_matrix_bytes(SD_W_Q4, 5, -1) == SIZE_MAX);
}

int main(void)
{
    sd_skip_unless_level();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout), cmocka_unit_test(test_pieces_in_any_order),
        cmocka_unit_test(test_panels_on_threads), cmocka_unit_test(test_unpack), cmocka_unit_test(test_bf16_as_it_is),
        cmocka_unit_test(test_values_beyond_f16), cmocka_unit_test(test_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
