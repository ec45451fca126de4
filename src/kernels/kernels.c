/* SPDX-License-Identifier: MIT
 *
 * The tables of function pointers, and the packed matrices that their products read. */
#include "src/kernels/kernels.h"

#include <assert.h>
#include <pthread.h>

#include "src/base/alloc.h"
#include "src/base/half.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "a bf16 pair is written as one 32-bit word, input 2i low");

/* ---- tables --------------------------------------------------------------------------------------------------------- */

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

/* ---- packed matrices ------------------------------------------------------------------------------------------------ */

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

/* Packing is a transposition. Work goes in squares of ROWS x INPUTS: whole cache lines of the source are read while
 * their ROWS lines fit in the first-level cache even when the row length is a multiple of 4096 bytes (all in one set). */
enum { PACK_ROWS = 8, PACK_INPUTS = 16 };

/* rows <= PACK_ROWS rows of src into the panel whose column of input 0 starts at dst, at dst's output. */
static void pack_f32(float *dst, const float *src, int rows, int k)
{
    for (int i0 = 0; i0 < k; i0 += PACK_INPUTS) {
        const int inputs = k - i0 < PACK_INPUTS ? k - i0 : PACK_INPUTS;
        const float *from = src + i0;
        float *to = dst + (size_t)i0 * SD_PANEL;
        if (rows == PACK_ROWS && inputs == PACK_INPUTS) { /* constant bounds, for the compiler */
            for (int i = 0; i < PACK_INPUTS; i++) {
                for (int r = 0; r < PACK_ROWS; r++) {
                    to[(size_t)i * SD_PANEL + (size_t)r] = from[(size_t)r * (size_t)k + (size_t)i];
                }
            }
        } else {
            for (int i = 0; i < inputs; i++) {
                for (int r = 0; r < rows; r++) {
                    to[(size_t)i * SD_PANEL + (size_t)r] = from[(size_t)r * (size_t)k + (size_t)i];
                }
            }
        }
    }
}

/* The same in bf16: a word of dst holds inputs 2i (low half) and 2i+1 of one output. */
static void pack_bf16(uint32_t *dst, const float *src, int rows, int k)
{
    for (int i0 = 0; i0 < k; i0 += PACK_INPUTS) {
        const int inputs = k - i0 < PACK_INPUTS ? k - i0 : PACK_INPUTS;
        uint16_t square[PACK_ROWS][PACK_INPUTS] = {0};
        for (int r = 0; r < rows; r++) {
            const float *from = src + (size_t)r * (size_t)k + (size_t)i0;
            for (int i = 0; i < inputs; i++) {
                square[r][i] = sd_f32_to_bf16(from[i]);
            }
        }
        uint32_t *to = dst + (size_t)(i0 / 2) * SD_PANEL;
        for (int i = 0; i < inputs; i += 2) {
            for (int r = 0; r < rows; r++) {
                to[(size_t)(i / 2) * SD_PANEL + (size_t)r] = square[r][i] | (uint32_t)square[r][i + 1] << 16;
            }
        }
    }
}

void sd_matrix_pack_rows(sd_matrix *m, int first, int rows, const float *src)
{
    const size_t columns = m->type == SD_W_F32 ? (size_t)m->k : pairs(m->k);
    for (int done = 0; done < rows;) {
        const int o = first + done, lane = o % SD_PANEL;
        int some = rows - done < PACK_ROWS ? rows - done : PACK_ROWS;
        some = some < SD_PANEL - lane ? some : SD_PANEL - lane;
        const float *from = src + (size_t)done * (size_t)m->k;
        const size_t at = (size_t)(o / SD_PANEL) * columns * SD_PANEL + (size_t)lane;
        if (m->type == SD_W_F32) {
            pack_f32((float *)m->data + at, from, some, m->k);
        } else {
            pack_bf16((uint32_t *)m->data + at, from, some, m->k);
        }
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
