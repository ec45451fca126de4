/* SPDX-License-Identifier: MIT */
#ifndef SD_TESTS_FUZZ_FUZZ_H
#define SD_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* libFuzzer's entry point: feeds one input to one reader. Returns 0. A finding is a crash, a sanitizer's report, or
 * sd_fuzz_require. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Aborts, naming what is broken. */
#define sd_fuzz_require(condition) ((condition) ? (void)0 : sd_fuzz_fail(#condition, __FILE__, __LINE__))

#include <stdio.h>
#include <stdlib.h>

_Noreturn static inline void sd_fuzz_fail(const char *condition, const char *file, int line)
{
    fprintf(stderr, "%s:%d: %s\n", file, line, condition);
    abort();
}

#endif
