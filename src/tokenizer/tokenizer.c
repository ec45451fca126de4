/* SPDX-License-Identifier: MIT */
#include "src/tokenizer/tokenizer.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/base/utf8.h"
#include "src/tokenizer/internal.h"

void sd_tokenizer_free(sd_tokenizer *tok)
{
    if (tok) {
        sd_vocab_free(&tok->vocab);
        sd_pattern_free(tok->pattern);
        sd_added_free(&tok->added[0]);
        sd_added_free(&tok->added[1]);
        sd_free(tok);
    }
}

int sd_tokenizer_size(const sd_tokenizer *tok) { return tok->vocab.n_ids; }

const char *sd_tokenizer_piece(const sd_tokenizer *tok, int32_t id, size_t *len)
{
    if (!sd_vocab_has(&tok->vocab, id) || sd_tokenizer_is_special(tok, id)) {
        *len = 0;
        return "";
    }
    const sd_token *t = &tok->vocab.tokens[id];
    *len = t->len;
    return tok->vocab.bytes.data + t->offset;
}

bool sd_tokenizer_is_special(const sd_tokenizer *tok, int32_t id)
{
    return sd_vocab_has(&tok->vocab, id) && (tok->vocab.tokens[id].flags & SD_TOKEN_SPECIAL) != 0;
}

int sd_tokenizer_bos(const sd_tokenizer *tok) { return tok->bos; }
int sd_tokenizer_eos(const sd_tokenizer *tok) { return tok->eos; }
bool sd_tokenizer_adds_bos(const sd_tokenizer *tok) { return tok->adds_bos; }

int sd_tokenizer_decode(const sd_tokenizer *tok, const int32_t *ids, size_t n, char *text, size_t cap, size_t *len,
                        sd_error *err)
{
    *len = 0;
    sd_utf8_stream stream = {0}; /* a character may be spread over tokens */
    sd_buf out = {0};
    for (size_t i = 0; i < n && !out.failed; i++) {
        size_t piece_len;
        const char *piece = sd_tokenizer_piece(tok, ids[i], &piece_len);
        sd_utf8_push(&stream, piece, piece_len, &out);
    }
    sd_utf8_flush(&stream, &out);
    int rc = SD_OK;
    if (out.failed) {
        rc = sd_fail_memory(err, out.len, "decoded text");
    } else if (cap <= out.len) {
        *len = out.len;
        rc = sd_fail(err, SD_ERR_LIMIT, "decode: the text is %zu bytes and a NUL, and there is room for %zu", out.len,
                     cap);
    } else {
        *len = out.len;
        if (out.len > 0) {
            memcpy(text, out.data, out.len);
        }
        text[out.len] = '\0';
    }
    sd_buf_free(&out);
    return rc;
}
