/* SPDX-License-Identifier: MIT
 *
 * One tokenizer, several threads that encode and decode at once: the same ids as alone, and nothing for ThreadSanitizer
 * to say (tools/check tsan). */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/rng.h"
#include "tests/support/support.h"
#include "tests/unit/tokenizer/toy.h"

enum { THREADS = 4, TEXTS = 300, TEXT_MAX = 400 };

static char texts[TEXTS][TEXT_MAX];
static size_t lens[TEXTS];
static int32_t *wanted[TEXTS];
static size_t n_wanted[TEXTS];
static sd_tokenizer *tok;

static size_t encode(size_t i, int32_t *ids)
{
    size_t n = 0;
    int rc = sd_tokenizer_encode(tok, texts[i], lens[i], SD_ENCODE_BOS | SD_ENCODE_SPECIALS, ids, TEXT_MAX + 1, &n,
                                 NULL);
    return rc == SD_OK ? n : 0;
}

/* Returns a text that came out differently, or NULL. cmocka's assertions are for the main thread only. */
static void *worker(void *argument)
{
    int32_t ids[TEXT_MAX + 1];
    char text[4 * TEXT_MAX];
    for (size_t k = 0; k < 3 * TEXTS; k++) {
        size_t i = (k + *(size_t *)argument) % TEXTS, len;
        size_t n = encode(i, ids);
        if (n != n_wanted[i] || memcmp(ids, wanted[i], n * sizeof *ids) != 0 ||
            sd_tokenizer_decode(tok, ids, n, text, sizeof text, &len, NULL) != SD_OK) {
            return texts[i];
        }
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    static const char *const others[] = {"</s>", "ab", "abab", "\xC4\xA0\x61"};
    char *dir = sd_make_temp_dir();
    toy_write_two_files(dir, others, 4, "a b\nab ab\n\xC4\xA0 a\n");
    toy_write(dir, "tokenizer_config.json",
              "{\"bos_token\": \"</s>\", \"add_bos_token\": true, \"add_prefix_space\": true}");
    tok = toy_load(dir);
    sd_remove_temp_dir(dir);
    sd_rng rng;
    sd_rng_seed(&rng, 4);
    for (size_t i = 0; i < TEXTS; i++) {
        static const char *const parts[] = {"a", "b", " ", "abab", "</s>", "\xE4\xB8\xAD", "\xFF", "1", "\n"};
        size_t limit = (size_t)sd_rng_below(&rng, TEXT_MAX - 8);
        while (lens[i] < limit) {
            const char *part = parts[sd_rng_below(&rng, i % 3 ? 9 : 2)]; /* every third is one long piece */
            memcpy(texts[i] + lens[i], part, strlen(part));
            lens[i] += strlen(part);
        }
        wanted[i] = malloc((TEXT_MAX + 1) * sizeof **wanted);
        assert_non_null(wanted[i]);
        n_wanted[i] = encode(i, wanted[i]);
        assert_true(n_wanted[i] > 0);
    }
    pthread_t threads[THREADS];
    size_t starts[THREADS];
    for (size_t t = 0; t < THREADS; t++) {
        starts[t] = 7 * t;
        assert_int_equal(pthread_create(&threads[t], NULL, worker, &starts[t]), 0);
    }
    void *failed = NULL;
    for (size_t t = 0; t < THREADS; t++) {
        void *one;
        assert_int_equal(pthread_join(threads[t], &one), 0);
        failed = one ? one : failed;
    }
    if (failed) {
        fail_msg("encoded differently among threads: \"%s\"", (const char *)failed);
    }
    for (size_t i = 0; i < TEXTS; i++) {
        free(wanted[i]);
    }
    sd_tokenizer_free(tok);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_threads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
