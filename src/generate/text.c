/* SPDX-License-Identifier: MIT */
#include "src/generate/text.h"

#include <stdint.h>
#include <string.h>

/* The first place at or after `from` where a stop string stands whole; SIZE_MAX: none. */
static size_t find_stop(const sd_text *t, size_t from)
{
    size_t first = SIZE_MAX;
    for (int i = 0; i < t->n_stop; i++) {
        size_t n = strlen(t->stop[i]);
        const char *end = t->out.data + t->out.len;
        for (const char *s = t->out.data + from; n > 0 && (size_t)(end - s) >= n; s++) {
            s = memchr(s, t->stop[i][0], (size_t)(end - s) - n + 1);
            if (!s) {
                break;
            }
            if (memcmp(s, t->stop[i], n) == 0) {
                size_t at = (size_t)(s - t->out.data);
                first = at < first ? at : first;
                break;
            }
        }
    }
    return first;
}

/* Cuts at a stop string that ends in what was added after `old` bytes. */
static bool check_stop(sd_text *t, size_t old)
{
    if (t->n_stop == 0 || t->out.len == old) {
        return false;
    }
    size_t longest = 1;
    for (int i = 0; i < t->n_stop; i++) {
        size_t n = strlen(t->stop[i]);
        longest = n > longest ? n : longest;
    }
    size_t at = find_stop(t, old >= longest ? old - longest + 1 : 0);
    if (at == SIZE_MAX) {
        return false;
    }
    t->out.len = at;
    t->out.data[at] = '\0';
    t->stopped = true;
    return true;
}

bool sd_text_add(sd_text *t, const char *piece, size_t len)
{
    if (t->stopped) {
        return true;
    }
    size_t old = t->out.len;
    sd_utf8_push(&t->utf8, piece, len, &t->out);
    return check_stop(t, old);
}

bool sd_text_finish(sd_text *t)
{
    if (!t->stopped) {
        size_t old = t->out.len;
        sd_utf8_flush(&t->utf8, &t->out);
        bool found = check_stop(t, old);
        t->n_stop = 0; /* nothing is held back any more */
        return found;
    }
    t->n_stop = 0;
    return true;
}

/* Bytes at the end that are a proper beginning of some stop string. */
static size_t held_back(const sd_text *t)
{
    size_t most = 0;
    for (int i = 0; i < t->n_stop && !t->stopped; i++) {
        size_t n = strlen(t->stop[i]);
        for (size_t k = n - 1 < t->out.len ? n - 1 : t->out.len; k > most; k--) {
            if (memcmp(t->out.data + t->out.len - k, t->stop[i], k) == 0) {
                most = k;
            }
        }
    }
    return most;
}

const char *sd_text_take(sd_text *t, size_t *len)
{
    size_t ready = t->out.len - held_back(t), from = t->sent;
    if (ready <= from) {
        *len = 0;
        return "";
    }
    t->sent = ready;
    *len = ready - from;
    return t->out.data + from;
}

void sd_text_clear(sd_text *t)
{
    sd_buf_free(&t->out);
    *t = (sd_text){0};
}
