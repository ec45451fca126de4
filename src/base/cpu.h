/* SPDX-License-Identifier: MIT */
#ifndef SD_BASE_CPU_H
#define SD_BASE_CPU_H

#include <stdbool.h>

#include "src/base/error.h"

/* Bundles of extensions, lowest to highest; a level includes the ones before it. */
typedef enum sd_cpu_level_id {
    SD_CPU_REF = 0, /* plain C, the compiler's baseline */
    SD_CPU_AVX2,    /* AVX2, FMA, F16C */
    SD_CPU_AVX512,  /* AVX-512 F, BW, DQ, VL */
    SD_CPU_AVX512VNNI, /* AVX-512 VNNI: 8-bit dot products */
    SD_CPU_AVX512BF16, /* AVX-512 BF16: bf16 dot products */
    SD_CPU_LEVELS
} sd_cpu_level_id;

#define SD_CPU_LEVEL_NAMES "ref, avx2, avx512, avx512vnni or avx512bf16"

const char *sd_cpu_level_name(sd_cpu_level_id level); /* "ref", "avx2", "avx512", "avx512vnni", "avx512bf16" */

/* The highest level that both the processor (cpuid) and the operating system (XCR0) support. */
sd_cpu_level_id sd_cpu_detect(void);

/* The level to use: the detected one, or what SKIPDECODE_CPU asks for. Asking for an unknown level or for more than the
 * machine has is SD_ERR_UNSUPPORTED. */
int sd_cpu_select(sd_cpu_level_id *level, sd_error *err);

/* Threads worth starting: CPUs of the affinity mask, hardware threads of one core counted once, and never more than the
 * cgroup's CPU quota rounded down; at least 1. */
int sd_cpu_default_threads(void);

#endif
