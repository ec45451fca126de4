/* SPDX-License-Identifier: MIT */
#ifndef SD_BASE_BUF_H
#define SD_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>

/* A growing byte string. Start from {0}; data is NUL-terminated once anything was added. Release with sd_buf_free. */
typedef struct sd_buf {
    char *data;
    size_t len, cap;
    bool failed; /* an allocation failed: later additions do nothing, and one check at the end is enough */
} sd_buf;

void sd_buf_add(sd_buf *buf, const void *bytes, size_t n);
void sd_buf_add_str(sd_buf *buf, const char *text);
void sd_buf_printf(sd_buf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));
void sd_buf_clear(sd_buf *buf); /* keeps the memory */
bool sd_buf_reserve(sd_buf *buf, size_t extra);
void sd_buf_free(sd_buf *buf);

#endif
