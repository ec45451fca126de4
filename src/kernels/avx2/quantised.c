/* SPDX-License-Identifier: MIT
 *
 * Inputs of quantised products, and the products without dot-product instructions: 8-bit values are widened to 16 bits,
 * since the products of unsigned and signed bytes overflow what the byte instruction adds them up in. Each word of the
 * weights holds four inputs of one output: bytes 0 and 2 are taken with a mask, 1 and 3 with a shift, and the inputs of
 * the row are split in the same way. */
#include <math.h>
#include <string.h>

#include "src/kernels/avx2/avx2.h"
#include "src/kernels/gemm.h"

enum { LANES = 8, VECTORS = SD_PANEL / LANES, WORDS = SD_BLOCK / 4 };

/* ---- inputs ---- */

SD_INLINE float largest(__m256 x)
{
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

SD_INLINE int32_t sum_of(__m256i x)
{
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    s = _mm_add_epi32(s, _mm_unpackhi_epi64(s, s));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_srli_epi64(s, 32)));
}

/* One block of n <= 32 values. */
static void pack_block(int8_t *q, float *scale, int32_t *sum, const float *x, size_t n)
{
    const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7FFFFFFF)), infinite = _mm256_set1_ps(INFINITY);
    __m256 v[4], max = _mm256_setzero_ps(), finite = _mm256_castsi256_ps(_mm256_set1_epi32(-1));
    for (size_t j = 0; j < 4; j++) {
        const size_t at = j * LANES;
        v[j] = n >= at + LANES ? _mm256_loadu_ps(x + at)
               : n > at        ? _mm256_maskload_ps(x + at, sd_lanes(n - at))
                               : _mm256_setzero_ps();
        const __m256 a = _mm256_and_ps(v[j], magnitude);
        max = _mm256_max_ps(a, max);
        finite = _mm256_and_ps(finite, _mm256_cmp_ps(a, infinite, _CMP_LT_OQ));
    }
    const bool ok = _mm256_movemask_ps(finite) == 0xFF;
    const float found = largest(max), most = found < SD_SMALLEST_INPUT ? 0 : found;
    const float inverse = ok && most > 0 ? 127 / most : 0;
    *scale = ok ? most / 127 : NAN;
    __m256i i[4], total = _mm256_setzero_si256();
    for (size_t j = 0; j < 4; j++) {
        i[j] = ok ? _mm256_cvtps_epi32(_mm256_mul_ps(v[j], _mm256_set1_ps(inverse))) : _mm256_setzero_si256();
        total = _mm256_add_epi32(total, i[j]);
    }
    *sum = sum_of(total);
    /* Packing works within halves of a register; the permutation puts the words of four into their order. */
    const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(i[0], i[1]), _mm256_packs_epi32(i[2], i[3]));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256((__m256i *)(void *)q, _mm256_permutevar8x32_epi32(bytes, order));
}

void sd_avx2_pack_input_q8(void *dst, const float *x, int k)
{
    const sd_q8_input at = sd_q8_input_at(dst, k);
    int8_t *q = (int8_t *)(uintptr_t)at.q;
    float *scale = (float *)(uintptr_t)at.scale;
    int32_t *sum = (int32_t *)(uintptr_t)at.sum;
    for (int b = 0; b < sd_blocks(k); b++) {
        const int left = k - b * SD_BLOCK;
        pack_block(q + b * SD_BLOCK, scale + b, sum + b, x + b * SD_BLOCK, left < SD_BLOCK ? (size_t)left : SD_BLOCK);
    }
}

void sd_avx2_to_f16(uint16_t *dst, const float *src, size_t n)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const __m128i h = _mm256_cvtps_ph(_mm256_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT);
        _mm_storeu_si128((__m128i *)(void *)(dst + i), h);
    }
    if (i < n) {
        uint16_t last[LANES];
        const __m256 v = _mm256_maskload_ps(src + i, sd_lanes(n - i));
        _mm_storeu_si128((__m128i *)(void *)last, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
        memcpy(dst + i, last, (n - i) * sizeof *last);
    }
}

/* ---- products ---- */

/* Four inputs as two pairs of 16 bits: 0 and 2, 1 and 3. */
typedef struct split_row {
    int32_t even[WORDS], odd[WORDS];
} split_row;

static void split_inputs(split_row *to, const int8_t *q)
{
    const __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)q);
    const __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8), odd = _mm256_srai_epi16(x, 8);
    _mm256_storeu_si256((__m256i *)(void *)to->even, even);
    _mm256_storeu_si256((__m256i *)(void *)to->odd, odd);
}

