/* SPDX-License-Identifier: MIT
 *
 * What the files of this level share. Include it only in files compiled for AVX-512 F, BW, DQ and VL. */
#ifndef SD_KERNELS_AVX512_H
#define SD_KERNELS_AVX512_H

#include <immintrin.h>

#include "src/kernels/kernels.h"

/* Loops over a row count known at compile time become straight code. */
#define SD_INLINE static inline __attribute__((always_inline))

void sd_avx512_gemm_f32(const sd_gemm *g, int first_panel, int last_panel);
void sd_avx512_gemm_bf16(const sd_gemm *g, int first_panel, int last_panel);
void sd_avx512_layernorm(float *y, const float *x, const float *gain, const float *bias, int n, float eps);
void sd_avx512_gelu(float *x, size_t n);
void sd_avx512_gelu_tanh(float *x, size_t n);
void sd_avx512_attention(float *out, const float *q, const float *k, const float *v, float *scores, int n, int hd,
                         float scale);
void sd_avx512_attention_f16(float *out, const float *q, const uint16_t *k, const uint16_t *v, float *scores, int n,
                             int hd, float scale);
int sd_avx512_argmax(const float *x, int n);

/* The lanes of a vector that starts with `left` elements to go; all of them when left >= 16. */
SD_INLINE __mmask16 sd_lanes(size_t left) { return (__mmask16)(left >= 16 ? 0xFFFFu : (1u << left) - 1u); }

/* e^x to about 1 ulp: x = n ln 2 + r, |r| <= ln 2 / 2, e^r by its Taylor series to r^7 (the rest is below 6e-9), scaled
 * by 2^n. Too small gives 0 through the denormals, too large infinity; NaN stays NaN. */
SD_INLINE __m512 sd_exp(__m512 x)
{
    x = _mm512_min_ps(_mm512_set1_ps(89.0f), _mm512_max_ps(_mm512_set1_ps(-105.0f), x)); /* a NaN is the 2nd operand */
    const __m512 n = _mm512_cvtepi32_ps(_mm512_cvtps_epi32(_mm512_mul_ps(x, _mm512_set1_ps(0x1.715476p+0f))));
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0x1.62e400p-1f), x); /* ln 2 in two parts, the first of 15 bits */
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0x1.7f7d1cp-20f), r);
    __m512 e = _mm512_set1_ps(1.0f / 5040);
    e = _mm512_fmadd_ps(e, r, _mm512_set1_ps(1.0f / 720));
    e = _mm512_fmadd_ps(e, r, _mm512_set1_ps(1.0f / 120));
    e = _mm512_fmadd_ps(e, r, _mm512_set1_ps(1.0f / 24));
    e = _mm512_fmadd_ps(e, r, _mm512_set1_ps(1.0f / 6));
    e = _mm512_fmadd_ps(e, r, _mm512_set1_ps(0.5f));
    e = _mm512_fmadd_ps(e, r, _mm512_set1_ps(1.0f));
    e = _mm512_fmadd_ps(e, r, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(e, n);
}

#endif
