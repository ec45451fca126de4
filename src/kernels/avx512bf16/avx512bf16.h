/* SPDX-License-Identifier: MIT
 *
 * What the files of this level share. Include it only in files compiled for AVX-512 with BF16. */
#ifndef SD_KERNELS_AVX512BF16_H
#define SD_KERNELS_AVX512BF16_H

#include <string.h>

#include "src/kernels/avx512/avx512.h"

void sd_avx512bf16_gemm_bf16(const sd_gemm *g, int first_panel, int last_panel);
void sd_avx512bf16_pack_input(void *dst, const float *x, int k);

#endif