SD_INLINE void add_word(__m256i acc[], const int rows, const split_row *x, int word, __m256i w)
{
    const __m256i even = _mm256_and_si256(w, _mm256_set1_epi16(255)), odd = _mm256_srli_epi16(w, 8);
    for (int r = 0; r < rows; r++) {
        acc[r] = _mm256_add_epi32(acc[r], _mm256_madd_epi16(even, _mm256_set1_epi32(x[r].even[word])));
        acc[r] = _mm256_add_epi32(acc[r], _mm256_madd_epi16(odd, _mm256_set1_epi32(x[r].odd[word])));
    }
}

/* One block of 8 outputs: `words` points at the first word of the first output, rows of words are a panel apart. */
SD_INLINE void block_q8(__m256i acc[], const int rows, const split_row *x, const uint8_t *words)
{
    for (int i = 0; i < WORDS; i++) {
        add_word(acc, rows, x, i, _mm256_loadu_si256((const __m256i *)(const void *)(words + i * SD_PANEL * 4)));
    }
}

SD_INLINE void block_q4(__m256i acc[], const int rows, const split_row *x, const uint8_t *words)
{
    const __m256i low = _mm256_set1_epi8(15);
    for (int i = 0; i < WORDS / 2; i++) {
        const __m256i both = _mm256_loadu_si256((const __m256i *)(const void *)(words + i * SD_PANEL * 4));
        add_word(acc, rows, x, 2 * i, _mm256_and_si256(both, low));
        add_word(acc, rows, x, 2 * i + 1, _mm256_and_si256(_mm256_srli_epi16(both, 4), low));
    }
}

SD_INLINE void tile(const sd_gemm_part *p, const int rows, const bool nibbles)
{
    const size_t block_bytes = nibbles ? sizeof(sd_q4_block) : sizeof(sd_q8_block);
    const char *block = p->w;
    for (int b = p->first; b < p->first + p->blocks; b++, block += block_bytes) {
        const uint16_t *scales = (const uint16_t *)(const void *)block;
        const uint8_t *words = (const uint8_t *)block + SD_PANEL * sizeof(uint16_t);
        split_row x[SD_GEMM_PACKED_ROWS];
        float scale[SD_GEMM_PACKED_ROWS];
        int32_t start[SD_GEMM_PACKED_ROWS];
        for (int r = 0; r < rows; r++) {
            const sd_q8_input in = sd_q8_input_at(p->x + (size_t)r * p->x_stride, p->k);
            split_inputs(&x[r], in.q + (size_t)b * SD_BLOCK);
            scale[r] = in.scale[b];
            start[r] = (nibbles ? -8 : -128) * in.sum[b];
        }
        for (int j = 0; j < VECTORS; j++) {
            __m256i acc[SD_GEMM_PACKED_ROWS];
            for (int r = 0; r < rows; r++) {
                acc[r] = _mm256_set1_epi32(start[r]);
            }
            if (nibbles) {
                block_q4(acc, rows, x, words + j * LANES * 4);
            } else {
                block_q8(acc, rows, x, words + j * LANES * 4);
            }
            const __m256 w = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(scales + j * LANES)));
            for (int r = 0; r < rows; r++) {
                float *sum = p->sums + r * SD_PANEL + j * LANES;
                const __m256 factor = _mm256_mul_ps(w, _mm256_set1_ps(scale[r]));
                _mm256_store_ps(sum, _mm256_fmadd_ps(_mm256_cvtepi32_ps(acc[r]), factor, _mm256_load_ps(sum)));
            }
        }
    }
}

static void tile_q8(const sd_gemm_part *p)
{
    switch (p->rows) {
    case 1: tile(p, 1, false); break;
    case 2: tile(p, 2, false); break;
    case 3: tile(p, 3, false); break;
    default: tile(p, 4, false); break;
    }
}

static void tile_q4(const sd_gemm_part *p)
{
    switch (p->rows) {
    case 1: tile(p, 1, true); break;
    case 2: tile(p, 2, true); break;
    case 3: tile(p, 3, true); break;
    default: tile(p, 4, true); break;
    }
}

void sd_avx2_gemm_q8(const sd_gemm *g, int first_panel, int last_panel)
{
    sd_gemm_packed(g, first_panel, last_panel, tile_q8, sizeof(sd_q8_block), 1);
}

void sd_avx2_gemm_q4(const sd_gemm *g, int first_panel, int last_panel)
{
    sd_gemm_packed(g, first_panel, last_panel, tile_q4, sizeof(sd_q4_block), 1);
}
