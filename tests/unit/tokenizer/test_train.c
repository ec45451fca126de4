/* SPDX-License-Identifier: MIT
 *
 * Learned merges against a learner that counts everything anew for each merge, and what happens at the edges. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/file.h"
#include "src/base/rng.h"
#include "src/tokenizer/tokenizer.h"
#include "src/tokenizer/train_parts.h"
#include "tests/support/support.h"

enum { MAX_WORDS = 512, MAX_SYMBOLS = 64 };

/* ---- the naive learner: words of symbols, counts by looking ---- */

typedef struct naive_word {
    int n, s[MAX_SYMBOLS];
} naive_word;

static naive_word words[MAX_WORDS];
static int n_words;

static int count_pair(int a, int b)
{
    int count = 0;
    for (int w = 0; w < n_words; w++) {
        for (int i = 1; i < words[w].n; i++) {
            count += words[w].s[i - 1] == a && words[w].s[i] == b;
        }
    }
    return count;
}

/* The commonest pair, of equals the one with smaller ids. */
static int best_pair(int *a, int *b)
{
    int best = 0;
    for (int w = 0; w < n_words; w++) {
        for (int i = 1; i < words[w].n; i++) {
            const int x = words[w].s[i - 1], y = words[w].s[i], count = count_pair(x, y);
            if (count > best || (count == best && (x < *a || (x == *a && y < *b)))) {
                best = count;
                *a = x;
                *b = y;
            }
        }
    }
    return best;
}

static void join_pair(int a, int b, int joined)
{
    for (int w = 0; w < n_words; w++) {
        naive_word *word = &words[w];
        int to = 0;
        for (int i = 0; i < word->n; i++, to++) {
            const bool here = i + 1 < word->n && word->s[i] == a && word->s[i + 1] == b;
            word->s[to] = here ? joined : word->s[i];
            i += here;
        }
        word->n = to;
    }
}

static sd_bpe_trainer *make(void)
{
    sd_bpe_trainer *t;
    sd_error err;
    sd_assert_ok(sd_bpe_trainer_create(&t, &err), &err);
    return t;
}

static int id_of_byte(const sd_bpe_trainer *t, char byte)
{
    for (size_t id = SD_N_SPECIALS; id < SD_SMALLEST_VOCAB; id++) {
        size_t len;
        if (*sd_bpe_token(t, id, &len) == byte && len == 1) {
            return (int)id;
        }
    }
    return -1;
}

/* Random words of few letters, so that pairs overlap ("aaa"), tie and come up in several ways. */
static void test_same_as_naive(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 30; seed++) {
        sd_rng rng;
        sd_rng_seed(&rng, seed);
        sd_bpe_trainer *t = make();
        sd_error err;
        char text[MAX_WORDS][MAX_SYMBOLS];
        n_words = 20 + (int)sd_rng_below(&rng, 100);
        const uint64_t letters = 2 + sd_rng_below(&rng, 4);
        for (int w = 0; w < n_words; w++) {
            const int len = 1 + (int)sd_rng_below(&rng, 12);
            for (int i = 0; i < len; i++) {
                text[w][i] = (char)('a' + (int)sd_rng_below(&rng, letters));
            }
            text[w][len] = '\0';
            sd_assert_ok(sd_bpe_trainer_add(t, text[w], (size_t)len, &err), &err);
        }
        sd_assert_ok(sd_bpe_trainer_run(t, SD_SMALLEST_VOCAB + 25, &err), &err);
        for (int w = 0; w < n_words; w++) {
            words[w].n = (int)strlen(text[w]);
            for (int i = 0; i < words[w].n; i++) {
                words[w].s[i] = id_of_byte(t, text[w][i]);
            }
        }
        for (size_t m = 0; m < t->n_merges; m++) {
            int a = 0, b = 0;
            assert_true(best_pair(&a, &b) > 0);
            assert_int_equal(t->merges[m].left, a);
            assert_int_equal(t->merges[m].right, b);
            char joined[2 * MAX_SYMBOLS];
            size_t n_left, n_right, len = 0, id = 0;
            const char *left = sd_bpe_token(t, (size_t)a, &n_left), *right = sd_bpe_token(t, (size_t)b, &n_right);
            memcpy(joined, left, n_left);
            memcpy(joined + n_left, right, n_right);
            while (sd_bpe_token(t, id, &len), len != n_left + n_right ||
                   memcmp(sd_bpe_token(t, id, &len), joined, len) != 0) {
                id++;
            }
            join_pair(a, b, (int)id);
        }
        assert_true(t->n_merges >= 20);
        sd_bpe_trainer_free(t);
    }
}

