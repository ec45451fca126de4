/* SPDX-License-Identifier: MIT
 *
 * What the machine can do at this moment: the speed at which it reads memory, and the most multiply-adds that it does
 * without touching any. Both change from second to second on shared machines, so a measurement means most next to a
 * probe taken right before and right after it. Probes use what the processor has, whatever SKIPDECODE_CPU asks for. */
#ifndef SD_KERNELS_PROBE_H
#define SD_KERNELS_PROBE_H

#include <stddef.h>
#include <stdint.h>

#include "src/base/pool.h"

typedef struct sd_span {
    const void *data; /* 64-byte aligned */
    size_t bytes;     /* what is past the last multiple of 256 is not read */
} sd_span;

/* GB/s at which the pool's threads together read the spans, one after the other. Says something about memory when the
 * spans together are several times the last-level cache. */
double sd_probe_read(sd_pool *pool, const sd_span *spans, int n);

typedef enum sd_peak {
    SD_PEAK_F32,  /* fused multiply-adds */
    SD_PEAK_BF16, /* pairs of bf16 products added to f32 */
    SD_PEAK_INT8, /* fours of 8-bit products added to 32 bits */
    SD_PEAKS
} sd_peak;

const char *sd_peak_name(sd_peak peak); /* "f32", "bf16", "int8" */

/* 1e9 operations a second (a multiply-add is two) that the pool's threads together reach from registers in about 10 ms;
 * 0 where the processor has no such instruction, or there is no probe for it. */
double sd_probe_peak(sd_pool *pool, sd_peak peak);

/* ---- for the files of kernels/<isa>/: overwrite what the level does better ---- */

enum { SD_PROBE_ROUNDS = 2 << 20 };

typedef struct sd_probes {
    uint64_t (*read)(const void *data, size_t bytes); /* bytes: a multiple of 256. The result uses every word */
    struct {
        double (*run)(void);       /* SD_PROBE_ROUNDS rounds; the result depends on all of them. NULL: no probe */
        double operations_a_round;
    } peak[SD_PEAKS];
} sd_probes;

void sd_probes_init_avx2(sd_probes *probes);
void sd_probes_init_avx512(sd_probes *probes);
void sd_probes_init_avx512vnni(sd_probes *probes);
void sd_probes_init_avx512bf16(sd_probes *probes);

#endif
