/* SPDX-License-Identifier: MIT
 *
 * The tokens on which the COCO caption tools compute ROUGE-L and CIDEr. Those run Stanford's PTBTokenizer (CoreNLP
 * 3.4.1, in Java) and drop punctuation; this is an approximation of it for running text:
 *   - words keep inner hyphens, full stops, slashes, ampersands and apostrophes (family-friendly, and/or, o'clock);
 *     addresses with :// or @ stay whole;
 *   - contractions are cut off: 's 'm 'd 'll 're 've n't, and "cannot" becomes "can not";
 *   - numbers keep inner full stops, commas and hyphens; letters after a decimal number are cut off (3.30 pm);
 *   - a full stop at the end stays with single letters (e.g., u.s.) and some titles (mr., dr.);
 *   - currency signs other than the dollar become # (pound, yen) or $ (euro);
 *   - brackets become -lrb- and so on. Lower case, they are not in the tools' list of punctuation: they stay;
 *   - quotes, . , : ; ? ! - -- ... are dropped.
 * tests/parity/metrics_oracle.py says on how many texts the two agree. */
#include <string.h>

#include "src/eval/tokens.h"

typedef struct sd_ptb {
    sd_word_fn fn;
    void *context;
} sd_ptb;

static bool is_alpha(const char *s, size_t i)
{
    return (s[i] >= 'a' && s[i] <= 'z') || (unsigned char)s[i] >= 0x80 || s[i] == '_';
}

static bool is_number(char c) { return c >= '0' && c <= '9'; }
static bool is_letter(const char *s, size_t i) { return is_alpha(s, i) || is_number(s[i]); }

static bool equals(const char *s, size_t n, const char *word) { return n == strlen(word) && memcmp(s, word, n) == 0; }

static void emit(const sd_ptb *p, const char *s, size_t n)
{
    if (n > 0) {
        p->fn(p->context, s, n);
    }
}

/* Characters beyond ASCII that are no letters: what they become; NULL: a letter. *n: bytes of it. */
static const char *special(const char *s, size_t len, size_t *n)
{
    static const struct {
        const char *bytes, *token;
    } table[] = {
        {"\xC2\xA3", "#"},     {"\xC2\xA5", "#"},     {"\xE2\x82\xAC", "$"}, {"\xC2\xA2", "cents"},
        {"\xE2\x80\x98", ""},  {"\xE2\x80\x99", ""},  {"\xE2\x80\x9C", ""},  {"\xE2\x80\x9D", ""},
        {"\xE2\x80\x93", ""},  {"\xE2\x80\x94", ""},  {"\xE2\x80\xA6", ""},  {"\xC2\xAB", ""},
        {"\xC2\xBB", ""},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        *n = strlen(table[i].bytes);
        if (*n <= len && memcmp(s, table[i].bytes, *n) == 0) {
            return table[i].token;
        }
    }
    return NULL;
}

static bool is_title(const char *s, size_t n)
{
    static const char *const titles[] = {"mr", "mrs", "ms", "dr", "st", "jr", "sr", "prof", "vs", "inc", "ltd", "co",
                                         "corp", "etc", "no", "ave", "rd", "blvd", "gen", "col", "lt", "sgt", "capt",
                                         "plc", "sq", "adv", "jan", "feb", "aug", "sept", "sep", "oct", "nov", "dec"};
    for (size_t i = 0; i < sizeof titles / sizeof *titles; i++) {
        if (equals(s, n, titles[i])) {
            return true;
        }
    }
    return false;
}

/* Cuts a contraction off a word. */
static void emit_word(const sd_ptb *p, const char *s, size_t n)
{
    static const char *const ends[] = {"n't", "'s", "'m", "'d", "'ll", "'re", "'ve"};
    if (equals(s, n, "cannot")) {
        emit(p, s, 3);
        emit(p, s + 3, 3);
        return;
    }
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const size_t m = strlen(ends[i]);
        if (n > m && equals(s + n - m, m, ends[i])) {
            emit(p, s, n - m);
            emit(p, s + n - m, m);
            return;
        }
    }
    emit(p, s, n);
}

