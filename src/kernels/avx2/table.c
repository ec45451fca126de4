/* SPDX-License-Identifier: MIT */
#include "src/kernels/avx2/avx2.h"

void sd_kernels_init_avx2(sd_kernels *table)
{
    table->name = "avx2";
    table->gemm[SD_W_F32] = sd_avx2_gemm_f32;
    table->gemm[SD_W_BF16] = sd_avx2_gemm_bf16;
    table->gemm[SD_W_Q8] = sd_avx2_gemm_q8;
    table->gemm[SD_W_Q4] = sd_avx2_gemm_q4;
    table->pack_input[SD_W_Q8] = sd_avx2_pack_input_q8;
    table->pack_input[SD_W_Q4] = sd_avx2_pack_input_q8;
    table->quantise[SD_W_Q8] = sd_avx2_quantise_q8;
    table->quantise[SD_W_Q4] = sd_avx2_quantise_q4;
    table->to_f16 = sd_avx2_to_f16;
    table->attention_f16 = sd_avx2_attention_f16;
    table->layernorm = sd_avx2_layernorm;
    table->gelu = sd_avx2_gelu;
    table->gelu_tanh = sd_avx2_gelu_tanh;
    table->attention = sd_avx2_attention;
    table->argmax = sd_avx2_argmax;
}
