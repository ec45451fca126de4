/* SPDX-License-Identifier: MIT
 *
 * How a product is cut into blocks, common to the SIMD levels; a level brings only the innermost tile.
 *
 * A panel is taken in slices of its inputs that stay in the second-level cache, and each slice is multiplied with
 * the rows, a few at a time. Between slices the sums wait in memory as f32, which loses nothing: however rows and
 * inputs are cut, each output adds its products one by one in the order of the inputs. */
#ifndef SD_KERNELS_GEMM_H
#define SD_KERNELS_GEMM_H

#include <stdbool.h>

#include "src/kernels/kernels.h"

enum {
    SD_GEMM_TILE_ROWS = 6,  /* most rows in one call of a tile: what the registers hold */
    SD_GEMM_PACKED_ROWS = 4, /* the same for packed inputs */
    SD_GEMM_BLOCK_ROWS = 96 /* rows whose sums wait between slices */
};

/* Memory that will be wanted next. A tile asks for the line at `next` and moves on by `spread` bytes, four times for
 * each column (one f32 input or one bf16 pair of 64 outputs, 256 bytes) that it multiplies. */
typedef struct sd_gemm_fetch {
    const char *next;
    size_t spread;
    bool far; /* into the second-level cache, for the next slice; else into the first, for what comes in a moment */
} sd_gemm_fetch;

/* sums[r][o] += sum_i x[r][i] * w[o][i] over `inputs` inputs, the next product after what sums holds, with one rounding
 * a step (FMA). sums: [rows][SD_PANEL], 64-byte aligned; 1 <= rows <= SD_GEMM_TILE_ROWS. x: row stride x_stride floats,
 * `inputs` of each are read and no more. w: the slice of the panel, in its packed form. */
typedef void (*sd_gemm_tile)(float *sums, int rows, const float *x, size_t x_stride, const void *w, int inputs,
                             sd_gemm_fetch fetch);

/* stream_rows: up to this number of rows the tile reads a slice once, front to back. */
void sd_gemm_blocked(const sd_gemm *g, int first_panel, int last_panel, sd_gemm_tile tile, int stream_rows);

/* ---- products of packed inputs (kernels.h) ---- */

/* A part of one panel: `blocks` blocks of SD_BLOCK inputs from `first` on, for some rows. */
typedef struct sd_gemm_part {
    float *sums;     /* [rows][SD_PANEL], 64-byte aligned: the part's products are added to what is there */
    const char *x;   /* the first row, packed, from its beginning */
    size_t x_stride; /* bytes */
    int rows;        /* 1 .. SD_GEMM_PACKED_ROWS */
    int k;           /* inputs of a whole row */
    int first, blocks;
    const void *w;   /* the part's blocks of the panel */
    const char *next; /* memory that will be wanted next */
    int far_lines;    /* of the next slice, at each step of a block; 0: a panel is streamed, and what follows is next */
} sd_gemm_part;

/* Next to the loads of `near` lines. Into the second-level cache: into the first, fetches get in the way of the loads
 * (docs/SPEED.md). Where a panel is streamed only every second line, since its neighbour comes along. */
static inline __attribute__((always_inline)) void sd_gemm_fetch_next(const char **next, const int near, int far_lines)
{
    if (far_lines == 0) {
        for (int j = 0; j < near; j += 2, *next += 128) {
            __builtin_prefetch(*next, 0, 2);
        }
    } else {
        for (int j = 0; j < far_lines; j++, *next += 64) {
            __builtin_prefetch(*next, 0, 2);
        }
    }
}

typedef void (*sd_gemm_packed_tile)(const sd_gemm_part *part);

/* block_bytes: of SD_BLOCK inputs of a panel. steps: how many times in a block the tile fetches. */
void sd_gemm_packed(const sd_gemm *g, int first_panel, int last_panel, sd_gemm_packed_tile tile, size_t block_bytes,
                    int steps);

#endif
