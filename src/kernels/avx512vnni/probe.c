/* SPDX-License-Identifier: MIT */
#include "src/kernels/probe.h"

#include <immintrin.h>

enum { SUMS = 16, PRODUCTS = 64 };

static double peak_int8(void)
{
    __m512i sum[SUMS], a = _mm512_set1_epi8(3);
    const __m512i b = _mm512_set1_epi8(-2);
    for (int j = 0; j < SUMS; j++) {
        sum[j] = _mm512_set1_epi32(j);
    }
    for (int i = 0; i < SD_PROBE_ROUNDS; i++) {
        for (int j = 0; j < SUMS; j++) {
            sum[j] = _mm512_dpbusd_epi32(sum[j], a, b);
        }
        __asm__ volatile("" : "+v"(a));
    }
    for (int j = 1; j < SUMS; j++) {
        sum[0] = _mm512_xor_si512(sum[0], sum[j]);
    }
    return (double)(_mm512_cvtsi512_si32(sum[0]) & 0xFFFF);
}

void sd_probes_init_avx512vnni(sd_probes *probes)
{
    probes->peak[SD_PEAK_INT8].run = peak_int8;
    probes->peak[SD_PEAK_INT8].operations_a_round = 2.0 * SUMS * PRODUCTS;
}
