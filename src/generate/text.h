/* SPDX-License-Identifier: MIT
 *
 * The text of one row as it grows: whole characters only, and nothing that may still turn out to be the beginning of a
 * stop string. The same for streaming and for the final text. */
#ifndef SD_GENERATE_TEXT_H
#define SD_GENERATE_TEXT_H

#include "src/base/utf8.h"

typedef struct sd_text {
    sd_buf out;              /* everything so far, the held-back end included */
    size_t sent;             /* bytes of out that were handed on */
    sd_utf8_stream utf8;
    const char *const *stop; /* [n_stop], borrowed */
    int n_stop;
    bool stopped;
} sd_text;

/* Adds a token's bytes. True if a stop string is now complete: out ends before it and takes nothing more. */
bool sd_text_add(sd_text *text, const char *piece, size_t len);

/* The row has ended: an unfinished character becomes U+FFFD and nothing is held back any more. True as above. */
bool sd_text_finish(sd_text *text);

/* What may be handed on now and was not before: *len bytes, valid until the next call. */
const char *sd_text_take(sd_text *text, size_t *len);

void sd_text_clear(sd_text *text); /* tolerates {0} */

#endif
