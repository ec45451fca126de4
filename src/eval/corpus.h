/* SPDX-License-Identifier: MIT
 *
 * What metrics compare: texts of a system with one or more references each. */
#ifndef SD_EVAL_CORPUS_H
#define SD_EVAL_CORPUS_H

#include <stddef.h>

/* Text, not NUL-terminated: valid UTF-8, which whoever reads files checks. Borrowed. */
typedef struct sd_str {
    const char *text;
    size_t len;
} sd_str;

/* All arrays are borrowed. A text may be empty; a segment without references scores against nothing. */
typedef struct sd_corpus {
    size_t n;             /* segments */
    const sd_str *hyps;   /* [n] the system's texts */
    const size_t *first;  /* [n + 1] references of segment i: refs[first[i]] .. refs[first[i + 1] - 1] */
    const sd_str *refs;   /* [first[n]] */
    const sd_str *sources; /* [n] what was to be said, for slots; NULL: not known */
} sd_corpus;

#endif
