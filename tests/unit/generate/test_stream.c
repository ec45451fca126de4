/* SPDX-License-Identifier: MIT
 *
 * The token loop with text. The tokenizer has the byte b as id b, so forced tokens spell what a test wants: stop
 * strings, cut characters and special tokens, in the stream and in the final text alike. */
#include <stdio.h>

#include "src/base/alloc.h"
#include "src/base/utf8.h"
#include "tests/unit/generate/requests.h"
#include "tests/unit/tokenizer/toy.h"

enum { END = 256, STOPPED = 257, HALF = 258, N_IDS = 260, VOCAB = 272 };

static sd_model *model;
static sd_tokenizer *tok;

static int make_model_and_tokenizer(void **state)
{
    (void)state;
    static const char *const others[] = {"</s>", "xSTOPy", "ST", "OPal"}; /* ids 256 .. 259 */
    char *dir = sd_make_temp_dir();
    toy_write_two_files(dir, others, 4, "#version: 0.2\n");
    toy_write(dir, "special_tokens_map.json", "{\"eos_token\": \"</s>\"}");
    tok = toy_load(dir);
    sd_remove_temp_dir(dir);
    assert_int_equal(sd_tokenizer_size(tok), N_IDS);
    model = sd_tiny_model_of(&(sd_tiny_options){.seed = 2, .vocab = VOCAB, .n_layers = 3}, 1);
    return 0;
}

static int free_model_and_tokenizer(void **state)
{
    (void)state;
    sd_model_free(model);
    sd_tokenizer_free(tok);
    return 0;
}

/* What arrives for up to 8 requests. */
typedef struct stream {
    char text[8][1024];
    size_t len[8];
    int calls[8];
    sd_finish finish[8];
} stream;

static bool listen(void *user, int request, const char *piece, size_t len, sd_finish finish)
{
    stream *s = user;
    assert_true(sd_utf8_valid(piece, len));
    assert_true(s->len[request] + len < sizeof s->text[request]);
    assert_int_equal(s->finish[request], SD_FINISH_NONE);
    memcpy(s->text[request] + s->len[request], piece, len);
    s->len[request] += len;
    s->calls[request]++;
    s->finish[request] = finish;
    return true;
}

/* Spells `spelled` (bytes, NUL-terminated, with \1 .. \4 for the ids from 256 on) and checks text, finish and number of
 * tokens, in the result and in the stream. */
static void expect(const char *spelled, const char *const *stop, int n_stop, const char *text, sd_finish finish,
                   int n_ids)
{
    enum { MOST = 31 };
    int32_t forced[MOST];
    sd_request r = request_of(3, MOST);
    r.forced = forced;
    r.n_forced = (int)strlen(spelled);
    assert_in_range(r.n_forced, 1, MOST);
    for (int i = 0; i < r.n_forced; i++) {
        unsigned char c = (unsigned char)spelled[i];
        forced[i] = c <= 4 ? END + c - 1 : c;
    }
    r.stop = stop;
    r.n_stop = n_stop;
    stream s = {0};
    sd_generate_options o;
    sd_generate_options_default(&o);
    o.on_token = listen;
    o.user = &s;
    sd_result result;
    generate(model, tok, &r, 1, &o, &result, NULL);
    assert_string_equal(result.text, text);
    assert_string_equal(s.text[0], text);
    assert_int_equal(result.finish, finish);
    assert_int_equal(s.finish[0], finish);
    assert_int_equal(result.n_ids, n_ids);
    assert_int_equal(s.calls[0], n_ids);
    sd_result_clear(&result);
}

static void text_is_what_the_tokens_spell(void **state)
{
    (void)state;
    expect("Hello!", NULL, 0, "Hello!", SD_FINISH_LENGTH, 6);
    expect("a\3b\4c", NULL, 0, "aSTbOPalc", SD_FINISH_LENGTH, 5);
    expect("a\1b", NULL, 0, "ab", SD_FINISH_LENGTH, 3); /* special tokens have no text */
    expect("a\xC3\xA9 \xF0\x9F\x98\x80", NULL, 0, "aé 😀", SD_FINISH_LENGTH, 8);
    expect("a\xFF\xFE", NULL, 0, "a\xEF\xBF\xBD\xEF\xBF\xBD", SD_FINISH_LENGTH, 3);
}

