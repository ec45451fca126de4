/* SPDX-License-Identifier: MIT */
#include "src/eval/tokens.h"

#include <string.h>

#include "src/base/alloc.h"

/* ---- sinks ---- */

typedef struct sd_sink {
    sd_cutter *cutter;
    sd_sequences *out;
} sd_sink;

static void push_word(void *context, const char *word, size_t len)
{
    sd_sink *sink = context;
    sd_sequences_push(sink->out, sd_lexicon_add(&sink->cutter->lexicon, word, len));
}

void sd_split(const char *text, size_t len, sd_word_fn fn, void *context)
{
    size_t start = 0;
    for (size_t at = 0; at < len;) {
        const size_t before = at;
        if (sd_unicode_is_space(sd_unicode_next(text, len, &at))) {
            if (before > start) {
                fn(context, text + start, before - start);
            }
            start = at;
        }
    }
    if (len > start) {
        fn(context, text + start, len - start);
    }
}

/* ---- 13a ---- */

/* Appends the text with every `from` replaced. */
static void replace(sd_buf *out, const char *text, size_t len, const char *from, const char *to)
{
    const size_t n = strlen(from), m = strlen(to);
    for (size_t at = 0; at < len;) {
        const char *hit = n <= len - at ? memchr(text + at, from[0], len - at - n + 1) : NULL;
        const size_t plain = hit ? (size_t)(hit - text) - at : len - at;
        sd_buf_add(out, text + at, plain);
        at += plain;
        if (hit && memcmp(hit, from, n) == 0) {
            sd_buf_add(out, to, m);
            at += n;
        } else if (hit) {
            sd_buf_add(out, hit, 1);
            at++;
        }
    }
}

static void swap(sd_buf *a, sd_buf *b)
{
    const sd_buf c = *a;
    *a = *b;
    *b = c;
}

