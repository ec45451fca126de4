/* SPDX-License-Identifier: MIT */
#include "src/base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* vsnprintf cuts anywhere; a message must stay valid UTF-8 for a terminal and for JSON. */
static void trim_partial_character(char *s)
{
    size_t n = strlen(s);
    size_t i = n;
    while (i > 0 && n - i < 4 && ((unsigned char)s[i - 1] & 0xC0u) == 0x80u) {
        i--;
    }
    if (i == 0) {
        return;
    }
    unsigned char lead = (unsigned char)s[i - 1];
    size_t need = lead >= 0xF0u ? 4 : lead >= 0xE0u ? 3 : lead >= 0xC0u ? 2 : 1;
    if (n - (i - 1) < need) {
        s[i - 1] = '\0';
    }
}

static void set_message(sd_error *err, int code, const char *format, va_list args)
{
    err->code = code;
    (void)vsnprintf(err->message, sizeof err->message, format, args);
    trim_partial_character(err->message);
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
        trim_partial_character(err->message);
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
        trim_partial_character(err->message);
    }
    return code;
}

int sd_fail_memory(sd_error *err, size_t bytes, const char *what)
{
    return sd_fail(err, SD_ERR_MEMORY, "out of memory: %zu bytes for %s", bytes, what);
}
