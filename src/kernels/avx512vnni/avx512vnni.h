/* SPDX-License-Identifier: MIT
 *
 * What the files of this level share. Include it only in files compiled for AVX-512 with VNNI. */
#ifndef SD_KERNELS_AVX512VNNI_H
#define SD_KERNELS_AVX512VNNI_H

#include <string.h>

#include "src/kernels/avx512/avx512.h"

void sd_avx512vnni_gemm_q8(const sd_gemm *g, int first_panel, int last_panel);
void sd_avx512vnni_gemm_q4(const sd_gemm *g, int first_panel, int last_panel);

#endif
