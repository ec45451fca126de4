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
        __m256 acc[GROUP];
        for (size_t j = 0; j < GROUP; j++) { /* front to back, as the processor fetches ahead */
            const size_t key = (p + j < n ? p + j : n - 1) * hd;
            size_t d = 0;
            acc[j] = _mm256_setzero_ps();
            for (; d + LANES <= hd; d += LANES) {
                acc[j] = _mm256_fmadd_ps(_mm256_loadu_ps(q + d), load_all(k, key + d, half), acc[j]);
            }
            if (d < hd) {
                const __m256i m = sd_lanes(hd - d);
                const __m256 last = load_some(k, key + d, m, hd - d, half);
                acc[j] = _mm256_fmadd_ps(_mm256_maskload_ps(q + d, m), last, acc[j]);
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

/* out[d] += sum_p weights[p] * v[p][at + d] over n positions, for `vectors` vectors of d, of which `left` elements are
 * there. */
SD_INLINE void weigh(const int vectors, float *out, const float *weights, const void *v, size_t at, size_t n, size_t hd,
                     size_t left, const bool half)
{
    const size_t before = (size_t)(vectors - 1) * LANES;
    const __m256i last = sd_lanes(left - before);
    __m256 acc[CHUNK_VECTORS];
    for (int j = 0; j < vectors - 1; j++) {
        acc[j] = _mm256_loadu_ps(out + j * LANES);
    }
    acc[vectors - 1] = _mm256_maskload_ps(out + before, last);
    for (size_t p = 0; p < n; p++, at += hd) {
        const __m256 w = _mm256_set1_ps(weights[p]);
        for (int j = 0; j < vectors - 1; j++) {
            acc[j] = _mm256_fmadd_ps(w, load_all(v, at + (size_t)j * LANES, half), acc[j]);
        }
        acc[vectors - 1] = _mm256_fmadd_ps(w, load_some(v, at + before, last, left - before, half), acc[vectors - 1]);
    }
    for (int j = 0; j < vectors - 1; j++) {
        _mm256_storeu_ps(out + j * LANES, acc[j]);
    }
    _mm256_maskstore_ps(out + before, last, acc[vectors - 1]);
}

SD_INLINE void weigh_chunk(size_t vectors, float *out, const float *weights, const void *v, size_t at, size_t n,
                           size_t hd, size_t left, const bool half)
{
    switch (vectors) {
    case 1: weigh(1, out, weights, v, at, n, hd, left, half); break;
    case 2: weigh(2, out, weights, v, at, n, hd, left, half); break;
    case 3: weigh(3, out, weights, v, at, n, hd, left, half); break;
    case 4: weigh(4, out, weights, v, at, n, hd, left, half); break;
    case 5: weigh(5, out, weights, v, at, n, hd, left, half); break;
    case 6: weigh(6, out, weights, v, at, n, hd, left, half); break;
    case 7: weigh(7, out, weights, v, at, n, hd, left, half); break;
    default: weigh(8, out, weights, v, at, n, hd, left, half); break;
    }
}

/* Heads that one set of registers does not hold are taken in even chunks, over a few positions at a time, so that
 * memory is still read front to back; in between the sums wait in `out`, which loses nothing. */
SD_INLINE void weigh_all(float *out, const float *weights, const void *v, size_t n, size_t hd, const bool half)
{
    const size_t needed = (hd + LANES - 1) / LANES, chunks = (needed + CHUNK_VECTORS - 1) / CHUNK_VECTORS;
    const size_t each = (needed + chunks - 1) / chunks;
    const size_t step = chunks == 1 ? n : half ? 16 : 4; /* measured */
    memset(out, 0, hd * sizeof *out);
    for (size_t p = 0; p < n; p += step) {
        const size_t some = n - p < step ? n - p : step;
        for (size_t d = 0; d < hd; d += each * LANES) {
            const size_t left = hd - d, vectors = (left + LANES - 1) / LANES;
            weigh_chunk(vectors < each ? vectors : each, out + d, weights + p, v, p * hd + d, some, hd, left, half);
        }
    }
}

SD_INLINE void attend(float *out, const float *q, const void *k, const void *v, float *scores, int n, int hd,
                      float scale, const bool half)
{
    const size_t count = (size_t)n, width = (size_t)hd;
    const float max = dot_all(scores, q, k, count, width, scale, half);
    const __m256 total = _mm256_set1_ps(exp_all(scores, count, max));
    weigh_all(out, scores, v, count, width, half);
    for (size_t d = 0; d < width; d += LANES) {
        const __m256i m = sd_lanes(width - d);
        _mm256_maskstore_ps(out + d, m, _mm256_div_ps(_mm256_maskload_ps(out + d, m), total));
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
