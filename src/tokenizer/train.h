/* SPDX-License-Identifier: MIT
 *
 * Learning a byte-level BPE from text: the pieces of GPT-2's pattern are counted, and the commonest pair of neighbours
 * is merged until the vocabulary is full (Sennrich, Haddow and Birch, arXiv 1508.07909). Of pairs that are equally
 * common the one with the smaller left id goes first, then the one with the smaller right id, as in Hugging Face's
 * trainer, so that the same texts give the same merges there. Which text came first does not matter. */
#ifndef SD_TOKENIZER_TRAIN_H
#define SD_TOKENIZER_TRAIN_H

#include "include/skipdecode/skipdecode.h"

typedef struct sd_bpe_trainer sd_bpe_trainer;

/* OPT's special tokens, whose ids are 0 .. 3. */
enum { SD_SPECIAL_START = 0, SD_SPECIAL_PAD = 1, SD_SPECIAL_END = 2, SD_SPECIAL_UNKNOWN = 3, SD_N_SPECIALS = 4 };
extern const char *const sd_special_tokens[SD_N_SPECIALS]; /* "<s>", "<pad>", "</s>" (begins and ends), "<unk>" */

enum { SD_SMALLEST_VOCAB = SD_N_SPECIALS + 256 }; /* every byte has a token */

int sd_bpe_trainer_create(sd_bpe_trainer **out, sd_error *err); /* *out is the caller's */
void sd_bpe_trainer_free(sd_bpe_trainer *trainer);

/* Counts the pieces of one text, valid UTF-8 [len]. */
int sd_bpe_trainer_add(sd_bpe_trainer *trainer, const char *text, size_t len, sd_error *err);

/* Learns merges until there are vocab_size tokens, at least SD_SMALLEST_VOCAB, or nothing is left to merge. To be
 * called once, after all texts. */
int sd_bpe_trainer_run(sd_bpe_trainer *trainer, int vocab_size, sd_error *err);

int sd_bpe_trainer_vocab_size(const sd_bpe_trainer *trainer);
int sd_bpe_trainer_n_merges(const sd_bpe_trainer *trainer);
size_t sd_bpe_trainer_n_pieces(const sd_bpe_trainer *trainer); /* different ones */

/* Writes vocab.json, merges.txt, tokenizer.json and tokenizer_config.json into an existing directory, each file
 * atomically: what sd_tokenizer_load and Hugging Face's libraries read. */
int sd_bpe_trainer_save(const sd_bpe_trainer *trainer, const char *dir, sd_error *err);

#endif
