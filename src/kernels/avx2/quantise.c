/* SPDX-License-Identifier: MIT
 *
 * From weights to blocks, eight outputs side by side: each lane does what plain C does, in the same order and the same
 * precision, so that the bytes are the same. The levels above use it too; a wider version was not tried. */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "src/kernels/avx2/avx2.h"
#include "src/kernels/ref/ref.h"

enum { LANES = 8, TILES = SD_BLOCK / LANES };

/* A block of eight outputs. */
typedef struct tall {
    __m256 x[SD_BLOCK]; /* one input each */
    __m256 max;         /* |x|, NaN where one is */
} tall;

SD_INLINE void transpose_8(__m256 r[LANES])
{
    __m256 t[LANES], u[LANES];
    for (int i = 0; i < LANES; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < LANES; i += 4) {
        u[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        u[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xEE);
        u[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        u[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xEE);
    }
    for (int i = 0; i < LANES / 2; i++) {
        r[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
        r[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
    }
}

/* The inputs of a block that are not there are zeros, which change neither the largest value nor an error. */
SD_INLINE void load_tall(tall *b, const float *src, size_t stride, int n)
{
    float whole[LANES][SD_BLOCK];
    if (n < SD_BLOCK) {
        memset(whole, 0, sizeof whole);
        for (size_t r = 0; r < LANES; r++) {
            memcpy(whole[r], src + r * stride, (size_t)n * sizeof *src);
        }
        src = whole[0];
        stride = SD_BLOCK;
    }
    const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7FFFFFFF));
    __m256 max = _mm256_setzero_ps(), none = max;
    for (size_t i = 0; i < TILES; i++) {
        __m256 *x = b->x + i * LANES;
        for (size_t r = 0; r < LANES; r++) {
            x[r] = _mm256_loadu_ps(src + r * stride + i * LANES);
        }
        transpose_8(x);
        for (size_t r = 0; r < LANES; r++) {
            max = _mm256_max_ps(max, _mm256_and_ps(x[r], magnitude));
            none = _mm256_or_ps(none, _mm256_cmp_ps(x[r], x[r], _CMP_UNORD_Q));
        }
    }
    b->max = _mm256_blendv_ps(max, _mm256_set1_ps(NAN), none);
}

SD_INLINE __m128i to_half(__m256 x) { return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT); }

/* Lanes whose scale is 0 or NaN are cleared by `positive`. */
SD_INLINE __m256 quantum(__m256 x, __m256 scale, __m256 positive, __m256 low, __m256 high)
{
    __m256 q = _mm256_round_ps(_mm256_div_ps(x, scale), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    q = _mm256_max_ps(_mm256_and_ps(q, positive), low); /* of a NaN and a number these give the second */
    return _mm256_min_ps(q, high);
}

SD_INLINE __m256 is_positive(__m256 x) { return _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_GT_OQ); }

static void block_q8(sd_q8_block *to, int lane, const tall *b)
{
    const __m128i half = to_half(_mm256_div_ps(b->max, _mm256_set1_ps(127)));
    const __m256 scale = _mm256_cvtph_ps(half), positive = is_positive(scale);
    const __m256 low = _mm256_set1_ps(-127), high = _mm256_set1_ps(127);
    _mm_storeu_si128((__m128i *)(void *)(to->scale + lane), half);
    for (int i = 0; i < SD_BLOCK; i += 4) {
        __m256i word = _mm256_setzero_si256();
        for (int c = 3; c >= 0; c--) {
            const __m256i q = _mm256_cvtps_epi32(quantum(b->x[i + c], scale, positive, low, high));
            word = _mm256_or_si256(_mm256_slli_epi32(word, 8), _mm256_add_epi32(q, _mm256_set1_epi32(128)));
        }
        _mm256_storeu_si256((__m256i *)(void *)to->q[i / 4][lane], word);
    }
}

/* Squared errors of the lower and the upper four outputs. */
typedef struct errors {
    __m256d low, high;
} errors;

SD_INLINE __m256d low_half(__m256 x) { return _mm256_cvtps_pd(_mm256_castps256_ps128(x)); }
SD_INLINE __m256d high_half(__m256 x) { return _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1)); }

SD_INLINE __m256d add_square(__m256d sum, __m256d d) { return _mm256_add_pd(sum, _mm256_mul_pd(d, d)); }

