/* SPDX-License-Identifier: MIT
 *
 * The tiles: up to 6 rows x 64 outputs are 24 registers of sums, which leaves 8 for weights and inputs. */
#include "src/kernels/avx512/avx512.h"
#include "src/kernels/gemm.h"

enum { LANES = 16, VECTORS = SD_PANEL / LANES };

SD_INLINE void load_sums(__m512 acc[][VECTORS], const float *sums, const int rows)
{
    for (int r = 0; r < rows; r++) {
        for (int j = 0; j < VECTORS; j++) {
            acc[r][j] = _mm512_load_ps(sums + r * SD_PANEL + j * LANES);
        }
    }
}

SD_INLINE void store_sums(float *sums, __m512 acc[][VECTORS], const int rows)
{
    for (int r = 0; r < rows; r++) {
        for (int j = 0; j < VECTORS; j++) {
            _mm512_store_ps(sums + r * SD_PANEL + j * LANES, acc[r][j]);
        }
    }
}

SD_INLINE void fetch_lines(sd_gemm_fetch *fetch, const int lines)
{
    for (int j = 0; j < lines; j++) {
        if (fetch->far) {
            _mm_prefetch(fetch->next, _MM_HINT_T1);
        } else {
            _mm_prefetch(fetch->next, _MM_HINT_T0);
        }
        fetch->next += fetch->spread;
    }
}

/* One input of every row times its 64 weights. */
SD_INLINE void add_products(__m512 acc[][VECTORS], const int rows, const float *x, size_t x_stride,
                            const __m512 w[VECTORS])
{
    for (int r = 0; r < rows; r++) {
        const __m512 xr = _mm512_set1_ps(x[(size_t)r * x_stride]);
        for (int j = 0; j < VECTORS; j++) {
            acc[r][j] = _mm512_fmadd_ps(xr, w[j], acc[r][j]);
        }
    }
}

SD_INLINE void tile_f32(float *sums, const int rows, const float *x, size_t x_stride, const float *w, int inputs,
                        sd_gemm_fetch fetch)
{
    __m512 acc[SD_GEMM_TILE_ROWS][VECTORS];
    load_sums(acc, sums, rows);
    for (int i = 0; i < inputs; i++, w += SD_PANEL) {
        __m512 column[VECTORS];
        fetch_lines(&fetch, 4);
        for (int j = 0; j < VECTORS; j++) {
            column[j] = _mm512_load_ps(w + j * LANES);
        }
        add_products(acc, rows, x + i, x_stride, column);
    }
    store_sums(sums, acc, rows);
}

/* A 32-bit lane holds inputs 2i (low half) and 2i + 1 (high half) of one output; bf16 is the upper half of an f32. */
SD_INLINE void even_inputs(__m512 column[VECTORS], const uint32_t *w)
{
    for (int j = 0; j < VECTORS; j++) {
        column[j] = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_load_si512(w + j * LANES), 16));
    }
}

SD_INLINE void odd_inputs(__m512 column[VECTORS], const uint32_t *w)
{
    const __m512i high = _mm512_set1_epi32((int)0xFFFF0000u);
    for (int j = 0; j < VECTORS; j++) {
        column[j] = _mm512_castsi512_ps(_mm512_and_si512(_mm512_load_si512(w + j * LANES), high));
    }
}

SD_INLINE void tile_bf16(float *sums, const int rows, const float *x, size_t x_stride, const uint32_t *w, int inputs,
                         sd_gemm_fetch fetch)
{
    __m512 acc[SD_GEMM_TILE_ROWS][VECTORS], column[VECTORS];
    load_sums(acc, sums, rows);
    int i = 0;
    for (; i + 1 < inputs; i += 2, w += SD_PANEL) {
        fetch_lines(&fetch, 4);
        even_inputs(column, w);
        add_products(acc, rows, x + i, x_stride, column);
        odd_inputs(column, w);
        add_products(acc, rows, x + i + 1, x_stride, column);
    }
    if (i < inputs) { /* an odd k: the row has no input to go with the last pair's second half */
        even_inputs(column, w);
        add_products(acc, rows, x + i, x_stride, column);
    }
    store_sums(sums, acc, rows);
}

static void tile_f32_rows(float *sums, int rows, const float *x, size_t x_stride, const void *w, int inputs,
                          sd_gemm_fetch fetch)
{
    switch (rows) {
    case 1: tile_f32(sums, 1, x, x_stride, w, inputs, fetch); break;
    case 2: tile_f32(sums, 2, x, x_stride, w, inputs, fetch); break;
    case 3: tile_f32(sums, 3, x, x_stride, w, inputs, fetch); break;
    case 4: tile_f32(sums, 4, x, x_stride, w, inputs, fetch); break;
    case 5: tile_f32(sums, 5, x, x_stride, w, inputs, fetch); break;
    default: tile_f32(sums, 6, x, x_stride, w, inputs, fetch); break;
    }
}

static void tile_bf16_rows(float *sums, int rows, const float *x, size_t x_stride, const void *w, int inputs,
                           sd_gemm_fetch fetch)
{
    switch (rows) {
    case 1: tile_bf16(sums, 1, x, x_stride, w, inputs, fetch); break;
    case 2: tile_bf16(sums, 2, x, x_stride, w, inputs, fetch); break;
    case 3: tile_bf16(sums, 3, x, x_stride, w, inputs, fetch); break;
    case 4: tile_bf16(sums, 4, x, x_stride, w, inputs, fetch); break;
    case 5: tile_bf16(sums, 5, x, x_stride, w, inputs, fetch); break;
    default: tile_bf16(sums, 6, x, x_stride, w, inputs, fetch); break;
    }
}

void sd_avx512_gemm_f32(const sd_gemm *g, int first_panel, int last_panel)
{
    sd_gemm_blocked(g, first_panel, last_panel, tile_f32_rows, SD_GEMM_TILE_ROWS);
}

void sd_avx512_gemm_bf16(const sd_gemm *g, int first_panel, int last_panel)
{
    sd_gemm_blocked(g, first_panel, last_panel, tile_bf16_rows, SD_GEMM_TILE_ROWS);
}
