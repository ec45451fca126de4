/* SPDX-License-Identifier: MIT
 *
 * Every allocation of the library goes through here, for three reasons: sizes are multiplied with a check, a test can
 * make the n-th one fail, and the token loop can prove that it allocates nothing. */
#ifndef SD_BASE_ALLOC_H
#define SD_BASE_ALLOC_H

#include <stdbool.h>
#include <stddef.h>

/* count * size bytes, zeroed by sd_calloc; NULL when memory is out or the product overflows. Zero bytes give a valid
 * pointer. The caller owns the block and releases it with sd_free. */
void *sd_malloc(size_t count, size_t size);
void *sd_calloc(size_t count, size_t size);
void *sd_realloc(void *block, size_t count, size_t size);
char *sd_strdup(const char *text);
char *sd_strndup(const char *text, size_t len);
void sd_free(void *block);

/* 64-byte aligned, for arrays that kernels stream. Large blocks ask for huge pages. Release with sd_free_aligned. */
void *sd_malloc_aligned(size_t count, size_t size);
void sd_free_aligned(void *block);

/* False when a*b does not fit. */
bool sd_mul_size(size_t a, size_t b, size_t *product);
bool sd_add_size(size_t a, size_t b, size_t *sum);

/* Tests: the n-th allocation from now on (1 = the next) fails, and every later one succeeds; 0 switches it off.
 * sd_alloc_count: allocations tried since the last call of sd_alloc_fail_at. Process-wide. */
void sd_alloc_fail_at(long n);
long sd_alloc_count(void);

/* Between begin and end, an allocation on this thread is a broken promise: builds with SD_ALLOC_GUARD abort with a
 * sentence, others do nothing. May nest. */
void sd_alloc_guard_begin(const char *promise);
void sd_alloc_guard_end(void);

#endif
