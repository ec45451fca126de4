/* SPDX-License-Identifier: MIT
 *
 * FNV-1a, 64 bits (Fowler, Noll, Vo; draft-eastlake-fnv): for tables and for telling whether two things are the same.
 * Not for secrets. */
#ifndef SD_BASE_HASH_H
#define SD_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define SD_HASH_START UINT64_C(0xCBF29CE484222325)

static inline uint64_t sd_hash(uint64_t hash, const void *bytes, size_t n)
{
    const unsigned char *s = bytes;
    for (size_t i = 0; i < n; i++) {
        hash = (hash ^ s[i]) * UINT64_C(0x100000001B3);
    }
    return hash;
}

/* The same on eight lanes of 64-bit words, for gigabytes: the steps of the lanes overlap, where FNV-1a waits for its
 * own last one. Any one word that changes, changes the hash. */
typedef struct sd_hash_wide {
    uint64_t lane[8], bytes;
} sd_hash_wide;

#define SD_HASH_WIDE_START ((sd_hash_wide){{1, 2, 3, 4, 5, 6, 7, 8}, 0})

/* Every call but the last brings a multiple of 64 bytes; an incomplete line counts as filled up with zeros. */
static inline void sd_hash_wide_add(sd_hash_wide *hash, const void *bytes, size_t n)
{
    const unsigned char *s = bytes;
    sd_hash_wide h = *hash;
    h.bytes += n;
    for (size_t at = 0; at < n; at += sizeof h.lane) {
        uint64_t line[8] = {0};
        if (n - at >= sizeof line) {
            memcpy(line, s + at, sizeof line);
        } else {
            memcpy(line, s + at, n - at);
        }
        for (int i = 0; i < 8; i++) {
            const uint64_t x = h.lane[i] ^ line[i]; /* turned, or the highest bits would never reach others */
            h.lane[i] = (x << 29 | x >> 35) * UINT64_C(0x9E3779B97F4A7C15);
        }
    }
    *hash = h;
}

static inline uint64_t sd_hash_wide_end(const sd_hash_wide *hash) { return sd_hash(SD_HASH_START, hash, sizeof *hash); }

#endif
