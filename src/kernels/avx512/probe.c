/* SPDX-License-Identifier: MIT */
#include "src/kernels/probe.h"

#include <immintrin.h>

enum { SUMS = 16, LANES = 16 };

static double peak_f32(void)
{
    __m512 sum[SUMS], a = _mm512_set1_ps(0.5f);
    const __m512 b = _mm512_set1_ps(1.0f);
    for (int j = 0; j < SUMS; j++) {
        sum[j] = _mm512_set1_ps((float)j);
    }
    for (int i = 0; i < SD_PROBE_ROUNDS; i++) {
        for (int j = 0; j < SUMS; j++) {
            sum[j] = _mm512_fmadd_ps(sum[j], a, b);
        }
        __asm__ volatile("" : "+v"(a));
    }
    for (int j = 1; j < SUMS; j++) {
        sum[0] = _mm512_add_ps(sum[0], sum[j]);
    }
    return (double)_mm512_cvtss_f32(sum[0]);
}

void sd_probes_init_avx512(sd_probes *probes)
{
    probes->peak[SD_PEAK_F32].run = peak_f32;
    probes->peak[SD_PEAK_F32].operations_a_round = 2.0 * SUMS * LANES;
}
