/* SPDX-License-Identifier: MIT
 *
 * Text <-> ids: byte-level BPE as GPT-2 and OPT use it. The public calls are in skipdecode.h; these are the ones that
 * the token loop and the program need besides. */
#ifndef SD_TOKENIZER_TOKENIZER_H
#define SD_TOKENIZER_TOKENIZER_H

#include "include/skipdecode/skipdecode.h"
#include "src/base/buf.h"

/* The raw bytes of one token (possibly a part of a character), borrowed from tok; *len 0 for a special token and for an
 * id that the vocabulary does not have. Never NULL. */
const char *sd_tokenizer_piece(const sd_tokenizer *tok, int32_t id, size_t *len);

bool sd_tokenizer_is_special(const sd_tokenizer *tok, int32_t id);

/* Ids from the tokenizer's own files, -1 where there is none. */
int sd_tokenizer_bos(const sd_tokenizer *tok);
int sd_tokenizer_eos(const sd_tokenizer *tok);
bool sd_tokenizer_adds_bos(const sd_tokenizer *tok); /* what SD_ENCODE_BOS will do */

#endif
