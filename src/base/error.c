/* SPDX-License-Identifier: MIT */
#include "src/base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/utf8.h"

/* A message stays clean UTF-8 for terminals, logs and JSON, though it quotes names from files: control characters and
 * malformed bytes become question marks, and a character that vsnprintf cut at the end is dropped. */
static void clean(char *s)
{
    size_t n = strlen(s);
    for (size_t i = 0; i < n;) {
        int length = sd_utf8_next((const unsigned char *)s + i, n - i);
        if (length == 0) {
            s[i] = '\0';
            return;
        }
        if (length == 1 && ((unsigned char)s[i] < 0x20 || s[i] == 0x7F)) {
            s[i] = '?';
        }
        for (int j = 0; j < -length; j++) {
            s[i + (size_t)j] = '?';
        }
        i += (size_t)abs(length);
    }
}

static void set_message(sd_error *err, int code, const char *format, va_list args)
{
    err->code = code;
    (void)vsnprintf(err->message, sizeof err->message, format, args);
    clean(err->message);
}

int sd_fail(sd_error *err, int code, const char *format, ...)
{
    if (err) {
        va_list args;
        va_start(args, format);
        set_message(err, code, format, args);
        va_end(args);
    }
    return code;
}

int sd_fail_errno(sd_error *err, const char *format, ...)
{
    int saved = errno;
    int code = saved == ENOMEM ? SD_ERR_MEMORY : SD_ERR_IO;
    if (err) {
        va_list args;
        va_start(args, format);
        set_message(err, code, format, args);
        va_end(args);
        size_t n = strlen(err->message);
        (void)snprintf(err->message + n, sizeof err->message - n, ": %s", strerror(saved));
        clean(err->message);
    }
    return code;
}

int sd_fail_prefix(sd_error *err, int code, const char *format, ...)
{
    if (err) {
        char old[sizeof err->message];
        memcpy(old, err->message, sizeof old);
        va_list args;
        va_start(args, format);
        set_message(err, code, format, args);
        va_end(args);
        size_t n = strlen(err->message);
        (void)snprintf(err->message + n, sizeof err->message - n, ": %s", old);
        clean(err->message);
    }
    return code;
}

int sd_fail_memory(sd_error *err, size_t bytes, const char *what)
{
    return sd_fail(err, SD_ERR_MEMORY, "out of memory: %zu bytes for %s", bytes, what);
}
