/* SPDX-License-Identifier: MIT
 *
 * FNV-1a, 64 bits (Fowler, Noll, Vo; draft-eastlake-fnv): for tables and for telling whether two things are the same.
 * Not for secrets. */
#ifndef SD_BASE_HASH_H
#define SD_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define SD_HASH_START UINT64_C(0xCBF29CE484222325)

static inline uint64_t sd_hash(uint64_t hash, const void *bytes, size_t n)
{
    const unsigned char *s = bytes;
    for (size_t i = 0; i < n; i++) {
        hash = (hash ^ s[i]) * UINT64_C(0x100000001B3);
    }
    return hash;
}

#endif
