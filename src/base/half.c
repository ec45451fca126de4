/* SPDX-License-Identifier: MIT */
#include "src/base/half.h"

uint16_t sd_f32_to_f16(float x)
{
    uint32_t u = sd_f32_bits(x);
    uint16_t sign = (uint16_t)((u >> 16) & 0x8000u);
    uint32_t magnitude = u & 0x7FFFFFFFu;
    if (magnitude > 0x7F800000u) {
        return (uint16_t)(sign | 0x7E00u);
    }
    if (magnitude >= 0x477FF000u) { /* 65520 and up round to infinity */
        return (uint16_t)(sign | 0x7C00u);
    }
    if (magnitude < 0x38800000u) { /* below 2^-14: subnormal; adding 0.5 lets the FPU round at the right bit */
        uint32_t rounded = sd_f32_bits(sd_bits_f32(magnitude) + 0.5f) - 0x3F000000u;
        return (uint16_t)(sign | rounded);
    }
    uint32_t odd = (magnitude >> 13) & 1u;
    return (uint16_t)(sign | ((magnitude - 0x38000000u + 0xFFFu + odd) >> 13));
}

void sd_f16_to_f32_array(float *dst, const void *src, size_t n)
{
    const unsigned char *bytes = src;
    for (size_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, bytes + 2 * i, sizeof h);
        dst[i] = sd_f16_to_f32(h);
    }
}

void sd_bf16_to_f32_array(float *dst, const void *src, size_t n)
{
    const unsigned char *bytes = src;
    for (size_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, bytes + 2 * i, sizeof h);
        dst[i] = sd_bf16_to_f32(h);
    }
}
