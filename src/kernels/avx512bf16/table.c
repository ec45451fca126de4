/* SPDX-License-Identifier: MIT */
#include "src/kernels/avx512bf16/avx512bf16.h"

void sd_kernels_init_avx512bf16(sd_kernels *table)
{
    table->name = "avx512bf16";
    table->gemm[SD_W_BF16] = sd_avx512bf16_gemm_bf16;
    table->pack_input[SD_W_BF16] = sd_avx512bf16_pack_input;
}
