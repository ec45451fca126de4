/* SPDX-License-Identifier: MIT */
#include "src/kernels/gemm.h"

#include <string.h>

/* Bytes of a slice. Small enough that a slice, the rows' inputs and the next slice, which is being fetched, share the
 * second-level cache; large enough that loading and storing the sums is noise. STREAM_AHEAD: how far in front of a tile
 * that reads memory once the fetches run. */
enum { SLICE_BYTES = 64 << 10, STREAM_AHEAD = 8 << 10, COLUMN_BYTES = SD_PANEL * 4 };

static int min_int(int a, int b) { return a < b ? a : b; }

/* All the row tiles of one slice. */
static void multiply_slice(float (*sums)[SD_PANEL], int rows, const float *x, size_t x_stride, const void *w,
                           int inputs, sd_gemm_tile tile, int stream_rows)
{
    const int tiles = (rows + SD_GEMM_TILE_ROWS - 1) / SD_GEMM_TILE_ROWS;
    const int small = rows / tiles, larger = rows % tiles; /* even tiles: 8 rows are 4 + 4, not 6 + 2 */
    const bool far = rows > stream_rows;
    for (int t = 0, r = 0; t < tiles; t++) {
        const int some = small + (t < larger);
        /* Each tile fetches its share of the next slice, so that memory and arithmetic work side by side. */
        const size_t share = (size_t)SLICE_BYTES / (size_t)tiles * (size_t)t;
        const sd_gemm_fetch fetch = {
            .next = (const char *)w + (far ? SLICE_BYTES + share : STREAM_AHEAD),
            .spread = (64 + (size_t)tiles - 1) / (size_t)tiles,
            .far = far,
        };
        tile(sums[r], some, x + (size_t)r * x_stride, x_stride, w, inputs, fetch);
        r += some;
    }
}

static void finish(const sd_gemm *g, int panel, int first_row, int rows, float (*sums)[SD_PANEL])
{
    const int first = panel * SD_PANEL, n = min_int(g->w->n - first, SD_PANEL);
    for (int r = 0; r < rows; r++) {
        float *sum = sums[r];
        const size_t at = (size_t)(first_row + r) * g->y_stride + (size_t)first;
        if (g->bias) {
            for (int o = 0; o < n; o++) {
                sum[o] += g->bias[first + o];
            }
        }
        if (g->act == SD_ACT_RELU) {
            for (int o = 0; o < n; o++) {
                sum[o] = sum[o] < 0.0f ? 0.0f : sum[o]; /* NaN stays NaN */
            }
        }
        if (g->residual) {
            for (int o = 0; o < n; o++) {
                sum[o] += g->residual[at + (size_t)o];
            }
        }
        memcpy(g->y + at, sum, (size_t)n * sizeof(float));
    }
}

void sd_gemm_blocked(const sd_gemm *g, int first_panel, int last_panel, sd_gemm_tile tile, int stream_rows)
{
    _Alignas(64) float sums[SD_GEMM_BLOCK_ROWS][SD_PANEL];
    /* A column is one input in f32, a pair in bf16: 256 bytes either way. */
    const int k = g->w->k, per_column = g->w->type == SD_W_F32 ? 1 : 2;
    const int columns = (k + per_column - 1) / per_column, step = SLICE_BYTES / COLUMN_BYTES;
    for (int panel = first_panel; panel < last_panel; panel++) {
        const char *w = (const char *)g->w->data + (size_t)panel * (size_t)columns * COLUMN_BYTES;
        for (int row = 0; row < g->rows; row += SD_GEMM_BLOCK_ROWS) {
            const int rows = min_int(g->rows - row, SD_GEMM_BLOCK_ROWS);
            memset(sums, 0, (size_t)rows * sizeof sums[0]);
            for (int c = 0; c < columns; c += step) {
                const int i = c * per_column, inputs = min_int(k - i, step * per_column);
                multiply_slice(sums, rows, g->x + (size_t)row * g->x_stride + (size_t)i, g->x_stride,
                               w + (size_t)c * COLUMN_BYTES, inputs, tile, stream_rows);
            }
            finish(g, panel, row, rows, sums);
        }
    }
}

/* ---- packed inputs ---- */

/* A slice of a panel stays in the first-level cache while all rows pass over it. */
enum { PART_BYTES = 16 << 10 };

static int max_int(int a, int b) { return a > b ? a : b; }

/* All the row tiles of one slice. */
static void multiply_part(sd_gemm_part part, float (*sums)[SD_PANEL], int rows, size_t slice_bytes, int steps,
                          sd_gemm_packed_tile tile)
{
    const int tiles = (rows + SD_GEMM_PACKED_ROWS - 1) / SD_GEMM_PACKED_ROWS;
    const int small = rows / tiles, larger = rows % tiles;
    const int lines = (int)(slice_bytes / 64) / part.blocks; /* of a block */
    const char *w = part.w;
    const char *x = part.x;
    for (int t = 0, r = 0; t < tiles; t++) {
        part.rows = small + (t < larger);
        part.sums = sums[r];
        part.x = x + (size_t)r * part.x_stride;
        part.far_lines = tiles > 1 ? (lines + tiles * steps - 1) / (tiles * steps) : 0;
        const size_t share = (size_t)(part.far_lines * steps * part.blocks) * 64 * (size_t)t;
        part.next = w + (tiles > 1 ? slice_bytes + share : STREAM_AHEAD);
        tile(&part);
        r += part.rows;
    }
}

void sd_gemm_packed(const sd_gemm *g, int first_panel, int last_panel, sd_gemm_packed_tile tile, size_t block_bytes,
                    int steps)
{
    _Alignas(64) float sums[SD_GEMM_BLOCK_ROWS][SD_PANEL];
    const int k = g->w->k, blocks = sd_blocks(k);
    const size_t panel_bytes = sd_matrix_bytes(g->w->type, 1, k);
    for (int panel = first_panel; panel < last_panel; panel++) {
        const char *w = (const char *)g->w->data + (size_t)panel * panel_bytes;
        for (int row = 0; row < g->rows; row += SD_GEMM_BLOCK_ROWS) {
            const int rows = min_int(g->rows - row, SD_GEMM_BLOCK_ROWS);
            /* few rows pass over the whole panel at once */
            const int step = rows <= SD_GEMM_PACKED_ROWS ? blocks : max_int(1, PART_BYTES / (int)block_bytes);
            memset(sums, 0, (size_t)rows * sizeof sums[0]);
            for (int b = 0; b < blocks; b += step) {
                const sd_gemm_part part = {
                    .x = (const char *)g->packed_x + (size_t)row * g->packed_stride,
                    .x_stride = g->packed_stride,
                    .k = k,
                    .first = b,
                    .blocks = min_int(step, blocks - b),
                    .w = w + (size_t)b * block_bytes,
                };
                multiply_part(part, sums, rows, (size_t)part.blocks * block_bytes, steps, tile);
            }
            finish(g, panel, row, rows, sums);
        }
    }
}
