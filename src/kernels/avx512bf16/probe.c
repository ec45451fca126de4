/* SPDX-License-Identifier: MIT */
#include "src/kernels/probe.h"

#include <immintrin.h>

enum { SUMS = 16, PRODUCTS = 32 };

static double peak_bf16(void)
{
    __m512 sum[SUMS];
    __m512bh a = _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.5f), _mm512_set1_ps(0.5f));
    const __m512bh b = _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.25f), _mm512_set1_ps(-0.25f));
    for (int j = 0; j < SUMS; j++) {
        sum[j] = _mm512_set1_ps((float)j);
    }
    for (int i = 0; i < SD_PROBE_ROUNDS; i++) {
        for (int j = 0; j < SUMS; j++) {
            sum[j] = _mm512_dpbf16_ps(sum[j], a, b);
        }
        __asm__ volatile("" : "+v"(a));
    }
    for (int j = 1; j < SUMS; j++) {
        sum[0] = _mm512_add_ps(sum[0], sum[j]);
    }
    const double result = (double)_mm512_cvtss_f32(sum[0]);
    return result < 0 ? -result : result;
}

void sd_probes_init_avx512bf16(sd_probes *probes)
{
    probes->peak[SD_PEAK_BF16].run = peak_bf16;
    probes->peak[SD_PEAK_BF16].operations_a_round = 2.0 * SUMS * PRODUCTS;
}
