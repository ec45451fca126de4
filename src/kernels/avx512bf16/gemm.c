/* SPDX-License-Identifier: MIT
 *
 * bf16 weights times bf16 inputs, pairs of products added to f32. The instruction takes denormals for zeros, which next
 * to bf16's rounding is nothing. */
#include "src/kernels/avx512bf16/avx512bf16.h"
#include "src/kernels/gemm.h"

enum { LANES = 16, VECTORS = SD_PANEL / LANES, COLUMN_BYTES = SD_PANEL * 4, PAIRS = SD_BLOCK / 2 };

SD_INLINE void add_pair(__m512 acc[][VECTORS], const int rows, const sd_gemm_part *p, size_t at, const char *w)
{
    __m512bh column[VECTORS];
    for (int j = 0; j < VECTORS; j++) {
        column[j] = (__m512bh)_mm512_loadu_si512(w + j * 64);
    }
    for (int r = 0; r < rows; r++) {
        int32_t pair;
        memcpy(&pair, p->x + (size_t)r * p->x_stride + at, sizeof pair);
        const __m512bh x = (__m512bh)_mm512_set1_epi32(pair);
        for (int j = 0; j < VECTORS; j++) {
            acc[r][j] = _mm512_dpbf16_ps(acc[r][j], column[j], x);
        }
    }
}

SD_INLINE void tile_bf16(const sd_gemm_part *p, const int rows)
{
    __m512 acc[SD_GEMM_PACKED_ROWS][VECTORS];
    const char *w = p->w;
    const char *next = p->next;
    for (int r = 0; r < rows; r++) {
        for (int j = 0; j < VECTORS; j++) {
            acc[r][j] = _mm512_load_ps(p->sums + r * SD_PANEL + j * LANES);
        }
    }
    const int first = p->first * PAIRS, all = (p->k + 1) / 2;
    const int last = first + p->blocks * PAIRS < all ? first + p->blocks * PAIRS : all;
    int i = first;
    for (; i + PAIRS <= last; i += PAIRS) {
        for (int n = 0; n < PAIRS; n++, w += COLUMN_BYTES) {
            sd_gemm_fetch_next(&next, VECTORS, p->far_lines);
            add_pair(acc, rows, p, (size_t)(i + n) * 4, w);
        }
    }
    for (; i < last; i++, w += COLUMN_BYTES) {
        add_pair(acc, rows, p, (size_t)i * 4, w);
    }
    for (int r = 0; r < rows; r++) {
        for (int j = 0; j < VECTORS; j++) {
            _mm512_store_ps(p->sums + r * SD_PANEL + j * LANES, acc[r][j]);
        }
    }
}

static void tile_bf16_rows(const sd_gemm_part *p)
{
    switch (p->rows) {
    case 1: tile_bf16(p, 1); break;
    case 2: tile_bf16(p, 2); break;
    case 3: tile_bf16(p, 3); break;
    default: tile_bf16(p, 4); break;
    }
}

void sd_avx512bf16_gemm_bf16(const sd_gemm *g, int first_panel, int last_panel)
{
    sd_gemm_packed(g, first_panel, last_panel, tile_bf16_rows, (size_t)PAIRS * COLUMN_BYTES, PAIRS);
}

void sd_avx512bf16_pack_input(void *dst, const float *x, int k)
{
    uint16_t *to = dst;
    const size_t n = (size_t)k;
    for (size_t i = 0; i < n; i += LANES) {
        const __mmask16 m = sd_lanes(n - i);
        const __m256bh half = _mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(m, x + i));
        _mm256_mask_storeu_epi16(to + i, m, (__m256i)half);
    }
    if (n % 2) { /* the partner of an odd last input */
        to[n] = 0;
    }
}
