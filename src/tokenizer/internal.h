/* SPDX-License-Identifier: MIT
 *
 * What a tokenizer is made of, for this room only. Loading (load*.c) fills it; encoding and decoding only read it. */
#ifndef SD_TOKENIZER_INTERNAL_H
#define SD_TOKENIZER_INTERNAL_H

#include "src/tokenizer/added.h"
#include "src/tokenizer/pattern.h"
#include "src/tokenizer/tokenizer.h"
#include "src/tokenizer/vocab.h"

struct sd_tokenizer {
    sd_vocab vocab;
    sd_pattern *pattern; /* NULL: text between added tokens is one piece */
    sd_added added[2];   /* searched one after the other: as the reference does, "normalized" tokens only in what the
                          * others leave (there is no normalization here, so only overlaps could tell) */
    bool prefix_space;   /* text between added tokens gets a space in front unless it begins with one */
    bool adds_bos;       /* bos >= 0 then */
    int32_t bos, eos;    /* -1: none */
};

#endif