static void a_character_cut_by_the_end_is_replaced_everywhere_alike(void **state)
{
    (void)state;
    expect("a\xF0\x9F\x98", NULL, 0, "a\xEF\xBF\xBD", SD_FINISH_LENGTH, 4);
    expect("\xE2", NULL, 0, "\xEF\xBF\xBD", SD_FINISH_LENGTH, 1);
}

static void stop_strings_end_the_row_and_are_left_out(void **state)
{
    (void)state;
    const char *const stop[] = {"STOP", "\n\n", "é!"};
    expect("one STOP two", stop, 3, "one ", SD_FINISH_STOP, 8);
    expect("one\n\ntwo", stop, 3, "one", SD_FINISH_STOP, 5);
    expect("one\2two", stop, 3, "onex", SD_FINISH_STOP, 4);   /* inside one token */
    expect("one\3\4two", stop, 3, "one", SD_FINISH_STOP, 5);  /* over two, with a rest */
    expect("a\xC3\xA9!b", stop, 3, "a", SD_FINISH_STOP, 4);   /* over the bytes of a character */
    expect("one STO", stop, 3, "one STO", SD_FINISH_LENGTH, 7); /* held back, then given */
    expect("one STO.", stop, 3, "one STO.", SD_FINISH_LENGTH, 8);
    expect("one\n", stop, 3, "one\n", SD_FINISH_LENGTH, 4);
    expect("STOP", stop, 3, "", SD_FINISH_STOP, 4);
    expect("SSTOPP", stop, 3, "S", SD_FINISH_STOP, 5);
}

/* A row that samples its end token gives what it held back, and nothing of the end token itself. */
static void the_end_token_flushes_what_was_held_back(void **state)
{
    (void)state;
    sd_request r = request_of(4, 16);
    r.ignore_eos = true;
    r.sampling.temperature = 3;
    sd_result full, ended;
    generate(model, tok, &r, 1, NULL, &full, NULL);
    int at = 15;
    for (int i = 0; i < at; i++) {
        at = full.ids[i] == full.ids[at] ? i : at; /* where this token comes first */
    }
    assert_in_range(at, 3, 15);
    size_t len;
    char before[256];
    sd_error err = {0};
    sd_assert_ok(sd_tokenizer_decode(tok, full.ids, (size_t)at, before, sizeof before, &len, &err), &err);
    char partial[300]; /* a stop string that the text so far begins */
    (void)snprintf(partial, sizeof partial, "%s and never this", before);
    const char *const stop[] = {partial};
    r.stop_ids = &full.ids[at];
    r.n_stop_ids = 1;
    r.stop = stop;
    r.n_stop = 1;
    stream s = {0};
    sd_generate_options o;
    sd_generate_options_default(&o);
    o.on_token = listen;
    o.user = &s;
    generate(model, tok, &r, 1, &o, &ended, NULL);
    assert_int_equal(ended.n_ids, at + 1);
    assert_int_equal(ended.finish, SD_FINISH_STOP);
    assert_string_equal(ended.text, before);
    assert_string_equal(s.text[0], before);
    sd_result_clear(&ended);
    sd_result_clear(&full);
}

static void ids_that_the_tokenizer_lacks_are_not_sampled(void **state)
{
    (void)state;
    sd_request r = request_of(4, 40);
    r.sampling.temperature = 100; /* nearly uniform: 12 of 272 ids have no text */
    r.ignore_eos = true;
    for (uint64_t seed = 0; seed < 8; seed++) {
        r.sampling.seed = seed;
        sd_result result;
        generate(model, tok, &r, 1, NULL, &result, NULL);
        for (int i = 0; i < result.n_ids; i++) {
            assert_in_range(result.ids[i], 0, N_IDS - 1);
        }
        sd_result_clear(&result);
    }
}

