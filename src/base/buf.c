/* SPDX-License-Identifier: MIT */
#include "src/base/buf.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"

bool sd_buf_reserve(sd_buf *buf, size_t extra)
{
    size_t need;
    if (buf->failed || !sd_add_size(buf->len, extra, &need) || !sd_add_size(need, 1, &need)) {
        buf->failed = true;
        return false;
    }
    if (need <= buf->cap) {
        return true;
    }
    size_t cap = buf->cap ? buf->cap : 64;
    while (cap < need) {
        cap = cap > SIZE_MAX / 2 ? need : cap * 2;
    }
    char *data = sd_realloc(buf->data, cap, 1);
    if (!data) {
        buf->failed = true;
        return false;
    }
    buf->data = data;
    buf->cap = cap;
    return true;
}

void sd_buf_add(sd_buf *buf, const void *bytes, size_t n)
{
    if (!sd_buf_reserve(buf, n)) {
        return;
    }
    if (n) {
        memcpy(buf->data + buf->len, bytes, n);
    }
    buf->len += n;
    buf->data[buf->len] = '\0';
}

void sd_buf_add_str(sd_buf *buf, const char *text) { sd_buf_add(buf, text, strlen(text)); }

void sd_buf_printf(sd_buf *buf, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n < 0 || !sd_buf_reserve(buf, (size_t)n)) {
        buf->failed = true;
        return;
    }
    va_start(args, format);
    (void)vsnprintf(buf->data + buf->len, (size_t)n + 1, format, args);
    va_end(args);
    buf->len += (size_t)n;
}

void sd_buf_clear(sd_buf *buf)
{
    buf->len = 0;
    if (buf->data) {
        buf->data[0] = '\0';
    }
}

void sd_buf_free(sd_buf *buf)
{
    sd_free(buf->data);
    *buf = (sd_buf){0};
}
