/* SPDX-License-Identifier: MIT
 *
 * Characters as the metrics' reference tools see them. All text is valid UTF-8. */
#ifndef SD_EVAL_UNICODE_H
#define SD_EVAL_UNICODE_H

#include <stdbool.h>
#include <stdint.h>

#include "src/base/buf.h"
#include "src/base/error.h"

/* The character at text[*at], *at < len; moves *at behind it. */
uint32_t sd_unicode_next(const char *text, size_t len, size_t *at);
void sd_unicode_put(sd_buf *out, uint32_t c);

/* White space where Python's str.split() cuts: Unicode's, and U+001C .. U+001F. */
bool sd_unicode_is_space(uint32_t c);

/* Length without the white space at the end. */
size_t sd_unicode_trim(const char *text, size_t len);

/* Appends the text in lower case: Unicode's full mapping without language-specific rules, final sigma included. */
void sd_unicode_lower(sd_buf *out, const char *text, size_t len);

/* General categories, by PCRE2: its Unicode version decides on new characters (10.42: Unicode 14). */
typedef enum sd_char_class { SD_CHAR_OTHER = 0, SD_CHAR_PUNCTUATION, SD_CHAR_SYMBOL, SD_CHAR_NUMBER } sd_char_class;

typedef struct sd_classes sd_classes;

int sd_classes_create(sd_classes **out, sd_error *err); /* *out is the caller's */
void sd_classes_free(sd_classes *classes);

/* The class of a character. One caller at a time. */
sd_char_class sd_class_of(sd_classes *classes, uint32_t c);

#endif
