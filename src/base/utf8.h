/* SPDX-License-Identifier: MIT
 *
 * UTF-8 as Unicode 15 table 3-7 defines it. A malformed sequence is replaced by one U+FFFD per maximal subpart. */
#ifndef SD_BASE_UTF8_H
#define SD_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

#include "src/base/buf.h"

/* Looks at the first character of text[0..n), n > 0.
 * Returns its length in bytes if it is well-formed; 0 if the bytes are a proper beginning of one and more may come;
 * -m if the first m bytes are a maximal subpart of a malformed sequence. */
int sd_utf8_next(const unsigned char *text, size_t n);

bool sd_utf8_valid(const char *text, size_t n);

/* Appends text to out with malformed sequences replaced; an unfinished end is replaced too. */
void sd_utf8_sanitize(sd_buf *out, const char *text, size_t n);

/* A stream of pieces (tokens) that may cut characters: push holds back an unfinished character, at most 3 bytes. */
typedef struct sd_utf8_stream {
    unsigned char held[4];
    int n_held;
} sd_utf8_stream;

void sd_utf8_push(sd_utf8_stream *stream, const char *piece, size_t n, sd_buf *out); /* appends whole characters */
void sd_utf8_flush(sd_utf8_stream *stream, sd_buf *out); /* at the end: a held beginning becomes U+FFFD */

#endif
