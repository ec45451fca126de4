/* SPDX-License-Identifier: MIT
 *
 * What other levels take over from plain C for the ends that do not fill a vector. */
#ifndef SD_KERNELS_REF_H
#define SD_KERNELS_REF_H

enum { SD_Q4_DIVISORS = 7 };
extern const float sd_q4_divisor[SD_Q4_DIVISORS]; /* largest magnitude of a block / scale: what is tried, in order */

void sd_ref_quantise_q8(void *panel, int lane, int rows, const float *src, int k);
void sd_ref_quantise_q4(void *panel, int lane, int rows, const float *src, int k);

#endif
