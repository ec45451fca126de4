/* SPDX-License-Identifier: MIT
 *
 * What the files of this level share. Include it only in files compiled for AVX2 and FMA. */
#ifndef SD_KERNELS_AVX2_H
#define SD_KERNELS_AVX2_H

#include <immintrin.h>

#include "src/kernels/kernels.h"

/* Loops over a row count known at compile time become straight code. */
#define SD_INLINE static inline __attribute__((always_inline))

void sd_avx2_gemm_f32(const sd_gemm *g, int first_panel, int last_panel);
void sd_avx2_gemm_bf16(const sd_gemm *g, int first_panel, int last_panel);
void sd_avx2_layernorm(float *y, const float *x, const float *gain, const float *bias, int n, float eps);
void sd_avx2_gelu(float *x, size_t n);
void sd_avx2_gelu_tanh(float *x, size_t n);
void sd_avx2_attention(float *out, const float *q, const float *k, const float *v, float *scores, int n, int hd,
                       float scale);
void sd_avx2_gemm_q8(const sd_gemm *g, int first_panel, int last_panel);
void sd_avx2_gemm_q4(const sd_gemm *g, int first_panel, int last_panel);
void sd_avx2_pack_input_q8(void *dst, const float *x, int k);
void sd_avx2_quantise_q8(void *panel, int lane, int rows, const float *src, int k);
void sd_avx2_quantise_q4(void *panel, int lane, int rows, const float *src, int k);
void sd_avx2_to_f16(uint16_t *dst, const float *src, size_t n);
void sd_avx2_attention_f16(float *out, const float *q, const uint16_t *k, const uint16_t *v, float *scores, int n,
                           int hd, float scale);
int sd_avx2_argmax(const float *x, int n);

/* The lanes of a vector that starts with `left` elements to go, as all-ones words; all of them when left >= 8. */
SD_INLINE __m256i sd_lanes(size_t left)
{
    static const int32_t ones_then_zeros[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
    return _mm256_loadu_si256((const __m256i *)(const void *)(ones_then_zeros + 8 - (left < 8 ? left : 8)));
}

SD_INLINE float sd_sum(__m256 x)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

SD_INLINE double sd_sum_pd(__m256d x)
{
    const __m128d s = _mm_add_pd(_mm256_castpd256_pd128(x), _mm256_extractf128_pd(x, 1));
    return _mm_cvtsd_f64(_mm_add_sd(s, _mm_unpackhi_pd(s, s)));
}

/* 2^n for -126 <= n <= 127 */
SD_INLINE __m256 sd_power_of_2(__m256i n)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}

/* e^x to about 1 ulp: x = n ln 2 + r, |r| <= ln 2 / 2, e^r by its Taylor series to r^7 (the rest is below 6e-9), scaled
 * by 2^n. Too small gives 0 through the denormals, too large infinity; NaN stays NaN. */
SD_INLINE __m256 sd_exp(__m256 x)
{
    x = _mm256_min_ps(_mm256_set1_ps(89.0f), _mm256_max_ps(_mm256_set1_ps(-105.0f), x)); /* a NaN is the 2nd operand */
    const __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(0x1.715476p+0f)),
                                     _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0x1.62e400p-1f), x); /* ln 2 in two parts, the first of 15 bits */
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0x1.7f7d1cp-20f), r);
    __m256 e = _mm256_set1_ps(1.0f / 5040);
    e = _mm256_fmadd_ps(e, r, _mm256_set1_ps(1.0f / 720));
    e = _mm256_fmadd_ps(e, r, _mm256_set1_ps(1.0f / 120));
    e = _mm256_fmadd_ps(e, r, _mm256_set1_ps(1.0f / 24));
    e = _mm256_fmadd_ps(e, r, _mm256_set1_ps(1.0f / 6));
    e = _mm256_fmadd_ps(e, r, _mm256_set1_ps(0.5f));
    e = _mm256_fmadd_ps(e, r, _mm256_set1_ps(1.0f));
    e = _mm256_fmadd_ps(e, r, _mm256_set1_ps(1.0f));
    /* In two steps, because 2^n alone may lie outside what an exponent holds where e^x does not. */
    const __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1);
    return _mm256_mul_ps(_mm256_mul_ps(e, sd_power_of_2(half)), sd_power_of_2(_mm256_sub_epi32(whole, half)));
}

#endif
