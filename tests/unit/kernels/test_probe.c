/* SPDX-License-Identifier: MIT
 *
 * Probes give numbers that a machine can have, for any spans and any number of threads. */
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/cpu.h"
#include "src/kernels/probe.h"
#include "tests/support/support.h"

static void reading_gives_a_rate(void **state)
{
    (void)state;
    const size_t bytes = (5u << 20) + 256; /* chunks that are full and one that is not */
    char *data = sd_malloc_aligned(bytes, 1);
    assert_non_null(data);
    memset(data, 1, bytes);
    const sd_span spans[] = {{data, bytes}, {data, 0}, {data, 100}, {data + 64, 511}};
    for (int threads = 1; threads <= 3; threads++) {
        sd_pool *pool;
        sd_error err = {0};
        sd_assert_ok(sd_pool_create(&pool, threads, &err), &err);
        const double rate = sd_probe_read(pool, spans, 4);
        assert_true(rate > 1e-3 && rate < 1e5);
        assert_true(sd_probe_read(pool, spans, 0) == 0);
        sd_pool_free(pool);
    }
    sd_free_aligned(data);
}

/* f32 comes with AVX2; the narrower types are faster where there is a probe for them. */
static void peaks_are_there_or_zero(void **state)
{
    (void)state;
    sd_pool *pool;
    sd_error err = {0};
    sd_assert_ok(sd_pool_create(&pool, 1, &err), &err);
    const double f32 = sd_probe_peak(pool, SD_PEAK_F32);
    assert_true((f32 > 0) == (sd_cpu_detect() >= SD_CPU_AVX2));
    for (int peak = SD_PEAK_F32; peak < SD_PEAKS; peak++) {
        const double gops = sd_probe_peak(pool, (sd_peak)peak);
        assert_true(gops == 0 || (gops > 0.1 && gops < 1e6));
        assert_true(strlen(sd_peak_name((sd_peak)peak)) > 0);
    }
    sd_pool_free(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reading_gives_a_rate),
        cmocka_unit_test(peaks_are_there_or_zero),
    };
    sd_skip_unless_level();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
