/* SPDX-License-Identifier: MIT
 *
 * M. F. Porter, "An algorithm for suffix stripping", 1980, with the changes that NLTK makes by default, which
 * rouge-score's scores contain: words of irregular forms, "ies" and "ied" of short words, y after a consonant, "bli",
 * "alli" before the rest of step 2, "fulli", "logi", and a short stem of vowel and consonant that counts as cvc. */
#include <string.h>

#include "src/eval/tokens.h"

typedef struct sd_stem {
    char *s;
    size_t n;
} sd_stem;

static bool is_vowel(char c) { return c == 'a' || c == 'e' || c == 'i' || c == 'o' || c == 'u'; }

/* A y is a consonant at the beginning and after a vowel; so in a run of them they take turns. */
static bool is_consonant(const char *s, size_t i)
{
    bool turn = true;
    while (s[i] == 'y' && i > 0) {
        turn = !turn;
        i--;
    }
    return turn ? !is_vowel(s[i]) : is_vowel(s[i]);
}

/* Porter's m of the first n letters: how often a vowel is followed by a consonant. */
static size_t measure(const char *s, size_t n)
{
    size_t m = 0;
    bool before = true;
    for (size_t i = 0; i < n; i++) {
        const bool consonant = s[i] == 'y' ? i == 0 || !before : !is_vowel(s[i]);
        m += consonant && !before;
        before = consonant;
    }
    return m;
}

static bool has_vowel(const char *s, size_t n)
{
    bool before = false;
    for (size_t i = 0; i < n; i++) {
        before = s[i] == 'y' ? i == 0 || !before : !is_vowel(s[i]);
        if (!before) {
            return true;
        }
    }
    return false;
}

static bool ends_double(const char *s, size_t n) { return n >= 2 && s[n - 1] == s[n - 2] && is_consonant(s, n - 1); }

static bool ends_cvc(const char *s, size_t n)
{
    if (n == 2) {
        return !is_consonant(s, 0) && is_consonant(s, 1);
    }
    return n >= 3 && is_consonant(s, n - 3) && !is_consonant(s, n - 2) && is_consonant(s, n - 1) && s[n - 1] != 'w' &&
           s[n - 1] != 'x' && s[n - 1] != 'y';
}

static bool ends_with(const sd_stem *w, const char *suffix)
{
    const size_t n = strlen(suffix);
    return w->n >= n && memcmp(w->s + w->n - n, suffix, n) == 0;
}

/* The new end is never longer than the room that the word had. */
static void replace_end(sd_stem *w, size_t removed, const char *with)
{
    const size_t n = strlen(with);
    memcpy(w->s + w->n - removed, with, n);
    w->n = w->n - removed + n;
}

typedef struct sd_rule {
    const char *suffix, *with;
} sd_rule;

/* The first rule whose suffix fits decides, whether or not the measure of what is before it is above `least`. */
static void apply(sd_stem *w, const sd_rule *rules, size_t n_rules, size_t least)
{
    for (size_t i = 0; i < n_rules; i++) {
        const size_t n = strlen(rules[i].suffix);
        if (ends_with(w, rules[i].suffix)) {
            if (measure(w->s, w->n - n) > least) {
                replace_end(w, n, rules[i].with);
            }
            return;
        }
    }
}

static void step1a(sd_stem *w)
{
    if (ends_with(w, "ies")) {
        replace_end(w, 3, w->n == 4 ? "ie" : "i");
    } else if (ends_with(w, "sses")) {
        w->n -= 2;
    } else if (ends_with(w, "s") && !ends_with(w, "ss")) {
        w->n--;
    }
}

static void step1b(sd_stem *w)
{
    if (ends_with(w, "ied")) {
        replace_end(w, 3, w->n == 4 ? "ie" : "i");
        return;
    }
    if (ends_with(w, "eed")) {
        w->n -= measure(w->s, w->n - 3) > 0;
        return;
    }
    if (ends_with(w, "ed") && has_vowel(w->s, w->n - 2)) {
        w->n -= 2;
    } else if (ends_with(w, "ing") && has_vowel(w->s, w->n - 3)) {
        w->n -= 3;
    } else {
        return;
    }
    const char last = w->s[w->n - 1];
    if (ends_with(w, "at") || ends_with(w, "bl") || ends_with(w, "iz")) {
        replace_end(w, 0, "e");
    } else if (ends_double(w->s, w->n)) {
        w->n -= last != 'l' && last != 's' && last != 'z';
    } else if (measure(w->s, w->n) == 1 && ends_cvc(w->s, w->n)) {
        replace_end(w, 0, "e");
    }
}

