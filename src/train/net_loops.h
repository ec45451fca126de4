/* SPDX-License-Identifier: MIT
 *
 * What the loops of net_math.c and net_attention.c share. SD_CLONES compiles a function for several instruction sets;
 * the loader picks one. (Sanitizers are not ready yet when it does, so builds with one have the baseline.) Unlike the
 * kernels of the decode engine, these follow the machine and not SKIPDECODE_CPU. */
#ifndef SD_TRAIN_NET_LOOPS_H
#define SD_TRAIN_NET_LOOPS_H

#include <stdbool.h>
#include <stdint.h>

#include "src/base/half.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define SD_CLONES __attribute__((target_clones("avx512f", "arch=haswell", "default")))
#else
#define SD_CLONES
#endif

/* e^x for x <= 0 to about 2 units in the last place; below -87 it is 0. Cody-Waite reduction and Taylor's polynomial,
 * in operations that a compiler can do for many x at once. */
static inline __attribute__((always_inline)) float sd_loop_exp(float x)
{
    const float clamped = x < -87.0f ? -87.0f : x;
    const float rounded = clamped * 1.44269504f + 12582912.0f; /* 1.5 * 2^23: the sum's last bits are an integer */
    const float n = rounded - 12582912.0f;
    const float r = (clamped - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.0f / 5040.0f;
    p = p * r + 1.0f / 720.0f;
    p = p * r + 1.0f / 120.0f;
    p = p * r + 1.0f / 24.0f;
    p = p * r + 1.0f / 6.0f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    const float power = sd_bits_f32((sd_f32_bits(rounded) + 127u) << 23);
    return x < -87.0f ? 0.0f : p * power;
}

/* A bijection of 32 bits in which every input bit moves every output bit (Chris Wellons, "Prospecting for hash
 * functions"). */
static inline __attribute__((always_inline)) uint32_t sd_loop_mix(uint32_t x)
{
    x = (x ^ (x >> 16)) * 0x7FEB352Du;
    x = (x ^ (x >> 15)) * 0x846CA68Bu;
    return x ^ (x >> 16);
}

static inline __attribute__((always_inline)) float sd_loop_dropped(float x, uint32_t key, uint32_t i, uint32_t limit,
                                                                  float keep)
{
    return limit == 0 ? x : sd_loop_mix(key + i * 0x9E3779B9u) < limit ? 0.0f : x * keep;
}

static inline __attribute__((always_inline)) void sd_loop_norm_apply(float *y, const float *x, float mean,
                                                                    float inverse, const float *gain,
                                                                    const float *bias, int n)
{
    if (gain && bias) {
        for (int i = 0; i < n; i++) {
            y[i] = (x[i] - mean) * inverse * gain[i] + bias[i];
        }
        return;
    }
    for (int i = 0; i < n; i++) {
        y[i] = (x[i] - mean) * inverse;
    }
}

#endif
