/* SPDX-License-Identifier: MIT */
#include "src/kernels/probe.h"

#include <immintrin.h>

enum { AHEAD = 4096, SUMS = 12, LANES = 8 }; /* sums: of 16 registers */

static uint64_t read_words(const void *data, size_t bytes)
{
    const char *from = data;
    __m256i sum[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256()};
    for (size_t at = 0; at < bytes; at += 2 * sizeof sum) {
        for (size_t j = 0; j < 8; j++) {
            if (j % 2 == 0) {
                _mm_prefetch(from + at + 32 * j + AHEAD, _MM_HINT_T0);
            }
            const __m256i words = _mm256_load_si256((const __m256i *)(const void *)(from + at + 32 * j));
            sum[j % 4] = _mm256_add_epi64(sum[j % 4], words);
        }
    }
    const __m256i all = _mm256_add_epi64(_mm256_add_epi64(sum[0], sum[1]), _mm256_add_epi64(sum[2], sum[3]));
    return (uint64_t)_mm256_extract_epi64(all, 0) + (uint64_t)_mm256_extract_epi64(all, 1) +
           (uint64_t)_mm256_extract_epi64(all, 2) + (uint64_t)_mm256_extract_epi64(all, 3);
}

static double peak_f32(void)
{
    __m256 sum[SUMS], a = _mm256_set1_ps(0.5f);
    const __m256 b = _mm256_set1_ps(1.0f);
    for (int j = 0; j < SUMS; j++) {
        sum[j] = _mm256_set1_ps((float)j);
    }
    for (int i = 0; i < SD_PROBE_ROUNDS; i++) {
        for (int j = 0; j < SUMS; j++) {
            sum[j] = _mm256_fmadd_ps(sum[j], a, b);
        }
        __asm__ volatile("" : "+x"(a)); /* nothing is known about the factor, so no round can be left out */
    }
    for (int j = 1; j < SUMS; j++) {
        sum[0] = _mm256_add_ps(sum[0], sum[j]);
    }
    return (double)_mm256_cvtss_f32(sum[0]);
}

void sd_probes_init_avx2(sd_probes *probes)
{
    probes->read = read_words;
    probes->peak[SD_PEAK_F32].run = peak_f32;
    probes->peak[SD_PEAK_F32].operations_a_round = 2.0 * SUMS * LANES;
}