/* scale * q is exact in f32: 11 bits times 4. */
SD_INLINE errors q4_errors(const tall *b, const errors wide[SD_BLOCK], __m256 scale)
{
    const __m256 positive = is_positive(scale), low = _mm256_set1_ps(-8), high = _mm256_set1_ps(7);
    errors sum = {_mm256_setzero_pd(), _mm256_setzero_pd()};
    for (int i = 0; i < SD_BLOCK; i++) {
        const __m256 w = _mm256_mul_ps(scale, quantum(b->x[i], scale, positive, low, high));
        sum.low = add_square(sum.low, _mm256_sub_pd(wide[i].low, low_half(w)));
        sum.high = add_square(sum.high, _mm256_sub_pd(wide[i].high, high_half(w)));
    }
    return sum;
}

/* The lanes of a smaller error, as those of an f32 vector. */
SD_INLINE __m256 smaller(errors a, errors b)
{
    const __m256 low = _mm256_castpd_ps(_mm256_cmp_pd(a.low, b.low, _CMP_LT_OQ));
    const __m256 high = _mm256_castpd_ps(_mm256_cmp_pd(a.high, b.high, _CMP_LT_OQ));
    const __m256 both = _mm256_shuffle_ps(low, high, 0x88); /* 0 1 4 5 2 3 6 7 */
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(both), 0xD8));
}

static __m256 q4_scale(const tall *b)
{
    errors wide[SD_BLOCK], least = {_mm256_set1_pd(INFINITY), _mm256_set1_pd(INFINITY)};
    __m256 best = _mm256_set1_ps(NAN);
    for (int i = 0; i < SD_BLOCK; i++) {
        wide[i] = (errors){low_half(b->x[i]), high_half(b->x[i])};
    }
    for (int i = 0; i < SD_Q4_DIVISORS; i++) {
        const __m256 scale = _mm256_cvtph_ps(to_half(_mm256_div_ps(b->max, _mm256_set1_ps(sd_q4_divisor[i]))));
        const errors error = q4_errors(b, wide, scale);
        best = _mm256_blendv_ps(best, scale, smaller(error, least));
        least.low = _mm256_min_pd(error.low, least.low); /* of a NaN and a number this gives the second */
        least.high = _mm256_min_pd(error.high, least.high);
    }
    return best;
}

static void block_q4(sd_q4_block *to, int lane, const tall *b)
{
    const __m256 scale = q4_scale(b), positive = is_positive(scale);
    const __m256 low = _mm256_set1_ps(-8), high = _mm256_set1_ps(7);
    _mm_storeu_si128((__m128i *)(void *)(to->scale + lane), to_half(scale));
    for (int i = 0; i < SD_BLOCK; i += 8) {
        __m256i word = _mm256_setzero_si256();
        for (int c = 3; c >= 0; c--) {
            const __m256i near = _mm256_cvtps_epi32(quantum(b->x[i + c], scale, positive, low, high));
            const __m256i far = _mm256_cvtps_epi32(quantum(b->x[i + 4 + c], scale, positive, low, high));
            const __m256i byte = _mm256_add_epi32(_mm256_add_epi32(near, _mm256_slli_epi32(far, 4)),
                                                  _mm256_set1_epi32(8 + 16 * 8));
            word = _mm256_or_si256(_mm256_slli_epi32(word, 8), byte);
        }
        _mm256_storeu_si256((__m256i *)(void *)to->q[i / 8][lane], word);
    }
}

static int inputs_of(int k, int block) { return k - block * SD_BLOCK < SD_BLOCK ? k - block * SD_BLOCK : SD_BLOCK; }

/* Eight rows at a time, and returns how many it did; what is left over is plain C's. */
SD_INLINE int quantise_tall(const bool nibbles, void *panel, int lane, int rows, const float *src, int k)
{
    const size_t stride = (size_t)k;
    int r = 0;
    for (; r + LANES <= rows; r += LANES, src += LANES * stride) {
        for (int b = 0; b < sd_blocks(k); b++) {
            tall block;
            load_tall(&block, src + b * SD_BLOCK, stride, inputs_of(k, b));
            if (nibbles) {
                block_q4((sd_q4_block *)panel + b, lane + r, &block);
            } else {
                block_q8((sd_q8_block *)panel + b, lane + r, &block);
            }
        }
    }
    return r;
}

void sd_avx2_quantise_q8(void *panel, int lane, int rows, const float *src, int k)
{
    const int done = quantise_tall(false, panel, lane, rows, src, k);
    sd_ref_quantise_q8(panel, lane + done, rows - done, src + (size_t)done * (size_t)k, k);
}

void sd_avx2_quantise_q4(void *panel, int lane, int rows, const float *src, int k)
{
    const int done = quantise_tall(true, panel, lane, rows, src, k);
    sd_ref_quantise_q4(panel, lane + done, rows - done, src + (size_t)done * (size_t)k, k);
}
