/* SPDX-License-Identifier: MIT
 *
 * The packed matrices that the products read. */
#include <math.h>
#include <string.h>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#include "src/base/alloc.h"
#include "src/base/half.h"
#include "src/kernels/kernels.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "a bf16 pair is written as one 32-bit word, input 2i low");

static size_t pairs(int k) { return ((size_t)k + 1) / 2; }

const char *sd_wtype_name(sd_wtype type)
{
    static const char *const names[SD_W_TYPES] = {"f32", "bf16", "q8", "q4"};
    return names[type];
}

/* Bytes of one panel: columns of one f32 input, of a bf16 pair, or of a block. */
static bool panel_bytes(sd_wtype type, int k, size_t *bytes)
{
    switch (type) {
    case SD_W_F32: return sd_mul_size((size_t)k, SD_PANEL * sizeof(float), bytes);
    case SD_W_BF16: return sd_mul_size(pairs(k), SD_PANEL * sizeof(uint32_t), bytes);
    case SD_W_Q8: return sd_mul_size((size_t)sd_blocks(k), sizeof(sd_q8_block), bytes);
    default: return sd_mul_size((size_t)sd_blocks(k), sizeof(sd_q4_block), bytes);
    }
}

size_t sd_matrix_bytes(sd_wtype type, int n, int k)
{
    size_t bytes;
    if (n < 0 || k < 0 || !panel_bytes(type, k, &bytes) ||
        !sd_mul_size(bytes, ((size_t)n + SD_PANEL - 1) / SD_PANEL, &bytes)) {
        return SIZE_MAX;
    }
    return bytes;
}

size_t sd_input_bytes(sd_wtype type, int k)
{
    const size_t blocks = (size_t)sd_blocks(k);
    const size_t bytes = type == SD_W_F32    ? 0
                         : type == SD_W_BF16 ? pairs(k) * sizeof(uint32_t)
                                             : blocks * (SD_BLOCK + sizeof(float) + sizeof(int32_t));
    return (bytes + 63) / 64 * 64;
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

/* ---- blocks ---- */

/* NaN if one of them is. */
static float largest(const float *x, int n)
{
    float max = 0;
    for (int i = 0; i < n; i++) {
        const float a = fabsf(x[i]);
        max = a > max || isnan(a) ? a : max;
    }
    return max;
}

/* The integer nearest to x / scale, cut to low .. high, NaN to low; 0 where the scale is 0 or NaN. */
static int quantum(float x, float scale, int low, int high)
{
    const float q = scale > 0 ? rintf(x / scale) : 0;
    return q > (float)low ? q < (float)high ? (int)q : high : low;
}

static void pack_q8(sd_q8_block *block, int lane, const float *x, int n)
{
    block->scale[lane] = sd_f32_to_f16(largest(x, n) / 127);
    const float scale = sd_f16_to_f32(block->scale[lane]);
    for (int i = 0; i < SD_BLOCK; i++) {
        block->q[i / 4][lane][i % 4] = (uint8_t)(128 + (i < n ? quantum(x[i], scale, -127, 127) : 0));
    }
}

static double q4_error(const float *x, int n, float scale)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        const double d = (double)x[i] - (double)scale * quantum(x[i], scale, -8, 7);
        sum += d * d;
    }
    return sum;
}

/* The value of largest magnitude at -8 or 7, or a little inside: what the ends lose the others may gain. A negative
 * scale would serve a block whose largest value is positive; it is left out to keep its sign out of the kernels. */
static float q4_scale(const float *x, int n)
{
    static const float divisors[] = {8.0f, 7.6f, 7.2f, 6.8f, 7.0f, 6.5f, 8.4f};
    const float max = largest(x, n);
    float best = NAN; /* of values that are not finite, or beyond f16: so will be what comes of them */
    double least = INFINITY;
    for (size_t i = 0; i < sizeof divisors / sizeof *divisors; i++) {
        const float scale = sd_f16_to_f32(sd_f32_to_f16(max / divisors[i]));
        const double error = q4_error(x, n, scale);
        if (error < least) {
            least = error;
            best = scale;
        }
    }
    return best;
}

static void pack_q4(sd_q4_block *block, int lane, const float *x, int n)
{
    const float scale = q4_scale(x, n);
    block->scale[lane] = sd_f32_to_f16(scale);
    for (int i = 0; i < SD_BLOCK; i += 8) {
        for (int c = 0; c < 4; c++) {
            const int low = i + c < n ? quantum(x[i + c], scale, -8, 7) : 0;
            const int high = i + 4 + c < n ? quantum(x[i + 4 + c], scale, -8, 7) : 0;
            block->q[i / 8][lane][c] = (uint8_t)((low + 8) | (high + 8) << 4);
        }
    }
}

static void pack_blocks(sd_wtype type, void *panel, int lane, int rows, const float *src, int k)
{
    for (int r = 0; r < rows; r++) {
        for (int b = 0; b < sd_blocks(k); b++) {
            const float *x = src + (size_t)r * (size_t)k + (size_t)b * SD_BLOCK;
            const int n = min_int(SD_BLOCK, k - b * SD_BLOCK);
            if (type == SD_W_Q8) {
                pack_q8((sd_q8_block *)panel + b, lane + r, x, n);
            } else {
                pack_q4((sd_q4_block *)panel + b, lane + r, x, n);
            }
        }
    }
}

void sd_matrix_pack_rows(sd_matrix *m, int first, int rows, const float *src)
{
    const size_t bytes = sd_matrix_bytes(m->type, 1, m->k);
    for (int done = 0; done < rows;) {
        const int o = first + done, lane = o % SD_PANEL, some = min_int(rows - done, SD_PANEL - lane);
        char *panel = (char *)m->data + (size_t)(o / SD_PANEL) * bytes;
        const float *from = src + (size_t)done * (size_t)m->k;
        if (m->type == SD_W_F32 || m->type == SD_W_BF16) {
            pack_panel_rows(m->type, panel, lane, some, from, m->k);
        } else {
            pack_blocks(m->type, panel, lane, some, from, m->k);
        }
        done += some;
    }
}

static void unpack_blocks(const sd_matrix *m, int o, float *dst)
{
    const size_t blocks = (size_t)sd_blocks(m->k), first = (size_t)(o / SD_PANEL) * blocks;
    const int lane = o % SD_PANEL;
    for (int i = 0; i < m->k; i++) {
        const size_t b = first + (size_t)(i / SD_BLOCK);
        const int at = i % SD_BLOCK;
        if (m->type == SD_W_Q8) {
            const sd_q8_block *block = (const sd_q8_block *)m->data + b;
            dst[i] = sd_f16_to_f32(block->scale[lane]) * (float)(block->q[at / 4][lane][at % 4] - 128);
        } else {
            const sd_q4_block *block = (const sd_q4_block *)m->data + b;
            const int byte = block->q[at / 8][lane][at % 4];
            dst[i] = sd_f16_to_f32(block->scale[lane]) * (float)((at / 4 % 2 ? byte >> 4 : byte & 15) - 8);
        }
    }
}

void sd_matrix_unpack_row(const sd_matrix *m, int o, float *dst)
{
    if (m->type == SD_W_Q8 || m->type == SD_W_Q4) {
        unpack_blocks(m, o, dst);
        return;
    }
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
