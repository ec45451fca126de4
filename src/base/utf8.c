/* SPDX-License-Identifier: MIT */
#include "src/base/utf8.h"

#include <string.h>

static const char replacement[] = "\xEF\xBF\xBD";

int sd_utf8_next(const unsigned char *text, size_t n)
{
    unsigned char lead = text[0];
    if (lead < 0x80) {
        return 1;
    }
    int length = lead >= 0xC2 && lead <= 0xDF ? 2 : (lead & 0xF0u) == 0xE0u ? 3 : lead >= 0xF0 && lead <= 0xF4 ? 4 : 0;
    if (length == 0) {
        return -1;
    }
    /* Only the second byte has a range of its own: no overlong forms, no surrogates, nothing past U+10FFFF. */
    unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    for (int i = 1; i < length; i++) {
        if ((size_t)i >= n) {
            return 0;
        }
        if (text[i] < low || text[i] > high) {
            return -i;
        }
        low = 0x80;
        high = 0xBF;
    }
    return length;
}

bool sd_utf8_valid(const char *text, size_t n)
{
    const unsigned char *s = (const unsigned char *)text;
    for (size_t i = 0; i < n;) {
        int length = sd_utf8_next(s + i, n - i);
        if (length <= 0) {
            return false;
        }
        i += (size_t)length;
    }
    return true;
}

/* Appends the characters of s that are complete; returns how many bytes were used up. */
static size_t take_complete(const unsigned char *s, size_t n, sd_buf *out)
{
    size_t i = 0;
    while (i < n) {
        int length = sd_utf8_next(s + i, n - i);
        if (length == 0) {
            break;
        }
        if (length > 0) {
            sd_buf_add(out, s + i, (size_t)length);
            i += (size_t)length;
        } else {
            sd_buf_add(out, replacement, 3);
            i += (size_t)-length;
        }
    }
    return i;
}

void sd_utf8_sanitize(sd_buf *out, const char *text, size_t n)
{
    if (take_complete((const unsigned char *)text, n, out) < n) {
        sd_buf_add(out, replacement, 3);
    }
}

void sd_utf8_push(sd_utf8_stream *stream, const char *piece, size_t n, sd_buf *out)
{
    const unsigned char *s = (const unsigned char *)piece;
    while (stream->n_held > 0 && n > 0) {
        unsigned char joined[4];
        memcpy(joined, stream->held, (size_t)stream->n_held);
        joined[stream->n_held] = *s;
        int length = sd_utf8_next(joined, (size_t)stream->n_held + 1);
        if (length < 0) { /* what was held is malformed; the new byte starts afresh */
            sd_buf_add(out, replacement, 3);
            stream->n_held = 0;
            break;
        }
        s++;
        n--;
        if (length > 0) {
            sd_buf_add(out, joined, (size_t)length);
            stream->n_held = 0;
        } else {
            stream->held[stream->n_held] = joined[stream->n_held];
            stream->n_held++;
        }
    }
    size_t used = take_complete(s, n, out);
    if (used < n) {
        memcpy(stream->held, s + used, n - used);
        stream->n_held = (int)(n - used);
    }
}

void sd_utf8_flush(sd_utf8_stream *stream, sd_buf *out)
{
    if (stream->n_held > 0) {
        sd_buf_add(out, replacement, 3);
        stream->n_held = 0;
    }
}