static const char corpus[] = "The cat sat on the mat; the cat's mat, the Caf\xC3\xA9's m\xC3\xA4t. </s> </s> </s> </s> "
                             "</s></s></s> 1234 1234 1234 \xF0\x9F\x98\x80\xF0\x9F\x98\x80";

static sd_tokenizer *learn(const char *dir, int vocab)
{
    sd_error err;
    sd_bpe_trainer *t = make();
    sd_assert_ok(sd_bpe_trainer_add(t, corpus, strlen(corpus), &err), &err);
    sd_assert_ok(sd_bpe_trainer_run(t, vocab, &err), &err);
    sd_assert_ok(sd_bpe_trainer_save(t, dir, &err), &err);
    sd_bpe_trainer_free(t);
    sd_tokenizer *tok;
    sd_assert_ok(sd_tokenizer_load(&tok, dir, &err), &err);
    return tok;
}

/* Text that spells a special token stays text, however often it comes, and everything comes back. */
static void test_loads(void **state)
{
    (void)state;
    char *dir = sd_make_temp_dir();
    sd_tokenizer *tok = learn(dir, 1000);
    int32_t ids[512];
    size_t n, len;
    sd_error err;
    char back[512];
    assert_int_equal(sd_tokenizer_bos(tok), SD_SPECIAL_END);
    assert_int_equal(sd_tokenizer_eos(tok), SD_SPECIAL_END);
    assert_true(sd_tokenizer_adds_bos(tok));
    sd_assert_ok(sd_tokenizer_encode(tok, corpus, strlen(corpus), SD_ENCODE_BOS, ids, 512, &n, &err), &err);
    assert_int_equal(ids[0], SD_SPECIAL_END);
    for (size_t i = 1; i < n; i++) {
        assert_true(ids[i] >= SD_N_SPECIALS);
    }
    sd_assert_ok(sd_tokenizer_decode(tok, ids, n, back, sizeof back, &len, &err), &err);
    assert_string_equal(back, corpus);
    for (int i = 0; i < SD_N_SPECIALS; i++) {
        assert_true(sd_tokenizer_is_special(tok, i));
    }
    sd_tokenizer_free(tok);
    sd_remove_temp_dir(dir);
}

static char *file_text(const char *dir, const char *name, size_t *size)
{
    char *path = sd_path_join(dir, name);
    sd_file file;
    sd_error err;
    sd_assert_ok(sd_file_open(&file, path, true, &err), &err);
    char *text = sd_strndup((const char *)file.data, file.size);
    *size = file.size;
    sd_file_close(&file);
    sd_free(path);
    return text;
}

