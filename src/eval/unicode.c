/* SPDX-License-Identifier: MIT */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "src/eval/unicode.h"

#include <pcre2.h>

#include "src/base/alloc.h"
#include "src/eval/case_table.h"

uint32_t sd_unicode_next(const char *text, size_t len, size_t *at)
{
    const unsigned char *s = (const unsigned char *)text + *at;
    const size_t left = len - *at;
    uint32_t c = s[0];
    size_t n = c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
    n = n < left ? n : left;
    if (n > 1) {
        c &= 0x7Fu >> n;
        for (size_t i = 1; i < n; i++) {
            c = c << 6 | (s[i] & 0x3Fu);
        }
    }
    *at += n;
    return c;
}

void sd_unicode_put(sd_buf *out, uint32_t c)
{
    char bytes[4];
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    if (n == 1) {
        bytes[0] = (char)c;
    }
    for (size_t i = n; n > 1 && i-- > 0; c >>= 6) {
        bytes[i] = (char)(i > 0 ? 0x80u | (c & 0x3Fu) : (0xF00u >> n & 0xFFu) | c);
    }
    sd_buf_add(out, bytes, n);
}

bool sd_unicode_is_space(uint32_t c)
{
    if (c < 0x80) {
        return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20);
    }
    return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}

size_t sd_unicode_trim(const char *text, size_t len)
{
    while (len > 0) {
        size_t start = len - 1;
        while (start > 0 && ((unsigned char)text[start] & 0xC0) == 0x80) {
            start--;
        }
        size_t at = start;
        if (!sd_unicode_is_space(sd_unicode_next(text, len, &at))) {
            break;
        }
        len = start;
    }
    return len;
}

/* ---- lower case ---- */

static bool in_ranges(const sd_char_range *ranges, size_t n, uint32_t c)
{
    size_t low = 0, high = n;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (c > ranges[middle].last) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < n && c >= ranges[low].first;
}

static bool is_cased(uint32_t c) { return in_ranges(cased_ranges, sizeof cased_ranges / sizeof *cased_ranges, c); }

static bool is_ignorable(uint32_t c)
{
    return in_ranges(ignorable_ranges, sizeof ignorable_ranges / sizeof *ignorable_ranges, c);
}

/* Whether, looking across what is ignorable, a cased character comes after `at`. */
static bool cased_follows(const char *text, size_t len, size_t at)
{
    while (at < len) {
        const uint32_t c = sd_unicode_next(text, len, &at);
        if (!is_ignorable(c)) {
            return is_cased(c);
        }
    }
    return false;
}

static uint32_t lower(uint32_t c)
{
    size_t low = 0, high = sizeof lower_runs / sizeof *lower_runs;
    while (low < high) { /* runs of step 2 lie interleaved with nothing, but neighbours may share borders */
        const size_t middle = (low + high) / 2;
        if (c > lower_runs[middle].last) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low < sizeof lower_runs / sizeof *lower_runs) {
        const sd_case_run *run = &lower_runs[low];
        if (c >= run->first && (c - run->first) % (uint32_t)run->step == 0) {
            return (uint32_t)((int32_t)c + run->difference);
        }
    }
    return c;
}

void sd_unicode_lower(sd_buf *out, const char *text, size_t len)
{
    enum { SIGMA = 0x3A3, FINAL_SIGMA = 0x3C2, DOTTED_I = 0x130, DOT_ABOVE = 0x307 };
    bool cased_before = false; /* a cased character, and since then only ignorable ones */
    for (size_t at = 0; at < len;) {
        const uint32_t c = sd_unicode_next(text, len, &at);
        if (c < 0x80) {
            const char byte = (char)(c >= 'A' && c <= 'Z' ? c + 32 : c);
            sd_buf_add(out, &byte, 1);
        } else if (c == SIGMA && cased_before && !cased_follows(text, len, at)) {
            sd_unicode_put(out, FINAL_SIGMA);
        } else if (c == DOTTED_I) {
            sd_unicode_put(out, 'i');
            sd_unicode_put(out, DOT_ABOVE);
        } else {
            sd_unicode_put(out, lower(c));
        }
        cased_before = is_ignorable(c) ? cased_before : is_cased(c);
    }
}

/* ---- categories ---- */

struct sd_classes {
    pcre2_code *code;
    pcre2_match_data *data;
    unsigned char ascii[128];
    bool failed; /* the first match allocates its frames, which serve all others */
};

static void *allocate(size_t size, void *unused)
{
    (void)unused;
    return sd_malloc(size, 1);
}

static void release(void *block, void *unused)
{
    (void)unused;
    sd_free(block);
}

static sd_char_class match(sd_classes *classes, uint32_t c)
{
    char bytes[8];
    sd_buf text = {.data = bytes, .cap = sizeof bytes};
    sd_unicode_put(&text, c); /* fits: no allocation */
    const int rc = pcre2_match(classes->code, (PCRE2_SPTR)bytes, text.len, 0, PCRE2_NO_UTF_CHECK, classes->data, NULL);
    classes->failed = classes->failed || (rc < 0 && rc != PCRE2_ERROR_NOMATCH);
    /* rc is 1 + the number of the group that matched: 2, 3 or 4 */
    return rc >= 2 ? (sd_char_class)(rc - 1) : SD_CHAR_OTHER;
}

int sd_classes_create(sd_classes **out, sd_error *err)
{
    *out = NULL;
    sd_classes *classes = sd_calloc(1, sizeof *classes);
    pcre2_general_context *memory = classes ? pcre2_general_context_create(allocate, release, NULL) : NULL;
    pcre2_compile_context *context = memory ? pcre2_compile_context_create(memory) : NULL;
    int code = 0;
    PCRE2_SIZE at = 0;
    if (context) {
        classes->code = pcre2_compile((PCRE2_SPTR) "(\\p{P})|(\\p{S})|(\\p{N})", PCRE2_ZERO_TERMINATED,
                                      PCRE2_UTF | PCRE2_ANCHORED, &code, &at, context);
        classes->data = classes->code ? pcre2_match_data_create_from_pattern(classes->code, memory) : NULL;
    }
    pcre2_compile_context_free(context);
    pcre2_general_context_free(memory);
    for (uint32_t c = 0; classes && classes->data && c < sizeof classes->ascii; c++) {
        classes->ascii[c] = (unsigned char)match(classes, c);
    }
    if (!classes || !classes->data || classes->failed) {
        sd_classes_free(classes);
        return sd_fail_memory(err, sizeof *classes, "the classes of characters");
    }
    *out = classes;
    return SD_OK;
}

void sd_classes_free(sd_classes *classes)
{
    if (classes) {
        pcre2_match_data_free(classes->data);
        pcre2_code_free(classes->code);
        sd_free(classes);
    }
}

sd_char_class sd_class_of(sd_classes *classes, uint32_t c)
{
    return c < sizeof classes->ascii ? (sd_char_class)classes->ascii[c] : match(classes, c);
}
