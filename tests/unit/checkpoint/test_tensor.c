/* SPDX-License-Identifier: MIT
 *
 * Reading elements as f32, and what goes into messages. */
#include <math.h>

#include "src/base/half.h"
#include "src/base/utf8.h"
#include "tests/unit/checkpoint/builders.h"

static const float values[] = {0.0f, -0.0f, 1.0f, -2.5f, 65504.0f, 0x1p-14f, 0x1p-24f, 1024.5f, -0.15625f};
enum { N = sizeof values / sizeof *values };

/* data: one byte before the elements, so that they are aligned for nothing */
static void check(sd_dtype dtype, const unsigned char *data, double relative)
{
    sd_tensor t = {.dtype = dtype, .rank = 1, .shape = {N}, .n_elements = N, .data = data + 1};
    float got[N];
    sd_tensor_read_f32(&t, 0, N, got);
    sd_assert_close(got, values, N, 0, relative, sd_dtype_name(dtype));
    for (int first = 0; first <= N; first++) {
        for (int n = 0; first + n <= N; n++) {
            float part[N + 1];
            part[n] = 77.0f;
            sd_tensor_read_f32(&t, first, n, part);
            assert_memory_equal(part, got + first, (size_t)n * sizeof *part);
            assert_true(part[n] == 77.0f);
        }
    }
}

static void reads_every_float_dtype_unaligned(void **state)
{
    (void)state;
    unsigned char f32[1 + N * 4], f16[1 + N * 2], bf16[1 + N * 2], f64[1 + N * 8];
    for (int i = 0; i < N; i++) {
        uint16_t h = sd_f32_to_f16(values[i]), b = sd_f32_to_bf16(values[i]);
        double d = (double)values[i];
        memcpy(f32 + 1 + i * 4, &values[i], 4);
        memcpy(f16 + 1 + i * 2, &h, 2);
        memcpy(bf16 + 1 + i * 2, &b, 2);
        memcpy(f64 + 1 + i * 8, &d, 8);
    }
    check(SD_DTYPE_F32, f32, 0);
    check(SD_DTYPE_F16, f16, 0x1p-11); /* 1024.5 is half way between two of them */
    check(SD_DTYPE_F64, f64, 0);
    check(SD_DTYPE_BF16, bf16, 0x1p-8);
}

static void rounds_doubles_to_nearest(void **state)
{
    (void)state;
    const double x[] = {0.1, 1e300, -1e300, 0x1.000001p0, 0x1.0000018p0};
    float got[5];
    sd_tensor t = {.dtype = SD_DTYPE_F64, .rank = 1, .shape = {5}, .n_elements = 5, .data = x};
    sd_tensor_read_f32(&t, 0, 5, got);
    assert_true(got[0] == 0.1f);
    assert_true(isinf(got[1]) && got[1] > 0);
    assert_true(isinf(got[2]) && got[2] < 0);
    assert_true(got[3] == 1.0f); /* half way: to even */
    assert_true(got[4] == 0x1.000002p0f);
}

static void dtypes_have_names_and_sizes(void **state)
{
    (void)state;
    static const size_t sizes[SD_DTYPES] = {4, 2, 2, 8, 8, 4, 2, 1, 1, 1};
    for (int i = 0; i < SD_DTYPES; i++) {
        assert_int_equal(sd_dtype_size((sd_dtype)i), sizes[i]);
    }
    assert_string_equal(sd_dtype_name(SD_DTYPE_BF16), "BF16");
    assert_string_equal(sd_dtype_name(SD_DTYPES), "unknown");
    assert_int_equal(sd_dtype_size(SD_DTYPES), 0);
}

static void shows(const char *name, size_t len, const char *want)
{
    assert_string_equal(sd_show(name, len).text, want);
}

static void names_are_fit_for_a_message(void **state)
{
    (void)state;
    shows("model.decoder.layers.0.fc1.weight", 33, "model.decoder.layers.0.fc1.weight");
    shows("", 0, "");
    shows("a\nb\x1B[0m\x7F", 8, "a?b?[0m?");
    shows("a\0b", 3, "a?b");
    shows("\xC3\xA9 \xC3", 4, "\xC3\xA9 ?");
    shows("\xFF\xFE", 2, "??");
    for (size_t len = 70; len < 120; len++) { /* wherever the cut falls, no character is cut in two */
        for (size_t shift = 0; shift < 4; shift++) {
            char name[128] = "xxx";
            for (size_t i = shift; i + 4 <= sizeof name; i += 4) {
                memcpy(name + i, "\xF0\x9F\x98\x80", 4);
            }
            sd_shown shown = sd_show(name, len);
            assert_true(strlen(shown.text) < sizeof shown.text);
            assert_true(sd_utf8_valid(shown.text, strlen(shown.text)));
            assert_true(len <= 84 || strstr(shown.text, "...") != NULL);
        }
    }
}

static void products_of_shapes_are_checked(void **state)
{
    (void)state;
    int64_t n;
    assert_true(sd_shape_elements((int64_t[]){3, 4}, 2, &n) && n == 12);
    assert_true(sd_shape_elements((int64_t[]){0}, 0, &n) && n == 1);
    assert_true(sd_shape_elements((int64_t[]){5, 0}, 2, &n) && n == 0);
    assert_true(sd_shape_elements((int64_t[]){INT64_MAX}, 1, &n) && n == INT64_MAX);
    assert_false(sd_shape_elements((int64_t[]){INT64_MAX, 2}, 2, &n));
    assert_false(sd_shape_elements((int64_t[]){0, INT64_MAX, 2}, 3, &n));
    assert_false(sd_shape_elements((int64_t[]){INT64_MAX, 2, 0}, 3, &n));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_every_float_dtype_unaligned), cmocka_unit_test(rounds_doubles_to_nearest),
        cmocka_unit_test(dtypes_have_names_and_sizes),       cmocka_unit_test(names_are_fit_for_a_message),
        cmocka_unit_test(products_of_shapes_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
