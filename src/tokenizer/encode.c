/* SPDX-License-Identifier: MIT
 *
 * Text -> ids, from the outside in: added tokens are cut out of the text, what is between them is cut into pieces by
 * the pattern, and a piece becomes ids by merging.
 *
 * Text that is not valid UTF-8: each malformed sequence (a maximal subpart, the unit that decoding replaces by one
 * U+FFFD) is a piece of its own, and the valid stretches around it are cut as if they were whole texts. No byte is
 * lost, so decoding gives the text with its malformed sequences replaced. The reference has no say: it only sees valid
 * text. */
#include <stdint.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/utf8.h"
#include "src/tokenizer/bpe.h"
#include "src/tokenizer/internal.h"

typedef struct sd_encoder {
    const sd_tokenizer *tok;
    bool specials;     /* special tokens are recognised in the text */
    bool bos_in_front; /* SD_ENCODE_BOS has put a BOS, and the text has not brought one */
    sd_id_sink sink;
    sd_matcher *matcher; /* NULL without a pattern */
    sd_bpe bpe;
    sd_buf prefixed; /* a stretch of text with a space in front */
    sd_error *err;
} sd_encoder;

static int put_piece(sd_encoder *e, const char *piece, size_t len)
{
    const sd_vocab *vocab = &e->tok->vocab;
    int32_t id = sd_vocab_of_bytes(vocab, piece, len);
    if (id >= 0 && (vocab->tokens[id].flags & SD_TOKEN_WHOLE)) {
        sd_id_put(&e->sink, id);
        return SD_OK;
    }
    return sd_bpe_encode(&e->bpe, vocab, piece, len, &e->sink, e->err);
}

static int put_valid(sd_encoder *e, const char *text, size_t len)
{
    if (!e->tok->pattern) {
        return put_piece(e, text, len);
    }
    for (size_t at = 0, n; at < len; at += n) {
        int rc = sd_pattern_next(e->tok->pattern, e->matcher, text, len, at, &n, e->err);
        if (rc == SD_OK) {
            rc = put_piece(e, text + at, n);
        }
        if (rc != SD_OK) {
            return rc;
        }
    }
    return SD_OK;
}

/* Length of the valid UTF-8 that text begins with. */
static size_t valid_length(const char *text, size_t len)
{
    size_t i = 0;
    while (i < len) {
        uint64_t word;
        if (len - i >= sizeof word && (memcpy(&word, text + i, sizeof word), (word & 0x8080808080808080u) == 0)) {
            i += sizeof word;
            continue;
        }
        int n = sd_utf8_next((const unsigned char *)text + i, len - i);
        if (n <= 0) {
            break;
        }
        i += (size_t)n;
    }
    return i;
}

/* Text without added tokens, any bytes. */
static int put_stretch(sd_encoder *e, const char *text, size_t len)
{
    if (e->tok->prefix_space && text[0] != ' ') {
        sd_buf_clear(&e->prefixed);
        sd_buf_add(&e->prefixed, " ", 1);
        sd_buf_add(&e->prefixed, text, len);
        if (e->prefixed.failed) {
            return sd_fail_memory(e->err, len + 1, "a text with a space in front");
        }
        text = e->prefixed.data;
        len = e->prefixed.len;
    }
    while (len > 0) {
        size_t n = valid_length(text, len);
        int rc = n > 0 ? put_valid(e, text, n) : SD_OK;
        if (rc == SD_OK && n < len) {
            int bad = sd_utf8_next((const unsigned char *)text + n, len - n);
            size_t n_bad = bad < 0 ? (size_t)-bad : len - n; /* 0: the text ends inside a character */
            rc = put_piece(e, text + n, n_bad);
            n += n_bad;
        }
        if (rc != SD_OK) {
            return rc;
        }
        text += n;
        len -= n;
    }
    return SD_OK;
}

/* ---- added tokens ---- */

/* Bytes of the white character that text begins with, 0 if it is none: U+0009 .. U+000D, U+0020, U+0085, U+00A0,
 * U+1680, U+2000 .. U+200A, U+2028, U+2029, U+202F, U+205F, U+3000. */
