/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "src/kernels/avx2/avx2.h"

enum { LANES = 8, GROUP = 4, CHUNK_VECTORS = 8 };

/* Eight elements of a cache, f32 or f16, from `at`; of the last ones `left` are there, and no more are read. */
SD_INLINE __m256 load_some(const void *cache, size_t at, __m256i m, size_t left, const bool half)
{
    if (half && left >= LANES) {
        return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)((const uint16_t *)cache + at)));
    }
    if (half) {
        uint16_t some[LANES] = {0};
        memcpy(some, (const uint16_t *)cache + at, left * sizeof *some);
        return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)some));
    }
    return _mm256_maskload_ps((const float *)cache + at, m);
}

SD_INLINE __m256 load_all(const void *cache, size_t at, const bool half)
{
    if (half) {
        return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)((const uint16_t *)cache + at)));
    }
    return _mm256_loadu_ps((const float *)cache + at);
}

/* The sums of four vectors, in the lanes of one. */
static __m128 sum_each(__m256 a, __m256 b, __m256 c, __m256 d)
{
    const __m256 all = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    return _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1));
}

/* scores[p] = scale * q . k[p]; returns the largest that is not NaN. Four positions at a time share one reduction; past
 * the end the last position is taken again and not stored. */
SD_INLINE float dot_all(float *scores, const float *q, const void *k, size_t n, size_t hd, float scale,
                        const bool half)
{
    __m128 max = _mm_set1_ps(-INFINITY);
    for (size_t p = 0; p < n; p += GROUP) {
        size_t key[GROUP]; /* where it starts */
        __m256 acc[GROUP];
        for (size_t j = 0; j < GROUP; j++) {
            key[j] = (p + j < n ? p + j : n - 1) * hd;
            acc[j] = _mm256_setzero_ps();
        }
        for (size_t d = 0; d < hd; d += LANES) {
            const __m256i m = sd_lanes(hd - d);
            const __m256 qd = _mm256_maskload_ps(q + d, m);
            for (size_t j = 0; j < GROUP; j++) {
                acc[j] = _mm256_fmadd_ps(qd, load_some(k, key[j] + d, m, hd - d, half), acc[j]);
            }
        }
        const __m128 dots = _mm_mul_ps(sum_each(acc[0], acc[1], acc[2], acc[3]), _mm_set1_ps(scale));
        _mm_maskstore_ps(scores + p, _mm256_castsi256_si128(sd_lanes(n - p)), dots);
        max = _mm_max_ps(dots, max);
    }
    max = _mm_max_ps(max, _mm_movehl_ps(max, max));
    return _mm_cvtss_f32(_mm_max_ss(max, _mm_movehdup_ps(max)));
}

/* scores[p] = e^(scores[p] - max); returns their sum. */
static float exp_all(float *scores, size_t n, float max)
{
    __m256 sum = _mm256_setzero_ps();
    for (size_t p = 0; p < n; p += LANES) {
        const __m256i m = sd_lanes(n - p);
        const __m256 e = sd_exp(_mm256_sub_ps(_mm256_maskload_ps(scores + p, m), _mm256_set1_ps(max)));
        _mm256_maskstore_ps(scores + p, m, e);
        sum = _mm256_add_ps(sum, _mm256_and_ps(e, _mm256_castsi256_ps(m)));
    }
    return sd_sum(sum);
}

/* out[d] = sum_p weights[p] * v[p][at + d] / total for `vectors` vectors of d, the last of which has the lanes `last`
 * (`left` elements are left from the first vector on). */
SD_INLINE void weigh(const int vectors, float *out, const float *weights, float total, const void *v, size_t at,
                     size_t n, size_t hd, __m256i last, size_t left, const bool half)
{
    __m256 acc[CHUNK_VECTORS];
    for (int j = 0; j < vectors; j++) {
        acc[j] = _mm256_setzero_ps();
    }
    for (size_t p = 0; p < n; p++, at += hd) {
        const __m256 w = _mm256_set1_ps(weights[p]);
        for (int j = 0; j < vectors - 1; j++) {
            acc[j] = _mm256_fmadd_ps(w, load_all(v, at + (size_t)j * LANES, half), acc[j]);
        }
        const size_t before = (size_t)(vectors - 1) * LANES;
        acc[vectors - 1] = _mm256_fmadd_ps(w, load_some(v, at + before, last, left - before, half), acc[vectors - 1]);
    }
    const __m256 divisor = _mm256_set1_ps(total);
    for (int j = 0; j < vectors - 1; j++) {
        _mm256_storeu_ps(out + j * LANES, _mm256_div_ps(acc[j], divisor));
    }
    _mm256_maskstore_ps(out + (vectors - 1) * LANES, last, _mm256_div_ps(acc[vectors - 1], divisor));
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
        const __m256i last = sd_lanes(left - (vectors - 1) * LANES);
        switch (vectors) {
        case 1: weigh(1, out + d, scores, total, v, d, count, width, last, left, half); break;
        case 2: weigh(2, out + d, scores, total, v, d, count, width, last, left, half); break;
        case 3: weigh(3, out + d, scores, total, v, d, count, width, last, left, half); break;
        case 4: weigh(4, out + d, scores, total, v, d, count, width, last, left, half); break;
        case 5: weigh(5, out + d, scores, total, v, d, count, width, last, left, half); break;
        case 6: weigh(6, out + d, scores, total, v, d, count, width, last, left, half); break;
        case 7: weigh(7, out + d, scores, total, v, d, count, width, last, left, half); break;
        default: weigh(8, out + d, scores, total, v, d, count, width, last, left, half); break;
        }
        d += vectors * LANES;
    }
}

void sd_avx2_attention(float *out, const float *q, const float *k, const float *v, float *scores, int n, int hd,
                       float scale)
{
    attend(out, q, k, v, scores, n, hd, scale, false);
}

void sd_avx2_attention_f16(float *out, const float *q, const uint16_t *k, const uint16_t *v, float *scores, int n,
                           int hd, float scale)
{
    attend(out, q, k, v, scores, n, hd, scale, true);
}
