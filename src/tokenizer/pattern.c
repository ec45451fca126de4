/* SPDX-License-Identifier: MIT */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "src/tokenizer/pattern.h"

#include <pcre2.h>

#include "src/base/alloc.h"

const char sd_pattern_gpt2[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/* The same language, said to PCRE2:
 *  - the reference's \s is Unicode's White_Space; PCRE2's also takes U+180E, so the 25 characters are spelled out
 *    (U+001C .. U+001F, white to Python's str.isspace, are not in it);
 *  - the first alternatives begin with an apostrophe, which the others before punctuation cannot, so the commonest goes
 *    first;
 *  - possessive repeats: nothing follows that giving characters back could help.
 * \p{L} and \p{N} are those of the installed PCRE2: 10.42 knows Unicode 14. The reference (tokenizers 0.23, Unicode
 * 16) agrees on all characters but the 9,392 letters and numbers that were assigned later, which PCRE2 takes for
 * punctuation until it is updated; they are rare (extensions of Han and of the hieroglyphs), still encode and decode,
 * but may be cut differently. */
#define WHITE "\\t-\\r \\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}"
static const char gpt2_for_pcre2[] = " ?\\p{L}++|'(?:[stmd]|re|ve|ll)| ?\\p{N}++| ?[^" WHITE "\\p{L}\\p{N}]++"
                                     "|[" WHITE "]+(?![^" WHITE "])|[" WHITE "]++";

struct sd_pattern {
    pcre2_code *code;
    bool jit;
};

struct sd_matcher {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_general_context *memory;
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

int sd_pattern_create(sd_pattern **out, bool jit, sd_error *err)
{
    *out = NULL;
    sd_pattern *pattern = sd_calloc(1, sizeof *pattern);
    pcre2_general_context *memory = pcre2_general_context_create(allocate, release, NULL);
    pcre2_compile_context *context = memory ? pcre2_compile_context_create(memory) : NULL;
    int code = PCRE2_ERROR_HEAP_FAILED;
    PCRE2_SIZE at = 0;
    if (pattern && context) {
        pattern->code = pcre2_compile((PCRE2_SPTR)gpt2_for_pcre2, PCRE2_ZERO_TERMINATED,
                                      PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &code, &at, context);
    }
    pcre2_compile_context_free(context);
    pcre2_general_context_free(memory);
    if (!pattern || !pattern->code) {
        sd_pattern_free(pattern);
        return code == PCRE2_ERROR_HEAP_FAILED
                   ? sd_fail_memory(err, sizeof *pattern, "the tokenizer's pattern")
                   : sd_fail(err, SD_ERR_UNSUPPORTED,
                             "PCRE2 refuses the tokenizer's pattern at %zu with error %d; expected a "
                             "PCRE2 built with Unicode support",
                             at, code);
    }
    /* Where pages cannot be made executable there is no JIT: slower, the same result. */
    pattern->jit = jit && pcre2_jit_compile(pattern->code, PCRE2_JIT_COMPLETE) == 0;
    *out = pattern;
    return SD_OK;
}

void sd_pattern_free(sd_pattern *pattern)
{
    if (pattern) {
        pcre2_code_free(pattern->code);
        sd_free(pattern);
    }
}

int sd_matcher_create(sd_matcher **out, const sd_pattern *pattern, sd_error *err)
{
    *out = NULL;
    sd_matcher *matcher = sd_calloc(1, sizeof *matcher);
    if (!matcher) {
        return sd_fail_memory(err, sizeof *matcher, "matching text");
    }
    matcher->memory = pcre2_general_context_create(allocate, release, NULL);
    matcher->context = matcher->memory ? pcre2_match_context_create(matcher->memory) : NULL;
    matcher->data = matcher->memory ? pcre2_match_data_create_from_pattern(pattern->code, matcher->memory) : NULL;
    if (!matcher->context || !matcher->data) {
        sd_matcher_free(matcher);
        return sd_fail_memory(err, sizeof *matcher, "matching text");
    }
    /* The limits are against patterns that explode; this one looks at most one character back. */
    pcre2_set_match_limit(matcher->context, UINT32_MAX);
    pcre2_set_depth_limit(matcher->context, UINT32_MAX);
    pcre2_set_heap_limit(matcher->context, UINT32_MAX);
    *out = matcher;
    return SD_OK;
}

void sd_matcher_free(sd_matcher *matcher)
{
    if (matcher) {
        pcre2_match_data_free(matcher->data);
        pcre2_match_context_free(matcher->context);
        pcre2_general_context_free(matcher->memory);
        sd_free(matcher);
    }
}

int sd_pattern_next(const sd_pattern *pattern, sd_matcher *matcher, const char *text, size_t len, size_t at,
                    size_t *piece, sd_error *err)
{
    int rc = pattern->jit ? pcre2_jit_match(pattern->code, (PCRE2_SPTR)text, len, at, PCRE2_NO_UTF_CHECK, matcher->data,
                                            matcher->context)
                          : pcre2_match(pattern->code, (PCRE2_SPTR)text, len, at, PCRE2_NO_UTF_CHECK, matcher->data,
                                        matcher->context);
    size_t end = rc > 0 ? pcre2_get_ovector_pointer(matcher->data)[1] : at;
    if (end <= at) { /* every character is of one of the classes, so only memory can be at fault */
        return sd_fail(err, rc == PCRE2_ERROR_NOMEMORY || rc == PCRE2_ERROR_HEAPLIMIT ? SD_ERR_MEMORY : SD_ERR_STATE,
                       "the tokenizer's pattern failed at byte %zu of %zu with PCRE2 error %d", at, len, rc);
    }
    *piece = end - at;
    return SD_OK;
}