static size_t white_at(const char *text, size_t len)
{
    const unsigned char *s = (const unsigned char *)text;
    if (len >= 1 && ((s[0] >= 0x09 && s[0] <= 0x0D) || s[0] == 0x20)) {
        return 1;
    }
    if (len >= 2 && s[0] == 0xC2 && (s[1] == 0x85 || s[1] == 0xA0)) {
        return 2;
    }
    if (len < 3) {
        return 0;
    }
    unsigned c = (unsigned)s[0] << 16 | (unsigned)s[1] << 8 | s[2];
    return c == 0xE19A80 || (c >= 0xE28080 && c <= 0xE2808A) || c == 0xE280A8 || c == 0xE280A9 || c == 0xE280AF ||
                   c == 0xE2819F || c == 0xE38080
               ? 3
               : 0;
}

/* Where the white space that ends at text[end) begins, but not before `from`. */
static size_t before_white(const char *text, size_t from, size_t end)
{
    for (size_t n = 1; n <= 3 && from + n <= end; n++) {
        if (white_at(text + end - n, n) == n) {
            end -= n;
            n = 0;
        }
    }
    return end < from ? from : end;
}

static void put_added(sd_encoder *e, int32_t id)
{
    if (e->bos_in_front && e->sink.n == 1 && id == e->tok->bos) {
        e->bos_in_front = false; /* the text brings its own: one is enough */
        return;
    }
    sd_id_put(&e->sink, id);
}

static int put_text(sd_encoder *e, const char *text, size_t len, int pass)
{
    if (pass == 2) {
        return len > 0 ? put_stretch(e, text, len) : SD_OK;
    }
    size_t done = 0, from = 0, start, end;
    int32_t id;
    while ((id = sd_added_find(&e->tok->added[pass], text, len, from, &start, &end)) >= 0) {
        uint32_t flags = e->tok->vocab.tokens[id].flags;
        from = end;
        if ((flags & SD_TOKEN_SPECIAL) && !e->specials) {
            continue;
        }
        if (flags & SD_TOKEN_LSTRIP) {
            start = before_white(text, done, start);
        }
        for (size_t n; (flags & SD_TOKEN_RSTRIP) && (n = white_at(text + end, len - end)) > 0;) {
            end += n;
        }
        if (start >= end) {
            continue; /* itself white, and swallowed by the token before it */
        }
        int rc = start > done ? put_text(e, text + done, start - done, pass + 1) : SD_OK;
        if (rc != SD_OK) {
            return rc;
        }
        put_added(e, id);
        done = end;
    }
    return put_text(e, text + done, len - done, pass + 1);
}

int sd_tokenizer_encode(const sd_tokenizer *tok, const char *text, size_t len, unsigned flags, int32_t *ids, size_t cap,
                        size_t *n_ids, sd_error *err)
{
    *n_ids = 0;
    if (flags & ~(unsigned)(SD_ENCODE_BOS | SD_ENCODE_SPECIALS)) {
        return sd_fail(err, SD_ERR_ARG,
                       "encode: flags 0x%x hold an unknown one; expected SD_ENCODE_BOS and SD_ENCODE_SPECIALS", flags);
    }
    sd_encoder e = {.tok = tok, .specials = (flags & SD_ENCODE_SPECIALS) != 0, .sink = {ids, cap, 0}, .err = err};
    if ((flags & SD_ENCODE_BOS) && tok->adds_bos) {
        sd_id_put(&e.sink, tok->bos);
        e.bos_in_front = true;
    }
    int rc = tok->pattern && len > 0 ? sd_matcher_create(&e.matcher, tok->pattern, err) : SD_OK;
    if (rc == SD_OK && len > 0) {
        rc = put_text(&e, text, len, 0);
    }
    sd_matcher_free(e.matcher);
    sd_bpe_free(&e.bpe);
    sd_buf_free(&e.prefixed);
    if (rc != SD_OK) {
        return rc;
    }
    *n_ids = e.sink.n;
    return e.sink.n <= cap
               ? SD_OK
               : sd_fail(err, SD_ERR_LIMIT, "encode: the text is %zu tokens and there is room for %zu", e.sink.n, cap);
}
