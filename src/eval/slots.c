/* SPDX-License-Identifier: MIT
 *
 * Slots: how much of a meaning representation such as
 *
 *     name[Blue Spice], eatType[coffee shop], area[city centre], familyFriendly[yes]
 *
 * the text says. A slot is a key with its value in brackets, anywhere in the source. It counts as said if the text
 * holds the value word for word, whatever the case ("high" is not said by "expensive", nor "3 out of 5" by "three
 * stars": the number is for comparing systems, not for absolute truth). familyFriendly, whose value is yes or no,
 * counts as said if the text holds "famil", "child" or "kid": that it is mentioned, not what is said of it. The score
 * is the share of all slots of all sources. A segment's numbers: slots said, slots. */
#include <string.h>

#include "src/eval/metrics.h"

static bool holds(const sd_buf *text, const char *what, size_t n)
{
    for (size_t at = 0; n > 0 && at + n <= text->len; at++) {
        if (memcmp(text->data + at, what, n) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_key(const char *key, size_t n, const char *name)
{
    return n == strlen(name) && memcmp(key, name, n) == 0;
}

static bool is_copied(const char *key, size_t n)
{
    static const char *const names[] = {"name", "near", "food", "eattype", "area"}; /* the source is in lower case */
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (is_key(key, n, names[i])) {
            return true;
        }
    }
    return false;
}

static bool is_said(const sd_buf *text, const char *key, size_t key_len, const char *value, size_t len)
{
    if (is_key(key, key_len, "familyfriendly")) {
        return holds(text, "famil", 5) || holds(text, "child", 5) || holds(text, "kid", 3);
    }
    return holds(text, value, len);
}

static bool ends_key(char c) { return c == ',' || c == '\n' || c == ']' || c == '['; }

int sd_slots_segment(sd_scoring *s, size_t i, double *v, sd_error *err)
{
    const sd_str source = s->corpus->sources[i];
    sd_buf_clear(&s->text);
    sd_buf_clear(&s->source);
    sd_unicode_lower(&s->text, s->corpus->hyps[i].text, s->corpus->hyps[i].len);
    sd_unicode_lower(&s->source, source.text, source.len);
    if (s->text.failed || s->source.failed) {
        return sd_fail_memory(err, source.len, "slots");
    }
    const char *p = s->source.data;
    for (size_t at = 0, n = s->source.len; at < n; at++) {
        const char *close = p[at] == '[' ? memchr(p + at, ']', n - at) : NULL;
        if (!close) {
            continue;
        }
        size_t key = at;
        while (key > 0 && !ends_key(p[key - 1])) {
            key--;
        }
        while (key < at && p[key] == ' ') {
            key++;
        }
        const size_t len = (size_t)(close - p) - at - 1;
        if (key < at && len > 0 && (s->metric == SD_METRIC_SLOTS || is_copied(p + key, at - key))) {
            v[0] += is_said(&s->text, p + key, at - key, p + at + 1, len);
            v[1] += 1;
        }
        at += len + 1;
    }
    return SD_OK;
}
