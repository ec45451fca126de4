/* SPDX-License-Identifier: MIT
 *
 * xoshiro256** seeded by splitmix64 (Blackman and Vigna, "Scrambled linear pseudorandom number generators", 2021):
 * small, fast, the same everywhere. One state per row, so a row's samples do not depend on its batch. */
#ifndef SD_BASE_RNG_H
#define SD_BASE_RNG_H

#include <stdint.h>

typedef struct sd_rng {
    uint64_t s[4];
} sd_rng;

static inline uint64_t sd_rng_splitmix(uint64_t *x)
{
    uint64_t z = (*x += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static inline void sd_rng_seed(sd_rng *rng, uint64_t seed)
{
    for (int i = 0; i < 4; i++) {
        rng->s[i] = sd_rng_splitmix(&seed);
    }
}

static inline uint64_t sd_rng_u64(sd_rng *rng)
{
    uint64_t *s = rng->s;
    uint64_t x = s[1] * 5;
    uint64_t result = ((x << 7) | (x >> 57)) * 9;
    uint64_t t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = (s[3] << 45) | (s[3] >> 19);
    return result;
}

/* Uniform in [0, 1), 53 bits. */
static inline double sd_rng_double(sd_rng *rng) { return (double)(sd_rng_u64(rng) >> 11) * 0x1p-53; }

/* Uniform in 0 .. n-1, n > 0. */
static inline uint64_t sd_rng_below(sd_rng *rng, uint64_t n)
{
    return (uint64_t)(((unsigned __int128)sd_rng_u64(rng) * n) >> 64);
}

#endif
