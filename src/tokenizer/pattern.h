/* SPDX-License-Identifier: MIT
 *
 * Cutting text into the pieces that are merged each by itself: words with the space before them, numbers, punctuation,
 * white space. The one pattern so far is GPT-2's. */
#ifndef SD_TOKENIZER_PATTERN_H
#define SD_TOKENIZER_PATTERN_H

#include "src/base/error.h"

typedef struct sd_pattern sd_pattern; /* immutable, used by any number of threads */
typedef struct sd_matcher sd_matcher; /* working memory of one call */

/* GPT-2's pattern as files spell it, for comparison with theirs. */
extern const char sd_pattern_gpt2[];

/* jit false: interpret the pattern, as happens where the system forbids making code. *out is the caller's. */
int sd_pattern_create(sd_pattern **out, bool jit, sd_error *err);
void sd_pattern_free(sd_pattern *pattern);

int sd_matcher_create(sd_matcher **out, const sd_pattern *pattern, sd_error *err);
void sd_matcher_free(sd_matcher *matcher);

/* Length of the piece that starts at `at` < len. text: valid UTF-8, [len]; `at` on a character. *piece is 1 or more. */
int sd_pattern_next(const sd_pattern *pattern, sd_matcher *matcher, const char *text, size_t len, size_t at,
                    size_t *piece, sd_error *err);

#endif
