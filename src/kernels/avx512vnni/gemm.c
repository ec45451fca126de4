/* SPDX-License-Identifier: MIT
 *
 * Quantised products. A tile of 6 rows x 64 outputs keeps 24 registers of 32-bit sums of a block; what the block comes
 * to in f32 is added to sums in the first-level cache, so that a panel is streamed once for any number of rows. */
#include "src/kernels/avx512vnni/avx512vnni.h"
#include "src/kernels/gemm.h"

enum { LANES = 16, VECTORS = SD_PANEL / LANES };

/* Where the rows of a part keep what belongs to the block at hand. */
typedef struct rows_at {
    const int8_t *q[SD_GEMM_TILE_ROWS];
    const float *scale[SD_GEMM_TILE_ROWS];
    const int32_t *sum[SD_GEMM_TILE_ROWS];
} rows_at;

SD_INLINE rows_at find_rows(const sd_gemm_part *p, const int rows)
{
    rows_at at;
    for (int r = 0; r < rows; r++) {
        const sd_q8_input x = sd_q8_input_at(p->x + (size_t)r * p->x_stride, p->k);
        at.q[r] = x.q + (size_t)p->first * SD_BLOCK;
        at.scale[r] = x.scale + p->first;
        at.sum[r] = x.sum + p->first;
    }
    return at;
}

/* The offset of the weights, which the products will add once for every input, comes off beforehand. */
SD_INLINE void start_block(__m512i acc[][VECTORS], const int rows, const rows_at *x, int b, const int offset)
{
    for (int r = 0; r < rows; r++) {
        const __m512i start = _mm512_set1_epi32(-offset * x->sum[r][b]);
        for (int j = 0; j < VECTORS; j++) {
            acc[r][j] = start;
        }
    }
}

/* Four inputs of every row, `at` the first of them in the row, times the weights of 64 outputs. */
SD_INLINE void add_four(__m512i acc[][VECTORS], const int rows, const rows_at *x, int at, const __m512i w[VECTORS])
{
    for (int r = 0; r < rows; r++) {
        int32_t four;
        memcpy(&four, x->q[r] + at, sizeof four);
        const __m512i xr = _mm512_set1_epi32(four);
        for (int j = 0; j < VECTORS; j++) {
            acc[r][j] = _mm512_dpbusd_epi32(acc[r][j], w[j], xr);
        }
    }
}

/* sums += block * (scale of the weights * scale of the inputs) */
SD_INLINE void finish_block(float *sums, __m512i acc[][VECTORS], const int rows, const rows_at *x, int b,
                            const uint16_t *scales)
{
    __m512 w[VECTORS];
    for (int j = 0; j < VECTORS; j++) {
        w[j] = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(scales + j * LANES)));
    }
    for (int r = 0; r < rows; r++) {
        const __m512 xr = _mm512_set1_ps(x->scale[r][b]);
        for (int j = 0; j < VECTORS; j++) {
            float *sum = sums + r * SD_PANEL + j * LANES;
            _mm512_store_ps(sum, _mm512_fmadd_ps(_mm512_cvtepi32_ps(acc[r][j]), _mm512_mul_ps(w[j], xr),
                                                 _mm512_load_ps(sum)));
        }
    }
}

SD_INLINE void fetch_lines(sd_gemm_fetch *fetch, int lines)
{
    for (int j = 0; j < lines; j++, fetch->next += 64) {
        if (fetch->far) {
            _mm_prefetch(fetch->next, _MM_HINT_T1);
        } else {
            _mm_prefetch(fetch->next, _MM_HINT_T0);
        }
    }
}

SD_INLINE void tile_q8(const sd_gemm_part *p, const int rows)
{
    const sd_q8_block *w = p->w;
    const rows_at x = find_rows(p, rows);
    sd_gemm_fetch fetch = p->fetch;
    for (int b = 0; b < p->blocks; b++, w++) {
        __m512i acc[SD_GEMM_TILE_ROWS][VECTORS], four[VECTORS];
        start_block(acc, rows, &x, b, 128);
        fetch_lines(&fetch, p->fetch_lines);
        for (int i = 0; i < SD_BLOCK / 4; i++) {
            for (int j = 0; j < VECTORS; j++) {
                four[j] = _mm512_loadu_si512(w->q[i][j * LANES]);
            }
            add_four(acc, rows, &x, b * SD_BLOCK + 4 * i, four);
        }
        finish_block(p->sums, acc, rows, &x, b, w->scale);
    }
}

SD_INLINE void tile_q4(const sd_gemm_part *p, const int rows)
{
    const sd_q4_block *w = p->w;
    const rows_at x = find_rows(p, rows);
    const __m512i low = _mm512_set1_epi8(15);
    sd_gemm_fetch fetch = p->fetch;
    for (int b = 0; b < p->blocks; b++, w++) {
        __m512i acc[SD_GEMM_TILE_ROWS][VECTORS], eight[VECTORS], four[VECTORS];
        start_block(acc, rows, &x, b, 8);
        fetch_lines(&fetch, p->fetch_lines);
        for (int i = 0; i < SD_BLOCK / 8; i++) {
            for (int j = 0; j < VECTORS; j++) {
                eight[j] = _mm512_loadu_si512(w->q[i][j * LANES]);
                four[j] = _mm512_and_si512(eight[j], low);
            }
            add_four(acc, rows, &x, b * SD_BLOCK + 8 * i, four);
            for (int j = 0; j < VECTORS; j++) {
                four[j] = _mm512_and_si512(_mm512_srli_epi16(eight[j], 4), low);
            }
            add_four(acc, rows, &x, b * SD_BLOCK + 8 * i + 4, four);
        }
        finish_block(p->sums, acc, rows, &x, b, w->scale);
    }
}

static void tile_q8_rows(const sd_gemm_part *p)
{
    switch (p->rows) {
    case 1: tile_q8(p, 1); break;
    case 2: tile_q8(p, 2); break;
    case 3: tile_q8(p, 3); break;
    case 4: tile_q8(p, 4); break;
    case 5: tile_q8(p, 5); break;
    default: tile_q8(p, 6); break;
    }
}

static void tile_q4_rows(const sd_gemm_part *p)
{
    switch (p->rows) {
    case 1: tile_q4(p, 1); break;
    case 2: tile_q4(p, 2); break;
    case 3: tile_q4(p, 3); break;
    case 4: tile_q4(p, 4); break;
    case 5: tile_q4(p, 5); break;
    default: tile_q4(p, 6); break;
    }
}

void sd_avx512vnni_gemm_q8(const sd_gemm *g, int first_panel, int last_panel)
{
    sd_gemm_packed(g, first_panel, last_panel, tile_q8_rows, sizeof(sd_q8_block));
}

void sd_avx512vnni_gemm_q4(const sd_gemm *g, int first_panel, int last_panel)
{
    sd_gemm_packed(g, first_panel, last_panel, tile_q4_rows, sizeof(sd_q4_block));
}