/* Random rows with random stops: the stream is the result, in any batch. */
static void streams_are_the_results_in_any_batch(void **state)
{
    (void)state;
    static const char *const stops[] = {"a", "Q", "\xC2\x80", "S", "zz", "\xEF\xBF\xBD", "OP"};
    sd_rng rng;
    sd_rng_seed(&rng, 1);
    for (int round = 0; round < 6; round++) {
        sd_request r[8];
        sd_result alone[8], together[8];
        for (int i = 0; i < 8; i++) {
            r[i] = random_request(&rng);
            r[i].stop = &stops[sd_random_int(&rng, 0, 4)];
            r[i].n_stop = sd_random_int(&rng, 0, 3);
            generate(model, tok, &r[i], 1, NULL, &alone[i], NULL);
        }
        stream s = {0};
        sd_generate_options o;
        sd_generate_options_default(&o);
        o.batch = sd_random_int(&rng, 2, 8);
        o.on_token = listen;
        o.user = &s;
        generate(model, tok, r, 8, &o, together, NULL);
        for (int i = 0; i < 8; i++) {
            assert_same_result(&together[i], &alone[i]);
            assert_string_equal(s.text[i], together[i].text);
            assert_int_equal(s.finish[i], together[i].finish);
            for (int k = 0; k < r[i].n_stop; k++) {
                assert_null(strstr(together[i].text, r[i].stop[k]));
            }
        }
        clear_results(alone, 8);
        clear_results(together, 8);
    }
}

static void bad_stop_strings_are_named(void **state)
{
    (void)state;
    char longest[1026];
    memset(longest, 'x', sizeof longest);
    longest[1025] = '\0';
    const char *const many[17] = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q"};
    const char *const empty[] = {"a", ""}, *const broken[] = {"\xC3"}, *const too_long[] = {longest};
    const char *const just_fits[] = {longest + 1};
    const struct {
        const char *const *stop;
        int n;
        const char *part;
    } bad[] = {{many, 17, "17 stop strings; expected at most 16"}, {many, -1, "-1 stop strings"},
               {empty, 2, "stop string 2: empty"}, {broken, 1, "stop string 1: not valid UTF-8"},
               {too_long, 1, "stop string 1: too long"}};
    sd_request r = request_of(3, 2);
    sd_result result;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        sd_error err = {0};
        r.stop = bad[i].stop;
        r.n_stop = bad[i].n;
        sd_assert_fails(sd_generate(model, tok, &r, 1, NULL, &result, NULL, &err), SD_ERR_ARG, &err, bad[i].part);
        assert_empty(&result, 1);
    }
    r.stop = just_fits;
    r.n_stop = 1;
    generate(model, tok, &r, 1, NULL, &result, NULL);
    sd_result_clear(&result);
    r.stop = many;
    r.n_stop = 16;
    generate(model, tok, &r, 1, NULL, &result, NULL);
    sd_result_clear(&result);
}

static void an_allocation_that_fails_is_an_error(void **state)
{
    (void)state;
    static const int32_t forced[] = {'s', 'o', 'm', 'e', ' ', HALF, STOPPED, 'x'};
    const char *const stop[] = {"never"};
    sd_request r = request_of(4, 8);
    r.forced = forced;
    r.n_forced = 8;
    r.stop = stop;
    r.n_stop = 1;
    int rc = SD_ERR_MEMORY;
    long n = 0;
    while (rc != SD_OK) {
        sd_result result;
        sd_error err = {0};
        sd_alloc_fail_at(++n);
        rc = sd_generate(model, tok, &r, 1, NULL, &result, NULL, &err);
        sd_alloc_fail_at(0);
        if (rc == SD_OK) {
            assert_string_equal(result.text, "some STxSTOPyx");
            sd_result_clear(&result);
        } else {
            sd_assert_fails(rc, SD_ERR_MEMORY, &err, "out of memory");
            assert_empty(&result, 1);
        }
    }
    assert_true(n > 20);
}

int main(void)
{
    sd_skip_unless_level();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_what_the_tokens_spell),
        cmocka_unit_test(a_character_cut_by_the_end_is_replaced_everywhere_alike),
        cmocka_unit_test(stop_strings_end_the_row_and_are_left_out),
        cmocka_unit_test(the_end_token_flushes_what_was_held_back),
        cmocka_unit_test(ids_that_the_tokenizer_lacks_are_not_sampled),
        cmocka_unit_test(streams_are_the_results_in_any_batch),
        cmocka_unit_test(bad_stop_strings_are_named),
        cmocka_unit_test(an_allocation_that_fails_is_an_error),
    };
    return cmocka_run_group_tests(tests, make_model_and_tokenizer, free_model_and_tokenizer);
}
