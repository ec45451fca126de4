/* SPDX-License-Identifier: MIT
 *
 * The tiles: sixteen registers hold the sums of 6 rows x 16 outputs, or of 1 row x the whole panel, which then reads
 * memory front to back. */
#include "src/kernels/avx2/avx2.h"
#include "src/kernels/gemm.h"

enum { LANES = 8, VECTORS = SD_PANEL / LANES, STRIP_VECTORS = 2 };
enum { STRIPS = VECTORS / STRIP_VECTORS, STRIP_OUTPUTS = STRIP_VECTORS * LANES };

SD_INLINE void load_sums(__m256 acc[][VECTORS], const float *sums, const int rows, const int vectors)
{
    for (int r = 0; r < rows; r++) {
        for (int j = 0; j < vectors; j++) {
            acc[r][j] = _mm256_load_ps(sums + r * SD_PANEL + j * LANES);
        }
    }
}

SD_INLINE void store_sums(float *sums, __m256 acc[][VECTORS], const int rows, const int vectors)
{
    for (int r = 0; r < rows; r++) {
        for (int j = 0; j < vectors; j++) {
            _mm256_store_ps(sums + r * SD_PANEL + j * LANES, acc[r][j]);
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

/* Vector j of one input of every row times its weights. */
SD_INLINE void add_products(__m256 acc[][VECTORS], const int rows, const float *x, size_t x_stride, const __m256 *w,
                            const int vectors)
{
    for (int r = 0; r < rows; r++) {
        const __m256 xr = _mm256_broadcast_ss(x + (size_t)r * x_stride);
        for (int j = 0; j < vectors; j++) {
            acc[r][j] = _mm256_fmadd_ps(xr, w[j], acc[r][j]);
        }
    }
}

/* A strip is `vectors` vectors of outputs, from the one at w and sums. */
SD_INLINE void strip_f32(float *sums, const int rows, const int vectors, const float *x, size_t x_stride,
                         const float *w, int inputs, sd_gemm_fetch fetch)
{
    __m256 acc[SD_GEMM_TILE_ROWS][VECTORS], column[VECTORS];
    load_sums(acc, sums, rows, vectors);
    for (int i = 0; i < inputs; i++, w += SD_PANEL) {
        fetch_lines(&fetch, vectors / STRIP_VECTORS);
        for (int j = 0; j < vectors; j++) {
            column[j] = _mm256_load_ps(w + j * LANES);
        }
        add_products(acc, rows, x + i, x_stride, column, vectors);
    }
    store_sums(sums, acc, rows, vectors);
}

/* A 32-bit lane holds inputs 2i (low half) and 2i + 1 (high half) of one output; bf16 is the upper half of an f32. */
SD_INLINE void even_inputs(__m256 *column, const uint32_t *w, const int vectors)
{
    for (int j = 0; j < vectors; j++) {
        const __m256i pair = _mm256_load_si256((const __m256i *)(const void *)(w + j * LANES));
        column[j] = _mm256_castsi256_ps(_mm256_slli_epi32(pair, 16));
    }
}

/* Two shifts: a mask would be the seventeenth register. */
SD_INLINE void odd_inputs(__m256 *column, const uint32_t *w, const int vectors)
{
    for (int j = 0; j < vectors; j++) {
        const __m256i pair = _mm256_load_si256((const __m256i *)(const void *)(w + j * LANES));
        column[j] = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_srli_epi32(pair, 16), 16));
    }
}

SD_INLINE void strip_bf16(float *sums, const int rows, const int vectors, const float *x, size_t x_stride,
                          const uint32_t *w, int inputs, sd_gemm_fetch fetch)
{
    __m256 acc[SD_GEMM_TILE_ROWS][VECTORS], column[VECTORS];
    load_sums(acc, sums, rows, vectors);
    int i = 0;
    for (; i + 1 < inputs; i += 2, w += SD_PANEL) {
        fetch_lines(&fetch, vectors / STRIP_VECTORS);
        even_inputs(column, w, vectors);
        add_products(acc, rows, x + i, x_stride, column, vectors);
        odd_inputs(column, w, vectors);
        add_products(acc, rows, x + i + 1, x_stride, column, vectors);
    }
    if (i < inputs) { /* an odd k: the row has no input to go with the last pair's second half */
        even_inputs(column, w, vectors);
        add_products(acc, rows, x + i, x_stride, column, vectors);
    }
    store_sums(sums, acc, rows, vectors);
}

/* Each of the strips fetches its share of the next slice. */
static sd_gemm_fetch share_of_strip(sd_gemm_fetch fetch, int strip, int columns)
{
    fetch.next += (size_t)strip * (size_t)columns * fetch.spread;
    return fetch;
}

static void tile_f32(float *sums, int rows, const float *x, size_t x_stride, const void *w, int inputs,
                     sd_gemm_fetch fetch)
{
    if (rows == 1) {
        strip_f32(sums, 1, VECTORS, x, x_stride, w, inputs, fetch);
        return;
    }
    for (int i = 0; i < STRIPS; i++, sums += STRIP_OUTPUTS) {
        const float *strip = (const float *)w + i * STRIP_OUTPUTS;
        const sd_gemm_fetch share = share_of_strip(fetch, i, inputs);
        switch (rows) {
        case 2: strip_f32(sums, 2, STRIP_VECTORS, x, x_stride, strip, inputs, share); break;
        case 3: strip_f32(sums, 3, STRIP_VECTORS, x, x_stride, strip, inputs, share); break;
        case 4: strip_f32(sums, 4, STRIP_VECTORS, x, x_stride, strip, inputs, share); break;
        case 5: strip_f32(sums, 5, STRIP_VECTORS, x, x_stride, strip, inputs, share); break;
        default: strip_f32(sums, 6, STRIP_VECTORS, x, x_stride, strip, inputs, share); break;
        }
    }
}

static void tile_bf16(float *sums, int rows, const float *x, size_t x_stride, const void *w, int inputs,
                      sd_gemm_fetch fetch)
{
    if (rows == 1) {
        strip_bf16(sums, 1, VECTORS, x, x_stride, w, inputs, fetch);
        return;
    }
    for (int i = 0; i < STRIPS; i++, sums += STRIP_OUTPUTS) {
        const uint32_t *strip = (const uint32_t *)w + i * STRIP_OUTPUTS;
        const sd_gemm_fetch share = share_of_strip(fetch, i, (inputs + 1) / 2);
        switch (rows) {
        case 2: strip_bf16(sums, 2, STRIP_VECTORS, x, x_stride, strip, inputs, share); break;
        case 3: strip_bf16(sums, 3, STRIP_VECTORS, x, x_stride, strip, inputs, share); break;
        case 4: strip_bf16(sums, 4, STRIP_VECTORS, x, x_stride, strip, inputs, share); break;
        case 5: strip_bf16(sums, 5, STRIP_VECTORS, x, x_stride, strip, inputs, share); break;
        default: strip_bf16(sums, 6, STRIP_VECTORS, x, x_stride, strip, inputs, share); break;
        }
    }
}

void sd_avx2_gemm_f32(const sd_gemm *g, int first_panel, int last_panel)
{
    sd_gemm_blocked(g, first_panel, last_panel, tile_f32, 1);
}

void sd_avx2_gemm_bf16(const sd_gemm *g, int first_panel, int last_panel)
{
    sd_gemm_blocked(g, first_panel, last_panel, tile_bf16, 1);
}