static void step1c(sd_stem *w)
{
    if (ends_with(w, "y") && w->n > 2 && is_consonant(w->s, w->n - 2)) {
        w->s[w->n - 1] = 'i';
    }
}

static void step2(sd_stem *w)
{
    static const sd_rule rules[] = {
        {"ational", "ate"}, {"tional", "tion"}, {"enci", "ence"},   {"anci", "ance"},   {"izer", "ize"},
        {"bli", "ble"},     {"alli", "al"},     {"entli", "ent"},   {"eli", "e"},       {"ousli", "ous"},
        {"ization", "ize"}, {"ation", "ate"},   {"ator", "ate"},    {"alism", "al"},    {"iveness", "ive"},
        {"fulness", "ful"}, {"ousness", "ous"}, {"aliti", "al"},    {"iviti", "ive"},   {"biliti", "ble"},
        {"fulli", "ful"},
    };
    if (ends_with(w, "alli") && measure(w->s, w->n - 4) > 0) {
        w->n -= 2;
    }
    if (ends_with(w, "logi")) { /* its l counts with what is before */
        w->n -= measure(w->s, w->n - 3) > 0;
        return;
    }
    apply(w, rules, sizeof rules / sizeof *rules, 0);
}

static void step3(sd_stem *w)
{
    static const sd_rule rules[] = {
        {"icate", "ic"}, {"ative", ""}, {"alize", "al"}, {"iciti", "ic"}, {"ical", "ic"}, {"ful", ""}, {"ness", ""},
    };
    apply(w, rules, sizeof rules / sizeof *rules, 0);
}

static void step4(sd_stem *w)
{
    static const sd_rule before_ion[] = {
        {"al", ""},   {"ance", ""}, {"ence", ""},  {"er", ""},   {"ic", ""},  {"able", ""},
        {"ible", ""}, {"ant", ""},  {"ement", ""}, {"ment", ""}, {"ent", ""},
    };
    static const sd_rule after_ion[] = {
        {"ou", ""}, {"ism", ""}, {"ate", ""}, {"iti", ""}, {"ous", ""}, {"ive", ""}, {"ize", ""},
    };
    if (ends_with(w, "ion")) { /* no other rule's suffix ends so */
        const char before = w->n > 3 ? w->s[w->n - 4] : '\0';
        w->n -= (before == 's' || before == 't') && measure(w->s, w->n - 3) > 1 ? 3 : 0;
        return;
    }
    const size_t n = w->n;
    apply(w, before_ion, sizeof before_ion / sizeof *before_ion, 1);
    if (w->n == n) { /* suffixes of the two lists exclude each other */
        apply(w, after_ion, sizeof after_ion / sizeof *after_ion, 1);
    }
}

static void step5(sd_stem *w)
{
    if (ends_with(w, "e")) {
        const size_t m = measure(w->s, w->n - 1);
        w->n -= m > 1 || (m == 1 && !ends_cvc(w->s, w->n - 1));
    }
    if (ends_with(w, "ll") && measure(w->s, w->n - 1) > 1) {
        w->n--;
    }
}

static bool irregular(sd_stem *w)
{
    static const sd_rule forms[] = {
        {"sky", "sky"},         {"skies", "sky"},       {"dying", "die"},       {"lying", "lie"},
        {"tying", "tie"},       {"news", "news"},       {"innings", "inning"},  {"inning", "inning"},
        {"outings", "outing"},  {"outing", "outing"},   {"cannings", "canning"}, {"canning", "canning"},
        {"howe", "howe"},       {"proceed", "proceed"}, {"exceed", "exceed"},   {"succeed", "succeed"},
    };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        if (w->n == strlen(forms[i].suffix) && memcmp(w->s, forms[i].suffix, w->n) == 0) {
            w->n = 0;
            replace_end(w, 0, forms[i].with);
            return true;
        }
    }
    return false;
}

size_t sd_porter_stem(char *word, size_t len)
{
    sd_stem w = {word, len};
    if (len > 2 && !irregular(&w)) {
        step1a(&w);
        step1b(&w);
        step1c(&w);
        step2(&w);
        step3(&w);
        step4(&w);
        step5(&w);
    }
    return w.n;
}
