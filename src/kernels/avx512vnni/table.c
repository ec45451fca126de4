/* SPDX-License-Identifier: MIT */
#include "src/kernels/avx512vnni/avx512vnni.h"

void sd_kernels_init_avx512vnni(sd_kernels *table)
{
    table->name = "avx512vnni";
    table->gemm[SD_W_Q8] = sd_avx512vnni_gemm_q8;
    table->gemm[SD_W_Q4] = sd_avx512vnni_gemm_q4;
}
