/* SPDX-License-Identifier: MIT
 *
 * Kernels over one row: normalisation, activations, the largest element. */
#include <math.h>

#include "src/kernels/avx512/avx512.h"
#include "src/kernels/erf.h"

enum { LANES = 16 };

static __m512d low_half(__m512 x) { return _mm512_cvtps_pd(_mm512_castps512_ps256(x)); }
static __m512d high_half(__m512 x) { return _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1)); }

static __m512 join(__m512d low, __m512d high)
{
    return _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(low)), _mm512_cvtpd_ps(high), 1);
}

/* In double: a row whose mean is large against its spread loses nothing, and next to a product it costs nothing. */
void sd_avx512_layernorm(float *y, const float *x, const float *gain, const float *bias, int n, float eps)
{
    const size_t count = (size_t)n;
    __m512d low = _mm512_setzero_pd(), high = low;
    for (size_t i = 0; i < count; i += LANES) {
        const __m512 v = _mm512_maskz_loadu_ps(sd_lanes(count - i), x + i);
        low = _mm512_add_pd(low, low_half(v));
        high = _mm512_add_pd(high, high_half(v));
    }
    const double mean = _mm512_reduce_add_pd(_mm512_add_pd(low, high)) / n;
    const __m512d center = _mm512_set1_pd(mean);
    low = high = _mm512_setzero_pd();
    for (size_t i = 0; i < count; i += LANES) {
        const __mmask16 m = sd_lanes(count - i);
        const __m512 v = _mm512_maskz_loadu_ps(m, x + i);
        const __m512d a = _mm512_maskz_sub_pd((__mmask8)m, low_half(v), center);
        const __m512d b = _mm512_maskz_sub_pd((__mmask8)(m >> 8), high_half(v), center);
        low = _mm512_fmadd_pd(a, a, low);
        high = _mm512_fmadd_pd(b, b, high);
    }
    const double variance = _mm512_reduce_add_pd(_mm512_add_pd(low, high)) / n;
    const __m512d scale = _mm512_set1_pd(1.0 / sqrt(variance + (double)eps));
    for (size_t i = 0; i < count; i += LANES) {
        const __mmask16 m = sd_lanes(count - i);
        const __m512 v = _mm512_maskz_loadu_ps(m, x + i);
        __m512 out = join(_mm512_mul_pd(_mm512_sub_pd(low_half(v), center), scale),
                          _mm512_mul_pd(_mm512_sub_pd(high_half(v), center), scale));
        if (gain) {
            out = _mm512_mul_ps(out, _mm512_maskz_loadu_ps(m, gain + i));
        }
        if (bias) {
            out = _mm512_add_ps(out, _mm512_maskz_loadu_ps(m, bias + i));
        }
        _mm512_mask_storeu_ps(y + i, m, out);
    }
}

void sd_avx512_gelu(float *x, size_t n)
{
    const __m512 one = _mm512_set1_ps(1.0f), zero = _mm512_setzero_ps();
    for (size_t i = 0; i < n; i += LANES) {
        const __mmask16 m = sd_lanes(n - i);
        const __m512 v = _mm512_maskz_loadu_ps(m, x + i), a = _mm512_abs_ps(v);
        const __m512 u = _mm512_div_ps(one, _mm512_fmadd_ps(a, _mm512_set1_ps(SD_ERF_P), one));
        __m512 tail = _mm512_set1_ps(sd_erf_tail[SD_ERF_TERMS - 1]);
        for (int j = SD_ERF_TERMS - 2; j >= 0; j--) {
            tail = _mm512_fmadd_ps(tail, u, _mm512_set1_ps(sd_erf_tail[j]));
        }
        const __m512 density = sd_exp(_mm512_mul_ps(_mm512_mul_ps(v, v), _mm512_set1_ps(-0.5f)));
        tail = _mm512_mul_ps(_mm512_mul_ps(tail, u), density);
        const __mmask16 positive = _mm512_cmp_ps_mask(v, zero, _CMP_GT_OQ);
        _mm512_mask_storeu_ps(x + i, m, _mm512_mul_ps(v, _mm512_mask_sub_ps(tail, positive, one, tail)));
    }
}

/* x/2 (1 + tanh u) = x / (1 + e^-2u) */
void sd_avx512_gelu_tanh(float *x, size_t n)
{
    const __m512 one = _mm512_set1_ps(1.0f);
    const __m512 a = _mm512_set1_ps(SD_GELU_TANH_1), b = _mm512_set1_ps(SD_GELU_TANH_3);
    for (size_t i = 0; i < n; i += LANES) {
        const __mmask16 m = sd_lanes(n - i);
        const __m512 v = _mm512_maskz_loadu_ps(m, x + i);
        const __m512 minus_2u = _mm512_mul_ps(v, _mm512_fmadd_ps(_mm512_mul_ps(v, v), b, a));
        _mm512_mask_storeu_ps(x + i, m, _mm512_div_ps(v, _mm512_add_ps(one, sd_exp(minus_2u))));
    }
}

/* First the largest value, then the first place that holds it. A NaN never replaces the maximum, and where there is
 * nothing but NaN no place equals it. */
int sd_avx512_argmax(const float *x, int n)
{
    const size_t count = (size_t)n;
    const __m512 lowest = _mm512_set1_ps(-INFINITY);
    __m512 max = lowest;
    for (size_t i = 0; i < count; i += LANES) {
        max = _mm512_max_ps(_mm512_mask_loadu_ps(lowest, sd_lanes(count - i), x + i), max);
    }
    const __m512 best = _mm512_set1_ps(_mm512_reduce_max_ps(max));
    for (size_t i = 0; i < count; i += LANES) {
        const __mmask16 m = sd_lanes(count - i);
        const __mmask16 hit = _mm512_mask_cmp_ps_mask(m, _mm512_maskz_loadu_ps(m, x + i), best, _CMP_EQ_OQ);
        if (hit) {
            return (int)i + __builtin_ctz(hit);
        }
    }
    return 0;
}
