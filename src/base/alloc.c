/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "src/base/alloc.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { SD_ALIGNMENT = 64, SD_HUGE_PAGE = 2 << 20 };

static atomic_long fail_at;
static atomic_long tried;

#ifdef SD_ALLOC_GUARD
static _Thread_local int guard_depth;
static _Thread_local const char *guard_promise;
#endif

void sd_alloc_fail_at(long n)
{
    atomic_store(&tried, 0);
    atomic_store(&fail_at, n);
}

long sd_alloc_count(void) { return atomic_load(&tried); }

void sd_alloc_guard_begin(const char *promise)
{
#ifdef SD_ALLOC_GUARD
    guard_promise = promise;
    guard_depth++;
#else
    (void)promise;
#endif
}

void sd_alloc_guard_end(void)
{
#ifdef SD_ALLOC_GUARD
    guard_depth--;
#endif
}

/* Every allocation passes here; false means that this one is to fail. */
static bool admit(void)
{
#ifdef SD_ALLOC_GUARD
    if (guard_depth > 0) {
        fprintf(stderr, "skipdecode: allocation inside a region that promises none: %s\n", guard_promise);
        abort();
    }
#endif
    long n = atomic_fetch_add(&tried, 1) + 1;
    long target = atomic_load(&fail_at);
    return target == 0 || n != target;
}

bool sd_mul_size(size_t a, size_t b, size_t *product) { return !__builtin_mul_overflow(a, b, product); }
bool sd_add_size(size_t a, size_t b, size_t *sum) { return !__builtin_add_overflow(a, b, sum); }

void *sd_malloc(size_t count, size_t size)
{
    size_t bytes;
    if (!sd_mul_size(count, size, &bytes) || !admit()) {
        return NULL;
    }
    return malloc(bytes ? bytes : 1);
}

void *sd_calloc(size_t count, size_t size)
{
    if (!admit()) {
        return NULL;
    }
    return calloc(count ? count : 1, size ? size : 1);
}

void *sd_realloc(void *block, size_t count, size_t size)
{
    size_t bytes;
    if (!sd_mul_size(count, size, &bytes) || !admit()) {
        return NULL;
    }
    return realloc(block, bytes ? bytes : 1);
}

char *sd_strndup(const char *text, size_t len)
{
    char *copy = sd_malloc(len + 1, 1);
    if (copy) {
        memcpy(copy, text, len);
        copy[len] = '\0';
    }
    return copy;
}

char *sd_strdup(const char *text) { return sd_strndup(text, strlen(text)); }

void sd_free(void *block) { free(block); }

void *sd_malloc_aligned(size_t count, size_t size)
{
    size_t bytes;
    if (!sd_mul_size(count, size, &bytes) || bytes > SIZE_MAX - SD_HUGE_PAGE || !admit()) {
        return NULL;
    }
    size_t alignment = bytes >= 2 * (size_t)SD_HUGE_PAGE ? SD_HUGE_PAGE : SD_ALIGNMENT;
    bytes = (bytes + SD_ALIGNMENT) / SD_ALIGNMENT * SD_ALIGNMENT; /* at least one line past the end may be prefetched */
    void *block = NULL;
    if (posix_memalign(&block, alignment, bytes) != 0) {
        return NULL;
    }
    if (alignment == SD_HUGE_PAGE) {
        (void)madvise(block, bytes, MADV_HUGEPAGE); /* advice: streaming gigabytes by 4 KiB pages costs TLB misses */
    }
    return block;
}

void sd_free_aligned(void *block) { free(block); }