/* The end of the number that starts at `at`: digits with single . , - : / between them. */
static size_t number_end(const char *s, size_t len, size_t at, bool *plain)
{
    *plain = true;
    while (at < len && (is_number(s[at]) ||
                        (at + 1 < len && s[at] && strchr(".,-:/", s[at]) && is_number(s[at + 1])))) {
        *plain = *plain && is_number(s[at]);
        at++;
    }
    return at;
}

/* The end of the word that starts at `at`: letters and digits, with single marks between letters. */
static size_t word_end(const char *s, size_t len, size_t at)
{
    size_t n;
    while (at < len && ((is_letter(s, at) && !special(s + at, len - at, &n)) ||
                        (at + 1 < len && s[at] && strchr("-/&'@.", s[at]) && is_letter(s, at + 1) &&
                         !special(s + at + 1, len - at - 1, &n)))) {
        at++;
    }
    return at;
}

/* Single letters with full stops between: u.s, e.g */
static bool is_initials(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (i % 2 == 0 ? !is_alpha(s, i) : s[i] != '.') {
            return false;
        }
    }
    return n % 2 == 1;
}

static size_t take_word(const sd_ptb *p, const char *s, size_t len, size_t at)
{
    bool plain;
    size_t end = at;
    if (is_number(s[at])) {
        end = number_end(s, len, at, &plain);
        const bool hyphen = end + 1 < len && s[end] == '-' && is_alpha(s, end + 1);
        const bool goes_on = hyphen || (end < len && is_alpha(s, end));
        if (!plain || !goes_on) { /* 3-star and 5th are words */
            emit(p, s + at, end - at);
            return end;
        }
    }
    end = word_end(s, len, at);
    if (end < len && s[end] == '.' && (is_title(s + at, end - at) || is_initials(s + at, end - at))) {
        emit(p, s + at, end + 1 - at);
        return end + 1;
    }
    emit_word(p, s + at, end - at);
    return end;
}

static size_t take_mark(const sd_ptb *p, const char *s, size_t at)
{
    static const struct {
        char mark;
        const char *token;
    } brackets[] = {{'(', "-lrb-"}, {')', "-rrb-"}, {'[', "-lsb-"}, {']', "-rsb-"}, {'{', "-lcb-"}, {'}', "-rcb-"}};
    for (size_t i = 0; i < sizeof brackets / sizeof *brackets; i++) {
        if (s[at] == brackets[i].mark) {
            emit(p, brackets[i].token, strlen(brackets[i].token));
            return at + 1;
        }
    }
    if (s[at] == '\0' || !strchr(".,:;?!-'\"`", s[at])) {
        emit(p, s + at, 1);
    }
    return at + 1;
}

static void cut_chunk(void *context, const char *s, size_t len)
{
    const sd_ptb *p = context;
    for (size_t at = 0, n; at < len;) {
        const char *token = special(s + at, len - at, &n);
        if (token) {
            emit(p, token, strlen(token));
            at += n;
        } else if (is_letter(s, at)) {
            at = take_word(p, s, len, at);
        } else if (at == 0 && s[at] == '-' && len > 1 && is_number(s[1])) { /* a sign */
            bool plain;
            const size_t end = number_end(s, len, 1, &plain);
            emit(p, s, end);
            at = end;
        } else {
            at = take_mark(p, s, at);
        }
    }
}

static bool is_address(const char *s, size_t n)
{
    for (size_t i = 1; i + 3 < n; i++) {
        if (memcmp(s + i, "://", 3) == 0) {
            return true;
        }
    }
    return false;
}

static void take_chunk(void *context, const char *s, size_t len)
{
    const sd_ptb *p = context;
    if (is_address(s, len)) {
        emit(p, s, len);
    } else {
        cut_chunk(context, s, len);
    }
}

void sd_ptb_cut(const char *text, size_t len, sd_word_fn fn, void *context)
{
    sd_ptb p = {fn, context};
    sd_split(text, len, take_chunk, &p);
}