/* One pass of replacements over cutter->text. */
static void replace_all(sd_cutter *c, const char *from, const char *to)
{
    if (!c->text.data || !memchr(c->text.data, from[0], c->text.len)) {
        return;
    }
    sd_buf_clear(&c->other);
    replace(&c->other, c->text.data, c->text.len, from, to);
    swap(&c->text, &c->other);
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_stop(char c) { return c == '.' || c == ','; }

/* ASCII punctuation but for apostrophe, comma, hyphen and full stop; the space too. */
static bool is_cut_off(char c)
{
    return (c >= ' ' && c <= '&') || (c >= '(' && c <= '+') || c == '/' || (c >= ':' && c <= '@') ||
           (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

/* The four rules are passes of their own: each sees the spaces that the ones before have put in, and within a pass what
 * one match has used up is not looked at again. Bytes of longer characters are letters to all of them. */
static void pass_13a(sd_buf *out, const char *s, size_t n, int rule)
{
    for (size_t i = 0; i < n;) {
        const bool pair = i + 1 < n;
        if (rule == 0 && is_cut_off(s[i])) {
            const char cut[3] = {' ', s[i], ' '};
            sd_buf_add(out, cut, 3);
            i++;
        } else if ((rule == 1 && pair && !is_digit(s[i]) && is_stop(s[i + 1])) ||
                   (rule == 3 && pair && is_digit(s[i]) && s[i + 1] == '-')) {
            const char cut[4] = {s[i], ' ', s[i + 1], ' '};
            sd_buf_add(out, cut, 4);
            i += 2;
        } else if (rule == 2 && pair && is_stop(s[i]) && !is_digit(s[i + 1])) {
            const char cut[4] = {' ', s[i], ' ', s[i + 1]};
            sd_buf_add(out, cut, 4);
            i += 2;
        } else {
            sd_buf_add(out, s + i, 1);
            i++;
        }
    }
}

static void cut_13a(sd_cutter *c, sd_sink *sink)
{
    replace_all(c, "<skipped>", "");
    replace_all(c, "-\n", "");
    replace_all(c, "\n", " ");
    replace_all(c, "&quot;", "\"");
    replace_all(c, "&amp;", "&");
    replace_all(c, "&lt;", "<");
    replace_all(c, "&gt;", ">");
    sd_buf_clear(&c->other);
    sd_buf_add(&c->other, " ", 1);
    sd_buf_add(&c->other, c->text.data, c->text.len);
    sd_buf_add(&c->other, " ", 1);
    swap(&c->text, &c->other);
    for (int rule = 0; rule < 4 && !c->text.failed; rule++) {
        sd_buf_clear(&c->other);
        pass_13a(&c->other, c->text.data, c->text.len, rule);
        swap(&c->text, &c->other);
    }
    if (!c->text.failed) {
        sd_split(c->text.data, c->text.len, push_word, sink);
    }
}

/* ---- intl ---- */

enum { CLASS_SHIFT = 24, CHAR_MASK = 0xFFFFFF };

static uint32_t class_of(uint32_t code) { return code >> CLASS_SHIFT; }

static void put_codes(sd_buf *out, const uint32_t *codes, size_t n) { sd_buf_add(out, codes, n * sizeof *codes); }

static void pass_intl(sd_buf *out, const uint32_t *s, size_t n, int rule)
{
    for (size_t i = 0; i < n;) {
        const bool pair = i + 1 < n;
        if (rule == 0 && pair && class_of(s[i]) != SD_CHAR_NUMBER && class_of(s[i + 1]) == SD_CHAR_PUNCTUATION) {
            put_codes(out, (const uint32_t[]){s[i], ' ', s[i + 1], ' '}, 4);
            i += 2;
        } else if (rule == 1 && pair && class_of(s[i]) == SD_CHAR_PUNCTUATION &&
                   class_of(s[i + 1]) != SD_CHAR_NUMBER) {
            put_codes(out, (const uint32_t[]){' ', s[i], ' ', s[i + 1]}, 4);
            i += 2;
        } else if (rule == 2 && class_of(s[i]) == SD_CHAR_SYMBOL) {
            put_codes(out, (const uint32_t[]){' ', s[i], ' '}, 3);
            i++;
        } else {
            put_codes(out, s + i, 1);
            i++;
        }
    }
}

static void cut_intl(sd_cutter *c, sd_sink *sink)
{
    sd_buf_clear(&c->code);
    for (size_t at = 0; at < c->text.len;) {
        const uint32_t u = sd_unicode_next(c->text.data, c->text.len, &at);
        put_codes(&c->code, (const uint32_t[]){u | (uint32_t)sd_class_of(c->classes, u) << CLASS_SHIFT}, 1);
    }
    for (int rule = 0; rule < 3 && !c->code.failed; rule++) {
        sd_buf_clear(&c->code2);
        pass_intl(&c->code2, (const uint32_t *)(const void *)c->code.data, c->code.len / sizeof(uint32_t), rule);
        swap(&c->code, &c->code2);
    }
    sd_buf_clear(&c->text);
    for (size_t i = 0; !c->code.failed && i < c->code.len / sizeof(uint32_t); i++) {
        sd_unicode_put(&c->text, ((const uint32_t *)(const void *)c->code.data)[i] & CHAR_MASK);
    }
    if (!c->text.failed && c->text.data) {
        sd_split(c->text.data, c->text.len, push_word, sink);
    }
}

/* ---- rouge-score's ---- */

static bool is_word_char(char c) { return (c >= 'a' && c <= 'z') || is_digit(c); }

static void cut_rouge(sd_cutter *c, sd_sink *sink, bool stem, bool sentences)
{
    enum { LONG_WORD = 4 }; /* letters from which a word is stemmed */
    char *s = c->text.data;
    const size_t n = c->text.len;
    size_t line = 0;
    for (size_t at = 0; at < n;) {
        if (is_word_char(s[at])) {
            size_t end = at;
            while (end < n && is_word_char(s[end])) {
                end++;
            }
            const size_t len = stem && end - at >= LONG_WORD ? sd_porter_stem(s + at, end - at) : end - at;
            if (len > 0) {
                push_word(sink, s + at, len);
            }
            at = end;
            continue;
        }
        if (sentences && s[at] == '\n') {
            if (at > line) {
                sd_sequences_push(sink->out, 0);
            }
            line = at + 1;
        }
        at++;
    }
    if (sentences && n > line) {
        sd_sequences_push(sink->out, 0);
    }
}

/* ---- chrF's ---- */

static void push_chars(void *context, const char *word, size_t len)
{
    sd_sink *sink = context;
    for (size_t at = 0; at < len;) {
        sd_sequences_push(sink->out, sd_unicode_next(word, len, &at) + 1);
    }
}

static bool is_ascii_punctuation(char c)
{
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

/* A mark at the end is cut off, or else one at the beginning; never both. */
static void push_chrf_word(void *context, const char *word, size_t len)
{
    if (len > 1 && is_ascii_punctuation(word[len - 1])) {
        push_word(context, word, len - 1);
        push_word(context, word + len - 1, 1);
    } else if (len > 1 && is_ascii_punctuation(word[0])) {
        push_word(context, word, 1);
        push_word(context, word + 1, len - 1);
    } else {
        push_word(context, word, len);
    }
}

/* ---- all ---- */

int sd_cut(sd_cutter *c, sd_tokenization how, bool lowercase, sd_str text, sd_sequences *out, sd_error *err)
{
    sd_sink sink = {c, out};
    const bool always_lower = how == SD_TOKENS_ROUGE || how == SD_TOKENS_STEMS || how == SD_TOKENS_SENTENCES ||
                              how == SD_TOKENS_SENTENCE_STEMS || how == SD_TOKENS_PTB;
    sd_buf_clear(&c->text);
    if (lowercase || always_lower) {
        sd_unicode_lower(&c->text, text.text, text.len);
    } else {
        sd_buf_add(&c->text, text.text, text.len);
    }
    const char *s = c->text.data ? c->text.data : "";
    const size_t n = c->text.len;
    switch (how) {
    case SD_TOKENS_13A:
    case SD_TOKENS_INTL:
        c->text.len = sd_unicode_trim(s, n);
        (how == SD_TOKENS_13A ? cut_13a : cut_intl)(c, &sink);
        break;
    case SD_TOKENS_NONE: sd_split(s, n, push_word, &sink); break;
    case SD_TOKENS_ROUGE:
    case SD_TOKENS_STEMS: cut_rouge(c, &sink, how == SD_TOKENS_STEMS, false); break;
    case SD_TOKENS_SENTENCES:
    case SD_TOKENS_SENTENCE_STEMS: cut_rouge(c, &sink, how == SD_TOKENS_SENTENCE_STEMS, true); break;
    case SD_TOKENS_PTB: sd_ptb_cut(s, n, push_word, &sink); break;
    case SD_TOKENS_CHARS: sd_split(s, n, push_chars, &sink); break;
    case SD_TOKENS_CHRF_WORDS: sd_split(s, n, push_chrf_word, &sink); break;
    }
    sd_sequences_end(out);
    const bool failed = c->text.failed || c->other.failed || c->code.failed || c->code2.failed || c->lexicon.failed ||
                        out->failed;
    return failed ? sd_fail_memory(err, text.len, "the words of a text") : SD_OK;
}

void sd_cutter_free(sd_cutter *c)
{
    sd_lexicon_free(&c->lexicon);
    sd_buf_free(&c->text);
    sd_buf_free(&c->other);
    sd_buf_free(&c->code);
    sd_buf_free(&c->code2);
}
