/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/base/half.h"
#include "tests/kernels/check.h"

enum { FRONT_FLOATS = 64 };

static const uint32_t blank = 0x7FC5A5A5u; /* a quiet NaN, and no number that a kernel would produce */

static float *band(const guard *g) { return g->data - FRONT_FLOATS; }

guard guard_new(size_t n)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t bytes = (FRONT_FLOATS + n) * sizeof(float), open_bytes = (bytes + page - 1) / page * page;
    char *map = mmap(NULL, open_bytes + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED || mprotect(map + open_bytes, page, PROT_NONE) != 0) {
        perror("checkkernels: cannot map a guarded array");
        exit(2);
    }
    guard g = {.data = (float *)(void *)(map + open_bytes) - n, .n = n, .map = map, .map_bytes = open_bytes + page};
    for (float *x = band(&g); x < g.data + n; x++) {
        *x = sd_bits_f32(blank);
    }
    return g;
}

bool guard_is_blank(float x) { return sd_f32_bits(x) == blank; }

bool guard_intact(const guard *g)
{
    for (const float *x = band(g); x < g->data; x++) {
        if (!guard_is_blank(*x)) {
            return false;
        }
    }
    return true;
}

void guard_free(guard *g)
{
    munmap(g->map, g->map_bytes);
    *g = (guard){0};
}

void check_fill(float *x, size_t n, check_values kind, sd_rng *rng)
{
    for (size_t i = 0; i < n; i++) {
        const double u = 2 * sd_rng_double(rng) - 1;
        double v = u;
        switch (kind) {
        case VALUES_ZERO: v = 0; break;
        case VALUES_LARGE: v = u * 1e15; break;
        case VALUES_DENORMAL: v = u * 1e-38; break;
        case VALUES_MIXED:
            for (uint64_t e = sd_rng_below(rng, 13); e > 0; e--) {
                v *= 10;
            }
            v *= 1e-6;
            break;
        case VALUES_OFFSET: v = 1000 + u * 0.01; break;
        case VALUES_NORMAL:
        case VALUES_KINDS: break;
        }
        x[i] = (float)v;
    }
}