/* Each form of the files by itself gives the same ids, and the order of the texts does not matter. */
static void test_files_agree(void **state)
{
    (void)state;
    char *dir = sd_make_temp_dir(), *other = sd_make_temp_dir();
    sd_tokenizer_free(learn(dir, 290));
    sd_error err;
    sd_bpe_trainer *t = make();
    const char *space = strchr(corpus, ' ');
    sd_assert_ok(sd_bpe_trainer_add(t, space, strlen(space), &err), &err);
    sd_assert_ok(sd_bpe_trainer_add(t, corpus, (size_t)(space - corpus), &err), &err);
    sd_assert_ok(sd_bpe_trainer_run(t, 290, &err), &err);
    assert_int_equal(sd_bpe_trainer_vocab_size(t), 290);
    sd_assert_ok(sd_bpe_trainer_save(t, other, &err), &err);
    sd_bpe_trainer_free(t);
    static const char *const names[] = {"vocab.json", "merges.txt", "tokenizer.json", "tokenizer_config.json"};
    for (int i = 0; i < 4; i++) {
        size_t n, m;
        char *a = file_text(dir, names[i], &n), *b = file_text(other, names[i], &m);
        assert_int_equal(n, m);
        assert_memory_equal(a, b, n);
        sd_free(a);
        sd_free(b);
    }
    int32_t ids[2][512];
    size_t n[2];
    for (int form = 0; form < 2; form++) {
        static const char *const removed[] = {"vocab.json", "tokenizer.json"};
        char *path = sd_path_join(form ? other : dir, removed[form]);
        assert_int_equal(remove(path), 0);
        sd_free(path);
        sd_tokenizer *tok;
        sd_assert_ok(sd_tokenizer_load(&tok, form ? other : dir, &err), &err);
        sd_assert_ok(sd_tokenizer_encode(tok, corpus, strlen(corpus), SD_ENCODE_BOS, ids[form], 512, &n[form], &err),
                     &err);
        sd_tokenizer_free(tok);
    }
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(ids[0], ids[1], n[0] * sizeof **ids);
    sd_remove_temp_dir(dir);
    sd_remove_temp_dir(other);
}

static void test_edges(void **state)
{
    (void)state;
    sd_error err;
    sd_bpe_trainer *t = make();
    sd_assert_fails(sd_bpe_trainer_run(t, SD_SMALLEST_VOCAB - 1, &err), SD_ERR_ARG, &err, "expected 260");
    sd_assert_fails(sd_bpe_trainer_add(t, "a\xFF", 2, &err), SD_ERR_FORMAT, &err, "not valid UTF-8");
    sd_assert_ok(sd_bpe_trainer_add(t, "", 0, &err), &err);
    sd_assert_ok(sd_bpe_trainer_add(t, "abc", 3, &err), &err);
    sd_assert_ok(sd_bpe_trainer_run(t, 1000, &err), &err); /* and nothing more to merge */
    assert_int_equal(sd_bpe_trainer_vocab_size(t), SD_SMALLEST_VOCAB + 2);
    sd_assert_fails(sd_bpe_trainer_save(t, "/nonexistent/dir", &err), SD_ERR_IO, &err, "/nonexistent/dir/vocab.json");
    sd_bpe_trainer_free(t);
}

static void test_allocations_fail(void **state)
{
    (void)state;
    char *dir = sd_make_temp_dir();
    bool done = false;
    for (long n = 1; !done; n++) {
        sd_bpe_trainer *t;
        sd_error err;
        sd_alloc_fail_at(n);
        int rc = sd_bpe_trainer_create(&t, &err);
        rc = rc == SD_OK ? sd_bpe_trainer_add(t, corpus, strlen(corpus), &err) : rc;
        rc = rc == SD_OK ? sd_bpe_trainer_run(t, 300, &err) : rc;
        rc = rc == SD_OK ? sd_bpe_trainer_save(t, dir, &err) : rc;
        done = sd_alloc_count() < n;
        sd_alloc_fail_at(0);
        if (!done && rc != SD_OK) {
            assert_int_equal(rc, SD_ERR_MEMORY);
        }
        sd_bpe_trainer_free(t);
    }
    sd_remove_temp_dir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_as_naive), cmocka_unit_test(test_loads),
        cmocka_unit_test(test_files_agree),   cmocka_unit_test(test_edges),
        cmocka_unit_test(test_allocations_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
