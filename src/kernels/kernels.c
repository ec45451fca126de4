/* SPDX-License-Identifier: MIT
 *
 * The tables of function pointers, and the packed matrices that their products read. */
#include "src/kernels/kernels.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#include "src/base/alloc.h"
#include "src/base/half.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "a bf16 pair is written as one 32-bit word, input 2i low");

/* ---- tables ------------------------------------------------------------------------------------------------- */

static sd_kernels tables[SD_CPU_LEVELS];

/* The init functions of a level are compiled for it, so that even they may only run where the machine supports it. */
static void build_tables(void)
{
    sd_kernels_init_ref(&tables[SD_CPU_REF]);
#if defined(__x86_64__)
    const sd_cpu_level_id best = sd_cpu_detect();
    if (best >= SD_CPU_AVX2) {
        tables[SD_CPU_AVX2] = tables[SD_CPU_REF];
        sd_kernels_init_avx2(&tables[SD_CPU_AVX2]);
    }
    if (best >= SD_CPU_AVX512) {
        tables[SD_CPU_AVX512] = tables[SD_CPU_AVX2];
        sd_kernels_init_avx512(&tables[SD_CPU_AVX512]);
    }
#endif
}

const sd_kernels *sd_kernels_get(sd_cpu_level_id level)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, build_tables);
    assert(tables[level].name && "the level must be one that sd_cpu_select allowed");
    return &tables[level];
}

/* ---- packed matrices ---------------------------------------------------------------------------------------- */

static size_t pairs(int k) { return ((size_t)k + 1) / 2; }

size_t sd_matrix_bytes(sd_wtype type, int n, int k)
{
    if (n < 0 || k < 0) {
        return SIZE_MAX;
    }
    /* One input of one panel is 64 f32 or 64 bf16; a pair of inputs in bf16 takes what one takes in f32. */
    const size_t column = SD_PANEL * sizeof(float);
    size_t bytes;
    if (!sd_mul_size(((size_t)n + SD_PANEL - 1) / SD_PANEL * column, type == SD_W_F32 ? (size_t)k : pairs(k), &bytes)) {
        return SIZE_MAX;
    }
    return bytes;
}

/* Packing is a transposition, done in squares: whole cache lines of the source are used up at once, so that nothing is
 * lost when the row length is a multiple of 4096 bytes and all rows fall into one set of the cache. */
enum { SQUARE = 16 };

static int min_int(int a, int b) { return a < b ? a : b; }

/* to[i][r] = from[r][i] for `rows` rows of `columns`; strides in floats. */
static void transpose(float *to, size_t to_stride, const float *from, size_t from_stride, size_t rows, size_t columns)
{
    size_t whole_rows = 0, whole_columns = 0;
#if defined(__SSE2__)
    whole_rows = rows / 4 * 4;
    whole_columns = columns / 4 * 4;
    for (size_t r = 0; r < whole_rows; r += 4) {
        for (size_t i = 0; i < whole_columns; i += 4) {
            const float *corner = from + r * from_stride + i;
            __m128 a = _mm_loadu_ps(corner), b = _mm_loadu_ps(corner + from_stride);
            __m128 c = _mm_loadu_ps(corner + 2 * from_stride), d = _mm_loadu_ps(corner + 3 * from_stride);
            _MM_TRANSPOSE4_PS(a, b, c, d);
            _mm_storeu_ps(to + i * to_stride + r, a);
            _mm_storeu_ps(to + (i + 1) * to_stride + r, b);
            _mm_storeu_ps(to + (i + 2) * to_stride + r, c);
            _mm_storeu_ps(to + (i + 3) * to_stride + r, d);
        }
    }
#endif
    for (size_t r = 0; r < rows; r++) {
        for (size_t i = r < whole_rows ? whole_columns : 0; i < columns; i++) {
            to[i * to_stride + r] = from[r * from_stride + i];
        }
    }
}

/* One square of bf16: `inputs` of `rows` rows; dst is the word of the first pair of the first row. */
static void pack_bf16(uint32_t *dst, const float *src, size_t k, size_t rows, size_t inputs)
{
    float square[SQUARE + 1][SQUARE];
    transpose(square[0], SQUARE, src, k, rows, inputs);
    memset(square[inputs], 0, sizeof square[inputs]); /* the partner of an odd last input */
    for (size_t i = 0; i < inputs; i += 2) {
        uint32_t *words = dst + i / 2 * SD_PANEL;
        for (size_t r = 0; r < rows; r++) {
            words[r] = sd_f32_to_bf16(square[i][r]) | (uint32_t)sd_f32_to_bf16(square[i + 1][r]) << 16;
        }
    }
}

/* Rows of one panel, from its output `lane` on. */
static void pack_panel_rows(sd_wtype type, void *panel, int lane, int rows, const float *src, int k)
{
    for (int r = 0; r < rows; r += SQUARE) {
        for (int i = 0; i < k; i += SQUARE) {
            const float *from = src + (size_t)r * (size_t)k + (size_t)i;
            const size_t at = (size_t)(type == SD_W_F32 ? i : i / 2) * SD_PANEL + (size_t)(lane + r);
            const size_t height = (size_t)min_int(SQUARE, rows - r), width = (size_t)min_int(SQUARE, k - i);
            if (type == SD_W_F32) {
                transpose((float *)panel + at, SD_PANEL, from, (size_t)k, height, width);
            } else {
                pack_bf16((uint32_t *)panel + at, from, (size_t)k, height, width);
            }
        }
    }
}

void sd_matrix_pack_rows(sd_matrix *m, int first, int rows, const float *src)
{
    const size_t panel_bytes = sd_matrix_bytes(m->type, 1, m->k);
    for (int done = 0; done < rows;) {
        const int o = first + done, lane = o % SD_PANEL, some = min_int(rows - done, SD_PANEL - lane);
        char *panel = (char *)m->data + (size_t)(o / SD_PANEL) * panel_bytes;
        pack_panel_rows(m->type, panel, lane, some, src + (size_t)done * (size_t)m->k, m->k);
        done += some;
    }
}

void sd_matrix_unpack_row(const sd_matrix *m, int o, float *dst)
{
    const size_t panel = (size_t)(o / SD_PANEL), lane = (size_t)(o % SD_PANEL);
    if (m->type == SD_W_F32) {
        const float *w = (const float *)m->data + panel * (size_t)m->k * SD_PANEL + lane;
        for (int i = 0; i < m->k; i++) {
            dst[i] = w[(size_t)i * SD_PANEL];
        }
        return;
    }
    const uint32_t *w = (const uint32_t *)m->data + panel * pairs(m->k) * SD_PANEL + lane;
    for (int i = 0; i < m->k; i++) {
        const uint32_t pair = w[(size_t)(i / 2) * SD_PANEL];
        dst[i] = sd_bf16_to_f32((uint16_t)(i % 2 ? pair >> 16 : pair));
    }
}
