/* SPDX-License-Identifier: MIT
 *
 * The tokenizers that metrics are defined with. Each cuts a text (valid UTF-8) and hands the pieces on. */
#ifndef SD_EVAL_TOKENS_H
#define SD_EVAL_TOKENS_H

#include "src/eval/corpus.h"
#include "src/eval/lexicon.h"
#include "src/eval/unicode.h"

typedef enum sd_tokenization {
    SD_TOKENS_13A = 0, /* mteval-v13a as sacrebleu has it: the usual one */
    SD_TOKENS_INTL,    /* mteval-v14's international one as sacrebleu has it, by Unicode's categories */
    SD_TOKENS_NONE,    /* white space cuts; nothing else does */
    SD_TOKENS_ROUGE,   /* rouge-score's: lower case, runs of a-z and 0-9 */
    SD_TOKENS_STEMS,   /* the same with Porter's stems of words of more than 3 letters */
    SD_TOKENS_SENTENCES, /* as ROUGE, with a separator (item 0) at the end of each line that is not empty */
    SD_TOKENS_SENTENCE_STEMS,
    SD_TOKENS_PTB,     /* lower case, Penn Treebank's tokens without punctuation, as the COCO caption tools want them.
                        * An approximation of Stanford's tokenizer: see ptb.c */
    SD_TOKENS_CHARS,   /* chrF: every character that is no white space */
    SD_TOKENS_CHRF_WORDS /* chrF++: words, ASCII punctuation at one end cut off */
} sd_tokenization;

typedef struct sd_cutter { /* start from {.classes = ...} */
    sd_classes *classes; /* borrowed; only INTL needs it */
    sd_lexicon lexicon;  /* of all texts cut so far. Characters are their own numbers, + 1 */
    sd_buf text, other;
    sd_buf code;         /* uint32_t: characters with their class */
    sd_buf code2;
} sd_cutter;

/* Appends one text to `out`. lowercase: first into lower case, where the tokenization does not do so anyway.
 * Fails for memory only. */
int sd_cut(sd_cutter *cutter, sd_tokenization how, bool lowercase, sd_str text, sd_sequences *out, sd_error *err);
void sd_cutter_free(sd_cutter *cutter);

/* Words between white space, each handed on. */
typedef void (*sd_word_fn)(void *context, const char *word, size_t len);
void sd_split(const char *text, size_t len, sd_word_fn fn, void *context);

/* ptb.c: text already in lower case. */
void sd_ptb_cut(const char *text, size_t len, sd_word_fn fn, void *context);

/* porter.c: the stem of word[0 .. len), a-z and 0-9, in place; returns its length, at most len. NLTK's variant of
 * Porter's algorithm, which rouge-score uses. */
size_t sd_porter_stem(char *word, size_t len);

#endif
