/* SPDX-License-Identifier: MIT
 *
 * All 65536 halves of both kinds, and the rounding between every two neighbours. */
#include <math.h>
#include <string.h>

#include "src/base/half.h"
#include "tests/support/support.h"

/* The value of a finite binary16 by its definition. */
static double f16_value(uint16_t h)
{
    const int exponent = (h >> 10) & 31, fraction = h & 1023;
    const double magnitude = exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, exponent - 25);
    return h & 0x8000 ? -magnitude : magnitude;
}

static void test_f16_every_value(void **state)
{
    (void)state;
    for (unsigned h = 0; h < 0x10000; h++) {
        const float x = sd_f16_to_f32((uint16_t)h);
        if ((h & 0x7C00) == 0x7C00 && (h & 0x3FF) != 0) {
            assert_true(isnan(x));
            assert_true(isnan(sd_f16_to_f32(sd_f32_to_f16(x))));
            assert_int_equal(sd_f32_to_f16(x) & 0x8000, h & 0x8000);
            continue;
        }
        if ((h & 0x7C00) == 0x7C00) {
            assert_true(x == (h & 0x8000 ? -INFINITY : INFINITY));
        } else {
            assert_true((double)x == f16_value((uint16_t)h));
        }
        assert_int_equal(sd_f32_to_f16(x), h); /* and back, the sign of zero included */
    }
}

/* Between neighbours a < b: below the middle gives a, above it b, the middle itself the even one. */
static void test_f16_rounding(void **state)
{
    (void)state;
    for (unsigned h = 0; h < 0x7C00; h++) { /* the last neighbour, 0x7C00, stands for 65536 */
        const double a = f16_value((uint16_t)h), b = h == 0x7BFF ? 65536.0 : f16_value((uint16_t)(h + 1));
        const float middle = (float)((a + b) / 2);
        assert_true((double)middle == (a + b) / 2);
        for (unsigned sign = 0; sign <= 0x8000; sign += 0x8000) {
            const float s = sign ? -1.0f : 1.0f;
            assert_int_equal(sd_f32_to_f16(s * middle), sign | (h & 1 ? h + 1 : h));
            assert_int_equal(sd_f32_to_f16(s * nextafterf(middle, 0)), sign | h);
            assert_int_equal(sd_f32_to_f16(s * nextafterf(middle, INFINITY)), sign | (h + 1));
        }
    }
    assert_int_equal(sd_f32_to_f16(3e38f), 0x7C00);
    assert_int_equal(sd_f32_to_f16(-INFINITY), 0xFC00);
    assert_int_equal(sd_f32_to_f16(0x1p-149f), 0);
    assert_int_equal(sd_f32_to_f16(-0x1p-149f), 0x8000);
}

static void test_bf16_every_value(void **state)
{
    (void)state;
    for (unsigned h = 0; h < 0x10000; h++) {
        const float x = sd_bf16_to_f32((uint16_t)h);
        assert_int_equal(sd_f32_bits(x), h << 16);
        if (isnan(x)) {
            assert_int_equal(sd_f32_to_bf16(x), h | 0x40); /* quiet, payload and sign kept */
        } else {
            assert_int_equal(sd_f32_to_bf16(x), h);
        }
    }
}

static void test_bf16_rounding(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7F80; h++) {
        for (uint32_t sign = 0; sign <= 0x8000; sign += 0x8000) {
            const uint32_t base = (sign | h) << 16;
            assert_int_equal(sd_f32_to_bf16(sd_bits_f32(base | 0x7FFF)), sign | h);
            assert_int_equal(sd_f32_to_bf16(sd_bits_f32(base | 0x8000)), sign | (h & 1 ? h + 1 : h));
            assert_int_equal(sd_f32_to_bf16(sd_bits_f32(base | 0x8001)), sign | (h + 1));
        }
    }
    assert_int_equal(sd_f32_to_bf16(3.4028235e38f), 0x7F80);        /* rounds to infinity */
    assert_true(isnan(sd_bf16_to_f32(sd_f32_to_bf16(sd_bits_f32(0x7F800001u))))); /* a NaN of low bits stays one */
    assert_true(isnan(sd_bf16_to_f32(sd_f32_to_bf16(sd_bits_f32(0xFFFFFFFFu)))));
}

static void test_arrays_at_any_address(void **state)
{
    (void)state;
    unsigned char bytes[2 * 9 + 3];
    for (size_t shift = 0; shift < 3; shift++) {
        for (size_t n = 0; n <= 9; n++) {
            float f16[10], bf16[10];
            for (size_t i = 0; i < n; i++) {
                const uint16_t h = (uint16_t)(0x3C00 + 17 * i);
                memcpy(bytes + shift + 2 * i, &h, 2);
            }
            f16[n] = bf16[n] = 99;
            sd_f16_to_f32_array(f16, bytes + shift, n);
            sd_bf16_to_f32_array(bf16, bytes + shift, n);
            for (size_t i = 0; i < n; i++) {
                assert_true(f16[i] == sd_f16_to_f32((uint16_t)(0x3C00 + 17 * i)));
                assert_true(bf16[i] == sd_bf16_to_f32((uint16_t)(0x3C00 + 17 * i)));
            }
            assert_true(f16[n] == 99 && bf16[n] == 99);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f16_every_value), cmocka_unit_test(test_f16_rounding),
        cmocka_unit_test(test_bf16_every_value), cmocka_unit_test(test_bf16_rounding),
        cmocka_unit_test(test_arrays_at_any_address),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
