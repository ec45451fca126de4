/* SPDX-License-Identifier: MIT */
#include "src/kernels/avx512/avx512.h"

void sd_kernels_init_avx512(sd_kernels *table)
{
    table->name = "avx512";
    table->gemm[SD_W_F32] = sd_avx512_gemm_f32;
    table->gemm[SD_W_BF16] = sd_avx512_gemm_bf16;
    table->layernorm = sd_avx512_layernorm;
    table->gelu = sd_avx512_gelu;
    table->gelu_tanh = sd_avx512_gelu_tanh;
    table->attention = sd_avx512_attention;
    table->attention_f16 = sd_avx512_attention_f16;
    table->argmax = sd_avx512_argmax;
}
