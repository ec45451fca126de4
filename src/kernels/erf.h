/* SPDX-License-Identifier: MIT
 *
 * Constants of the activations, shared by the SIMD levels. */
#ifndef SD_KERNELS_ERF_H
#define SD_KERNELS_ERF_H

/* The normal distribution's tail 1 - Phi(a) = erfc(a / sqrt 2) / 2 for a >= 0 is e^(-a^2/2) times a polynomial in
 * u = 1 / (1 + P a) without a constant term. Fitted over 0 .. 14 for the smallest largest relative error, which is
 * 3.2e-8 (3e-7 after rounding to f32 throughout); past 14 the exponential is 0 in f32. */
#define SD_ERF_P 0.35f
enum { SD_ERF_TERMS = 9 };
static const float sd_erf_tail[SD_ERF_TERMS] = {
    0x1.1df1d4p-3f, 0x1.1e6fe6p-3f, 0x1.ead5e2p-4f, 0x1.b0291ap-4f, -0x1.7aa11ep-6f,
    0x1.45fcfep-3f, -0x1.05d9e8p-2f, 0x1.26da96p-3f, -0x1.dd86cep-6f,
};

/* -2 sqrt(2/pi) and 0.044715 times that: the exponent -2u of the tanh approximation is x (C1 + C3 x^2). */
#define SD_GELU_TANH_1 (-1.59576912160573071176f)
#define SD_GELU_TANH_3 (-0.07135481627260025150f)

#endif
