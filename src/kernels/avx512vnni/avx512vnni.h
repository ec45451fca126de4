/* SPDX-License-Identifier: MIT
 *
 * What the files of this level share. Include it only in files compiled for AVX-512 with VNNI. */
#ifndef SD_KERNELS_AVX512VNNI_H
#define SD_KERNELS_AVX512VNNI_H

#include <immintrin.h>
#include <string.h>

#include "src/kernels/kernels.h"

/* Loops over a row count known at compile time become straight code. */
#define SD_INLINE static inline __attribute__((always_inline))

void sd_avx512vnni_gemm_q8(const sd_gemm *g, int first_panel, int last_panel);
void sd_avx512vnni_gemm_q4(const sd_gemm *g, int first_panel, int last_panel);

#endif
