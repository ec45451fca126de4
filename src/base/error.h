/* SPDX-License-Identifier: MIT */
#ifndef SD_BASE_ERROR_H
#define SD_BASE_ERROR_H

#include "include/skipdecode/skipdecode.h"

/* Fills *err (NULL: nothing to fill) with `code` and a formatted sentence, cut at the field's size on a UTF-8 boundary;
 * control characters and malformed UTF-8 (of names that files hold) become question marks.
 * Returns code, so that a failing function ends with `return sd_fail(err, SD_ERR_..., "...")`. */
int sd_fail(sd_error *err, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The same for a failed system call: ": " and strerror(errno) are appended. Code SD_ERR_IO; SD_ERR_MEMORY on ENOMEM. */
int sd_fail_errno(sd_error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Puts "prefix: " in front of the message that *err holds: a caller names the file it was reading. Returns code. */
int sd_fail_prefix(sd_error *err, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

int sd_fail_memory(sd_error *err, size_t bytes, const char *what);

#endif
