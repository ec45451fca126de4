/* SPDX-License-Identifier: MIT
 *
 * Kernels over one row: normalisation, activations, the largest element. */
#include <math.h>

#include "src/kernels/avx2/avx2.h"
#include "src/kernels/erf.h"

enum { LANES = 8 };

static __m256d low_half(__m256 x) { return _mm256_cvtps_pd(_mm256_castps256_ps128(x)); }
static __m256d high_half(__m256 x) { return _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1)); }

static __m256 join(__m256d low, __m256d high)
{
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm256_cvtpd_ps(low)), _mm256_cvtpd_ps(high), 1);
}

/* In double: a row whose mean is large against its spread loses nothing, and next to a product it costs nothing. */
void sd_avx2_layernorm(float *y, const float *x, const float *gain, const float *bias, int n, float eps)
{
    const size_t count = (size_t)n;
    __m256d low = _mm256_setzero_pd(), high = low;
    for (size_t i = 0; i < count; i += LANES) {
        const __m256 v = _mm256_maskload_ps(x + i, sd_lanes(count - i));
        low = _mm256_add_pd(low, low_half(v));
        high = _mm256_add_pd(high, high_half(v));
    }
    const double mean = sd_sum_pd(_mm256_add_pd(low, high)) / n;
    const __m256d center = _mm256_set1_pd(mean);
    low = high = _mm256_setzero_pd();
    for (size_t i = 0; i < count; i += LANES) {
        const __m256i m = sd_lanes(count - i);
        const __m256 v = _mm256_maskload_ps(x + i, m);
        const __m256d low_lanes = _mm256_castsi256_pd(_mm256_cvtepi32_epi64(_mm256_castsi256_si128(m)));
        const __m256d high_lanes = _mm256_castsi256_pd(_mm256_cvtepi32_epi64(_mm256_extracti128_si256(m, 1)));
        const __m256d a = _mm256_and_pd(_mm256_sub_pd(low_half(v), center), low_lanes);
        const __m256d b = _mm256_and_pd(_mm256_sub_pd(high_half(v), center), high_lanes);
        low = _mm256_fmadd_pd(a, a, low);
        high = _mm256_fmadd_pd(b, b, high);
    }
    const double variance = sd_sum_pd(_mm256_add_pd(low, high)) / n;
    const __m256d scale = _mm256_set1_pd(1.0 / sqrt(variance + (double)eps));
    for (size_t i = 0; i < count; i += LANES) {
        const __m256i m = sd_lanes(count - i);
        const __m256 v = _mm256_maskload_ps(x + i, m);
        __m256 out = join(_mm256_mul_pd(_mm256_sub_pd(low_half(v), center), scale),
                          _mm256_mul_pd(_mm256_sub_pd(high_half(v), center), scale));
        if (gain) {
            out = _mm256_mul_ps(out, _mm256_maskload_ps(gain + i, m));
        }
        if (bias) {
            out = _mm256_add_ps(out, _mm256_maskload_ps(bias + i, m));
        }
        _mm256_maskstore_ps(y + i, m, out);
    }
}

void sd_avx2_gelu(float *x, size_t n)
{
    const __m256 one = _mm256_set1_ps(1.0f), zero = _mm256_setzero_ps(), sign = _mm256_set1_ps(-0.0f);
    for (size_t i = 0; i < n; i += LANES) {
        const __m256i m = sd_lanes(n - i);
        const __m256 v = _mm256_maskload_ps(x + i, m), a = _mm256_andnot_ps(sign, v);
        const __m256 u = _mm256_div_ps(one, _mm256_fmadd_ps(a, _mm256_set1_ps(SD_ERF_P), one));
        __m256 tail = _mm256_set1_ps(sd_erf_tail[SD_ERF_TERMS - 1]);
        for (int j = SD_ERF_TERMS - 2; j >= 0; j--) {
            tail = _mm256_fmadd_ps(tail, u, _mm256_set1_ps(sd_erf_tail[j]));
        }
        const __m256 density = sd_exp(_mm256_mul_ps(_mm256_mul_ps(v, v), _mm256_set1_ps(-0.5f)));
        tail = _mm256_mul_ps(_mm256_mul_ps(tail, u), density);
        const __m256 positive = _mm256_cmp_ps(v, zero, _CMP_GT_OQ);
        _mm256_maskstore_ps(x + i, m, _mm256_mul_ps(v, _mm256_blendv_ps(tail, _mm256_sub_ps(one, tail), positive)));
    }
}

/* x/2 (1 + tanh u) = x / (1 + e^-2u) */
void sd_avx2_gelu_tanh(float *x, size_t n)
{
    const __m256 one = _mm256_set1_ps(1.0f);
    const __m256 a = _mm256_set1_ps(SD_GELU_TANH_1), b = _mm256_set1_ps(SD_GELU_TANH_3);
    for (size_t i = 0; i < n; i += LANES) {
        const __m256i m = sd_lanes(n - i);
        const __m256 v = _mm256_maskload_ps(x + i, m);
        const __m256 minus_2u = _mm256_mul_ps(v, _mm256_fmadd_ps(_mm256_mul_ps(v, v), b, a));
        _mm256_maskstore_ps(x + i, m, _mm256_div_ps(v, _mm256_add_ps(one, sd_exp(minus_2u))));
    }
}

/* First the largest value, then the first place that holds it. A NaN never replaces the maximum, and where there is
 * nothing but NaN no place equals it. */
int sd_avx2_argmax(const float *x, int n)
{
    const size_t count = (size_t)n;
    const __m256 lowest = _mm256_set1_ps(-INFINITY);
    __m256 max = lowest;
    for (size_t i = 0; i < count; i += LANES) {
        const __m256i m = sd_lanes(count - i);
        const __m256 v = _mm256_blendv_ps(lowest, _mm256_maskload_ps(x + i, m), _mm256_castsi256_ps(m));
        max = _mm256_max_ps(v, max);
    }
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(max), _mm256_extractf128_ps(max, 1));
    four = _mm_max_ps(four, _mm_movehl_ps(four, four));
    const __m256 best = _mm256_set1_ps(_mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four))));
    for (size_t i = 0; i < count; i += LANES) {
        const __m256i m = sd_lanes(count - i);
        const __m256 equal = _mm256_cmp_ps(_mm256_maskload_ps(x + i, m), best, _CMP_EQ_OQ);
        const int hit = _mm256_movemask_ps(_mm256_and_ps(equal, _mm256_castsi256_ps(m)));
        if (hit) {
            return (int)i + __builtin_ctz((unsigned)hit);
        }
    }
    return 0;
}
