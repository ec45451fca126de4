/* SPDX-License-Identifier: MIT
 *
 * IEEE 754 binary16 and bfloat16 <-> binary32, in integer arithmetic so that every machine gives the same bits. */
#ifndef SD_BASE_HALF_H
#define SD_BASE_HALF_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t sd_f32_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static inline float sd_bits_f32(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static inline float sd_bf16_to_f32(uint16_t h) { return sd_bits_f32((uint32_t)h << 16); }

/* Round to nearest, ties to even; NaN stays a (quiet) NaN. */
static inline uint16_t sd_f32_to_bf16(float x)
{
    uint32_t u = sd_f32_bits(x);
    if ((u & 0x7FFFFFFFu) > 0x7F800000u) {
        return (uint16_t)((u >> 16) | 0x40u);
    }
    return (uint16_t)((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
}

static inline float sd_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t exponent = (h >> 10) & 0x1Fu;
    uint32_t fraction = h & 0x3FFu;
    if (exponent == 0x1Fu) {
        return sd_bits_f32(sign | 0x7F800000u | (fraction << 13));
    }
    if (exponent == 0) { /* zero or subnormal: fraction * 2^-24, exact in f32 */
        float x = (float)fraction * 0x1p-24f;
        return sign ? -x : x;
    }
    return sd_bits_f32(sign | ((exponent + 112u) << 23) | (fraction << 13));
}

/* Round to nearest, ties to even; too large becomes infinity. */
uint16_t sd_f32_to_f16(float x);

/* n elements; src may be unaligned (it points into a file). */
void sd_f16_to_f32_array(float *dst, const void *src, size_t n);
void sd_bf16_to_f32_array(float *dst, const void *src, size_t n);

#endif
