/* SPDX-License-Identifier: MIT
 *
 * From weights to blocks, in plain C: what every other level must equal byte for byte. */
#include <math.h>
#include <stdint.h>

#include "src/base/half.h"
#include "src/kernels/kernels.h"
#include "src/kernels/ref/ref.h"

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

const float sd_q4_divisor[SD_Q4_DIVISORS] = {8.0f, 7.6f, 7.2f, 6.8f, 7.0f, 6.5f, 8.4f};

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
    const float max = largest(x, n);
    float best = NAN; /* of values that are not finite, or beyond f16: so will be what comes of them */
    double least = INFINITY;
    for (int i = 0; i < SD_Q4_DIVISORS; i++) {
        const float scale = sd_f16_to_f32(sd_f32_to_f16(max / sd_q4_divisor[i]));
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

static int block_inputs(int k, int block) { return k - block * SD_BLOCK < SD_BLOCK ? k - block * SD_BLOCK : SD_BLOCK; }

void sd_ref_quantise_q8(void *panel, int lane, int rows, const float *src, int k)
{
    for (int r = 0; r < rows; r++, src += k) {
        for (int b = 0; b < sd_blocks(k); b++) {
            pack_q8((sd_q8_block *)panel + b, lane + r, src + b * SD_BLOCK, block_inputs(k, b));
        }
    }
}

void sd_ref_quantise_q4(void *panel, int lane, int rows, const float *src, int k)
{
    for (int r = 0; r < rows; r++, src += k) {
        for (int b = 0; b < sd_blocks(k); b++) {
            pack_q4((sd_q4_block *)panel + b, lane + r, src + b * SD_BLOCK, block_inputs(k, b));
        }
    }
}
