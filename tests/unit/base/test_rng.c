/* SPDX-License-Identifier: MIT
 *
 * The generators against published first outputs, the distributions against what they promise; FNV-1a likewise. */
#include "src/base/hash.h"
#include "src/base/rng.h"
#include "tests/support/support.h"

static void test_published_outputs(void **state)
{
    (void)state;
    uint64_t x = 1234567; /* splitmix64 */
    static const uint64_t split[] = {UINT64_C(6457827717110365317), UINT64_C(3203168211198807973),
                                     UINT64_C(9817491932198370423), UINT64_C(4593380528125082431)};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(sd_rng_splitmix(&x), split[i]);
    }
    sd_rng rng = {{1, 2, 3, 4}}; /* xoshiro256** */
    static const uint64_t xoshiro[] = {11520, 0, 1509978240, UINT64_C(1215971899390074240)};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(sd_rng_u64(&rng), xoshiro[i]);
    }
}

static void test_seeds(void **state)
{
    (void)state;
    sd_rng a, b, c;
    sd_rng_seed(&a, 1);
    sd_rng_seed(&b, 1);
    sd_rng_seed(&c, 0); /* must not be the state of zeros, from which nothing comes */
    int equal = 0;
    for (int i = 0; i < 1000; i++) {
        const uint64_t x = sd_rng_u64(&a);
        assert_int_equal(x, sd_rng_u64(&b));
        equal += x == sd_rng_u64(&c);
    }
    assert_int_equal(equal, 0);
}

static void test_uniform(void **state)
{
    (void)state;
    enum { DRAWS = 100000, BINS = 10 };
    sd_rng rng;
    sd_rng_seed(&rng, 5);
    int doubles[BINS] = {0}, below[BINS] = {0};
    for (int i = 0; i < DRAWS; i++) {
        const double u = sd_rng_double(&rng);
        assert_true(u >= 0 && u < 1);
        doubles[(int)(u * BINS)]++;
        const uint64_t n = sd_rng_below(&rng, BINS);
        assert_in_range(n, 0, BINS - 1);
        below[n]++;
    }
    for (int i = 0; i < BINS; i++) { /* 10000 expected, standard deviation 95 */
        assert_in_range(doubles[i], 9500, 10500);
        assert_in_range(below[i], 9500, 10500);
    }
    assert_int_equal(sd_rng_below(&rng, 1), 0);
    assert_in_range(sd_rng_below(&rng, UINT64_MAX), 0, UINT64_MAX - 1);
}

static void test_fnv(void **state)
{
    (void)state;
    assert_int_equal(sd_hash(SD_HASH_START, "", 0), UINT64_C(0xCBF29CE484222325));
    assert_int_equal(sd_hash(SD_HASH_START, "a", 1), UINT64_C(0xAF63DC4C8601EC8C));
    assert_int_equal(sd_hash(SD_HASH_START, "foobar", 6), UINT64_C(0x85944171F73967E8));
    assert_int_equal(sd_hash(sd_hash(SD_HASH_START, "foo", 3), "bar", 3), UINT64_C(0x85944171F73967E8));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_outputs), cmocka_unit_test(test_seeds), cmocka_unit_test(test_uniform),
        cmocka_unit_test(test_fnv),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
