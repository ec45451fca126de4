/* SPDX-License-Identifier: MIT
 *
 * The packed matrices that the products read. */
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
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

#if defined(__SSE2__)
static __m128 load_words(const char *at)
{
    return _mm_castsi128_ps(_mm_loadu_si128((const __m128i *)(const void *)at));
}
#endif

/* to[i][r] = from[r][i] for `rows` rows of `columns` 32-bit words, whatever they hold; to_stride in words, from_stride
 * in bytes. `from` may have any alignment. */
static void transpose(float *to, size_t to_stride, const char *from, size_t from_stride, size_t rows, size_t columns)
{
    size_t whole_rows = 0, whole_columns = 0;
#if defined(__SSE2__)
    whole_rows = rows / 4 * 4;
    whole_columns = columns / 4 * 4;
    for (size_t r = 0; r < whole_rows; r += 4) {
        for (size_t i = 0; i < whole_columns; i += 4) {
            const char *corner = from + r * from_stride + i * sizeof *to;
            __m128 a = load_words(corner), b = load_words(corner + from_stride);
            __m128 c = load_words(corner + 2 * from_stride), d = load_words(corner + 3 * from_stride);
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
            memcpy(&to[i * to_stride + r], from + r * from_stride + i * sizeof *to, sizeof *to);
        }
    }
}

/* One square of bf16: `inputs` of `rows` rows; dst is the word of the first pair of the first row. */
static void pack_bf16(uint32_t *dst, const float *src, size_t k, size_t rows, size_t inputs)
{
    float square[SQUARE + 1][SQUARE];
    transpose((float *)square, SQUARE, (const char *)src, k * sizeof *src, rows, inputs);
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
                transpose((float *)panel + at, SD_PANEL, (const char *)from, (size_t)k * sizeof *from, height, width);
            } else {
                pack_bf16((uint32_t *)panel + at, from, (size_t)k, height, width);
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
            sd_kernels_selected()->quantise[m->type](panel, lane, some, from, m->k);
        }
        done += some;
    }
}

/* Rows of one panel: a pair of inputs is a word on both sides. */
static void pack_panel_pairs(uint32_t *panel, int lane, int rows, const char *src, int k)
{
    const size_t stride = (size_t)k * sizeof(uint16_t);
    for (int r = 0; r < rows; r += SQUARE) {
        const char *from = src + (size_t)r * stride;
        const size_t height = (size_t)min_int(SQUARE, rows - r);
        for (int i = 0; i < k / 2; i += SQUARE) {
            transpose((float *)(void *)panel + (size_t)i * SD_PANEL + (size_t)(lane + r), SD_PANEL,
                      from + (size_t)i * sizeof(uint32_t), stride, height, (size_t)min_int(SQUARE, k / 2 - i));
        }
        for (size_t j = 0; j < height && k % 2; j++) { /* an odd last input and its partner */
            uint16_t last;
            memcpy(&last, from + (j + 1) * stride - sizeof last, sizeof last);
            panel[(size_t)(k / 2) * SD_PANEL + (size_t)(lane + r) + j] = last;
        }
    }
}

void sd_matrix_pack_rows_bf16(sd_matrix *m, int first, int rows, const void *src)
{
    const size_t bytes = sd_matrix_bytes(SD_W_BF16, 1, m->k);
    for (int done = 0; done < rows;) {
        const int o = first + done, lane = o % SD_PANEL, some = min_int(rows - done, SD_PANEL - lane);
        pack_panel_pairs((uint32_t *)(void *)((char *)m->data + (size_t)(o / SD_PANEL) * bytes), lane, some,
                         (const char *)src + (size_t)done * (size_t)m->k * sizeof(uint16_t), m->k);
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
