/* SPDX-License-Identifier: MIT */
#include "src/kernels/kernels.h"

#include <assert.h>
#include <pthread.h>

static sd_kernels tables[SD_CPU_LEVELS];

/* The init functions of a level are compiled for it, so that even they may only run where the machine supports it. */
static void build_tables(void)
{
    sd_kernels_init_ref(&tables[SD_CPU_REF]);
#if defined(__x86_64__)
    const sd_cpu_level_id best = sd_cpu_detect();
    if (best >= SD_CPU_AVX2) {
        tables[SD_CPU_AVX2] = tables[SD_CPU_REF];
        sd_kernels_init_avx2(&tables[SD_CPU_AVX2]);
    }
    if (best >= SD_CPU_AVX512) {
        tables[SD_CPU_AVX512] = tables[SD_CPU_AVX2];
        sd_kernels_init_avx512(&tables[SD_CPU_AVX512]);
    }
    if (best >= SD_CPU_AVX512VNNI) {
        tables[SD_CPU_AVX512VNNI] = tables[SD_CPU_AVX512];
        sd_kernels_init_avx512vnni(&tables[SD_CPU_AVX512VNNI]);
    }
    if (best >= SD_CPU_AVX512BF16) {
        tables[SD_CPU_AVX512BF16] = tables[SD_CPU_AVX512VNNI];
        sd_kernels_init_avx512bf16(&tables[SD_CPU_AVX512BF16]);
    }
#endif
}

const sd_kernels *sd_kernels_get(sd_cpu_level_id level)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, build_tables);
    assert(tables[level].name && "the level must be one that sd_cpu_select allowed");
    return &tables[level];
}

static const sd_kernels *selected;

static void select_table(void)
{
    sd_cpu_level_id level;
    selected = sd_kernels_get(sd_cpu_select(&level, NULL) == SD_OK ? level : SD_CPU_REF);
}

const sd_kernels *sd_kernels_selected(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, select_table);
    return selected;
}
