/* SPDX-License-Identifier: MIT
 *
 * Quantised products. A tile of 4 rows x 64 outputs keeps 16 registers of 32-bit sums of a block; what the block comes
 * to in f32 is added to sums in the first-level cache, so that a panel is streamed once for any number of rows. */
#include "src/kernels/avx512vnni/avx512vnni.h"
#include "src/kernels/gemm.h"

enum { LANES = 16, VECTORS = SD_PANEL / LANES };

/* Where the rows of a part keep what belongs to the block at hand: all of them at the same distances from their
 * beginnings, so that one pointer a row is enough. */
typedef struct rows_at {
    const char *row[SD_GEMM_PACKED_ROWS];
    size_t q, scale, sum;
} rows_at;

SD_INLINE rows_at find_rows(const sd_gemm_part *p, const int rows)
{
    const size_t blocks = (size_t)sd_blocks(p->k), first = (size_t)p->first;
    rows_at at = {
        .q = first * SD_BLOCK,
        .scale = blocks * SD_BLOCK + first * sizeof(float),
        .sum = blocks * (SD_BLOCK + sizeof(float)) + first * sizeof(int32_t),
    };
    for (int r = 0; r < rows; r++) {
        at.row[r] = p->x + (size_t)r * p->x_stride;
    }
    return at;
}

SD_INLINE void next_block(rows_at *at)
{
    at->q += SD_BLOCK;
    at->scale += sizeof(float);
    at->sum += sizeof(int32_t);
}

SD_INLINE int32_t load_word(const char *at)
{
    int32_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

/* The offset of the weights, which the products will add once for every input, comes off beforehand. */
SD_INLINE void start_block(__m512i acc[][VECTORS], const int rows, const rows_at *x, const int offset)
{
    for (int r = 0; r < rows; r++) {
        const __m512i start = _mm512_set1_epi32(-offset * load_word(x->row[r] + x->sum));
        for (int j = 0; j < VECTORS; j++) {
            acc[r][j] = start;
        }
    }
}

/* Keeps compilers from loading the weights once for every row. */
#define SD_IN_REGISTER(v) __asm__("" : "+v"(v))

/* Four inputs of every row, `at` bytes into the block, times the weights of 64 outputs. */
SD_INLINE void add_four(__m512i acc[][VECTORS], const int rows, const rows_at *x, const int at, __m512i w[VECTORS])
{
    for (int j = 0; rows > 1 && j < VECTORS; j++) {
        SD_IN_REGISTER(w[j]);
    }
    for (int r = 0; r < rows; r++) {
        const __m512i xr = _mm512_set1_epi32(load_word(x->row[r] + x->q + at));
        for (int j = 0; j < VECTORS; j++) {
            acc[r][j] = _mm512_dpbusd_epi32(acc[r][j], w[j], xr);
        }
    }
}

/* sums += block * (scale of the weights * scale of the inputs) */
SD_INLINE void finish_block(float *sums, __m512i acc[][VECTORS], const int rows, const rows_at *x,
                            const uint16_t *scales)
{
    __m512 w[VECTORS];
    for (int j = 0; j < VECTORS; j++) {
        w[j] = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(scales + j * LANES)));
    }
    for (int r = 0; r < rows; r++) {
        const __m512 xr = _mm512_castsi512_ps(_mm512_set1_epi32(load_word(x->row[r] + x->scale)));
        for (int j = 0; j < VECTORS; j++) {
            float *sum = sums + r * SD_PANEL + j * LANES;
            _mm512_store_ps(sum, _mm512_fmadd_ps(_mm512_cvtepi32_ps(acc[r][j]), _mm512_mul_ps(w[j], xr),
                                                 _mm512_load_ps(sum)));
        }
    }
}

/* Two lines of a block are scales; the shares of the next slice count them already. */
SD_INLINE void fetch_scales(const char **next, int far_lines)
{
    if (far_lines == 0) {
        sd_gemm_fetch_next(next, 2, 0);
    }
}

SD_INLINE void tile_q8(const sd_gemm_part *p, const int rows)
{
    const sd_q8_block *w = p->w;
    rows_at x = find_rows(p, rows);
    const char *next = p->next;
    for (int b = 0; b < p->blocks; b++, w++, next_block(&x)) {
        __m512i acc[SD_GEMM_PACKED_ROWS][VECTORS], four[VECTORS];
        start_block(acc, rows, &x, 128);
        fetch_scales(&next, p->far_lines);
        for (int i = 0; i < SD_BLOCK / 4; i++) {
            sd_gemm_fetch_next(&next, VECTORS, p->far_lines);
            for (int j = 0; j < VECTORS; j++) {
                four[j] = _mm512_loadu_si512(w->q[i][j * LANES]);
            }
            add_four(acc, rows, &x, 4 * i, four);
        }
        finish_block(p->sums, acc, rows, &x, w->scale);
    }
}

SD_INLINE void tile_q4(const sd_gemm_part *p, const int rows)
{
    const sd_q4_block *w = p->w;
    rows_at x = find_rows(p, rows);
    const __m512i low = _mm512_set1_epi8(15);
    const char *next = p->next;
    for (int b = 0; b < p->blocks; b++, w++, next_block(&x)) {
        __m512i acc[SD_GEMM_PACKED_ROWS][VECTORS], eight[VECTORS], four[VECTORS];
        start_block(acc, rows, &x, 8);
        fetch_scales(&next, p->far_lines);
        for (int i = 0; i < SD_BLOCK / 8; i++) {
            sd_gemm_fetch_next(&next, VECTORS, p->far_lines);
            for (int j = 0; j < VECTORS; j++) {
                eight[j] = _mm512_loadu_si512(w->q[i][j * LANES]);
                four[j] = _mm512_and_si512(eight[j], low);
            }
            add_four(acc, rows, &x, 8 * i, four);
            for (int j = 0; j < VECTORS; j++) {
                four[j] = _mm512_and_si512(_mm512_srli_epi16(eight[j], 4), low);
            }
            add_four(acc, rows, &x, 8 * i + 4, four);
        }
        finish_block(p->sums, acc, rows, &x, w->scale);
    }
}

static void tile_q8_rows(const sd_gemm_part *p)
{
    switch (p->rows) {
    case 1: tile_q8(p, 1); break;
    case 2: tile_q8(p, 2); break;
    case 3: tile_q8(p, 3); break;
    default: tile_q8(p, 4); break;
    }
}

static void tile_q4_rows(const sd_gemm_part *p)
{
    switch (p->rows) {
    case 1: tile_q4(p, 1); break;
    case 2: tile_q4(p, 2); break;
    case 3: tile_q4(p, 3); break;
    default: tile_q4(p, 4); break;
    }
}

void sd_avx512vnni_gemm_q8(const sd_gemm *g, int first_panel, int last_panel)
{
    sd_gemm_packed(g, first_panel, last_panel, tile_q8_rows, sizeof(sd_q8_block), SD_BLOCK / 4);
}

void sd_avx512vnni_gemm_q4(const sd_gemm *g, int first_panel, int last_panel)
{
    sd_gemm_packed(g, first_panel, last_panel, tile_q4_rows, sizeof(sd_q4_block), SD_BLOCK / 8);
}
