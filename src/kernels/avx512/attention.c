/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <stdbool.h>

#include "src/kernels/avx512/avx512.h"

enum { LANES = 16, GROUP = 4, CHUNK_VECTORS = 8 };

/* Elements of a cache, f32 or f16, at `at`; lanes outside m are zero and not read. */
SD_INLINE __m512 load_some(const void *cache, size_t at, __mmask16 m, const bool half)
{
    if (half) {
        return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(m, (const uint16_t *)cache + at));
    }
    return _mm512_maskz_loadu_ps(m, (const float *)cache + at);
}

SD_INLINE __m512 load_all(const void *cache, size_t at, const bool half)
{
    if (half) {
        return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)((const uint16_t *)cache + at)));
    }
    return _mm512_loadu_ps((const float *)cache + at);
}

/* The sums of four vectors, in the lanes of one. */
static __m128 sum_each(__m512 a, __m512 b, __m512 c, __m512 d)
{
    const __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b)); /* a b a b in each quarter */
    const __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    const __m512 all = _mm512_add_ps(_mm512_shuffle_ps(ab, cd, _MM_SHUFFLE(1, 0, 1, 0)),
                                     _mm512_shuffle_ps(ab, cd, _MM_SHUFFLE(3, 2, 3, 2)));
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(all), _mm512_extractf32x8_ps(all, 1));
    return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

/* scores[p] = scale * q . k[p]; returns the largest that is not NaN. Four positions at a time
 * share one reduction; past the end the last position is taken again and not stored. */
SD_INLINE float dot_all(float *scores, const float *q, const void *k, size_t n, size_t hd, float scale,
                        const bool half)
{
    __m128 max = _mm_set1_ps(-INFINITY);
    for (size_t p = 0; p < n; p += GROUP) {
        __m512 acc[GROUP];
        for (size_t j = 0; j < GROUP; j++) { /* front to back, as the processor fetches ahead */
            const size_t key = (p + j < n ? p + j : n - 1) * hd;
            size_t d = 0;
            acc[j] = _mm512_setzero_ps();
            for (; d + LANES <= hd; d += LANES) {
                acc[j] = _mm512_fmadd_ps(_mm512_loadu_ps(q + d), load_all(k, key + d, half), acc[j]);
            }
            if (d < hd) {
                const __mmask16 m = sd_lanes(hd - d);
                acc[j] = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(m, q + d), load_some(k, key + d, m, half), acc[j]);
            }
        }
        const __m128 dots = _mm_mul_ps(sum_each(acc[0], acc[1], acc[2], acc[3]), _mm_set1_ps(scale));
        _mm_mask_storeu_ps(scores + p, (__mmask8)sd_lanes(n - p < GROUP ? n - p : GROUP), dots);
        max = _mm_max_ps(dots, max);
    }
    max = _mm_max_ps(max, _mm_movehl_ps(max, max));
    return _mm_cvtss_f32(_mm_max_ss(max, _mm_movehdup_ps(max)));
}

/* scores[p] = e^(scores[p] - max); returns their sum. */
static float exp_all(float *scores, size_t n, float max)
{
    __m512 sum = _mm512_setzero_ps();
    for (size_t p = 0; p < n; p += LANES) {
        const __mmask16 m = sd_lanes(n - p);
        const __m512 e = sd_exp(_mm512_sub_ps(_mm512_maskz_loadu_ps(m, scores + p), _mm512_set1_ps(max)));
        _mm512_mask_storeu_ps(scores + p, m, e);
        sum = _mm512_mask_add_ps(sum, m, sum, e);
    }
    return _mm512_reduce_add_ps(sum);
}

/* out[d] = sum_p weights[p] * v[p][at + d] / total for `vectors` vectors of d, the last of which has the lanes `last`.
 */
SD_INLINE void weigh(const int vectors, float *out, const float *weights, float total, const void *v, size_t at,
                     size_t n, size_t hd, __mmask16 last, const bool half)
{
    __m512 acc[CHUNK_VECTORS];
    for (int j = 0; j < vectors; j++) {
        acc[j] = _mm512_setzero_ps();
    }
    for (size_t p = 0; p < n; p++, at += hd) {
        const __m512 w = _mm512_set1_ps(weights[p]);
        for (int j = 0; j < vectors - 1; j++) {
            acc[j] = _mm512_fmadd_ps(w, load_all(v, at + (size_t)j * LANES, half), acc[j]);
        }
        const __m512 end = load_some(v, at + (size_t)(vectors - 1) * LANES, last, half);
        acc[vectors - 1] = _mm512_fmadd_ps(w, end, acc[vectors - 1]);
    }
    const __m512 divisor = _mm512_set1_ps(total);
    for (int j = 0; j < vectors; j++) {
        _mm512_mask_storeu_ps(out + j * LANES, j == vectors - 1 ? last : 0xFFFFu, _mm512_div_ps(acc[j], divisor));
    }
}

SD_INLINE void attend(float *out, const float *q, const void *k, const void *v, float *scores, int n, int hd,
                      float scale, const bool half)
{
    const size_t count = (size_t)n, width = (size_t)hd;
    const float max = dot_all(scores, q, k, count, width, scale, half);
    const float total = exp_all(scores, count, max);
    for (size_t d = 0; d < width;) {
        const size_t left = width - d, needed = (left + LANES - 1) / LANES;
        const size_t vectors = needed < CHUNK_VECTORS ? needed : CHUNK_VECTORS;
        const __mmask16 last = sd_lanes(left - (vectors - 1) * LANES);
        switch (vectors) {
        case 1: weigh(1, out + d, scores, total, v, d, count, width, last, half); break;
        case 2: weigh(2, out + d, scores, total, v, d, count, width, last, half); break;
        case 3: weigh(3, out + d, scores, total, v, d, count, width, last, half); break;
        case 4: weigh(4, out + d, scores, total, v, d, count, width, last, half); break;
        case 5: weigh(5, out + d, scores, total, v, d, count, width, last, half); break;
        case 6: weigh(6, out + d, scores, total, v, d, count, width, last, half); break;
        case 7: weigh(7, out + d, scores, total, v, d, count, width, last, half); break;
        default: weigh(8, out + d, scores, total, v, d, count, width, last, half); break;
        }
        d += vectors * LANES;
    }
}

void sd_avx512_attention(float *out, const float *q, const float *k, const float *v, float *scores, int n, int hd,
                         float scale)
{
    attend(out, q, k, v, scores, n, hd, scale, false);
}

void sd_avx512_attention_f16(float *out, const float *q, const uint16_t *k, const uint16_t *v, float *scores, int n,
                             int hd, float scale)
{
    attend(out, q, k, v, scores, n, hd, scale, true);
}
