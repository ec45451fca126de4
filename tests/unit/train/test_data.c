/* SPDX-License-Identifier: MIT
 *
 * Rows of the three kinds of files as examples of tokens, and every fault named with the file and the line. */
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/file.h"
#include "src/tokenizer/tokenizer.h"
#include "src/tokenizer/train.h"
#include "src/train/data.h"
#include "tests/support/support.h"

enum { END = SD_SPECIAL_END };

static char *dir;
static sd_tokenizer *tok;

static int setup(void **state)
{
    (void)state;
    dir = sd_make_temp_dir();
    sd_bpe_trainer *trainer;
    sd_error err;
    sd_assert_ok(sd_bpe_trainer_create(&trainer, &err), &err);
    sd_assert_ok(sd_bpe_trainer_run(trainer, SD_SMALLEST_VOCAB, &err), &err); /* a token a byte */
    sd_assert_ok(sd_bpe_trainer_save(trainer, dir, &err), &err);
    sd_bpe_trainer_free(trainer);
    sd_assert_ok(sd_tokenizer_load(&tok, dir, &err), &err);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sd_tokenizer_free(tok);
    sd_remove_temp_dir(dir);
    return 0;
}

static char *file(const char *name, const char *text)
{
    char *path = sd_path_join(dir, name);
    sd_write_file(path, text, strlen(text));
    return path;
}

static sd_dataset_options options(int max_tokens, sd_too_long too_long)
{
    return (sd_dataset_options){tok, END, SD_SMALLEST_VOCAB, max_tokens, too_long};
}

/* One file as `name`, NULL: no second one. */
static int read_with(sd_dataset *data, const char *name, const char *text, const char *responses, const char *template,
                     const sd_dataset_options *o, sd_error *err)
{
    char *path = file(name, text), *other = responses ? file("responses", responses) : NULL;
    int rc = sd_dataset_read(data, &(sd_data_source){path, other, template, "ref", 0}, o, err);
    sd_free(path);
    sd_free(other);
    return rc;
}

static int read_text(sd_dataset *data, const char *name, const char *text, const char *responses, const char *template,
                     sd_error *err)
{
    const sd_dataset_options o = options(100, SD_TOO_LONG_ERROR);
    return read_with(data, name, text, responses, template, &o, err);
}

/* Example i is this prompt, BOS in front, and this response, the end token behind it. */
static void expect(const sd_dataset *data, size_t i, const char *prompt, const char *response)
{
    assert_true(i < data->n);
    const sd_example *e = &data->examples[i];
    char text[256];
    size_t len;
    sd_error err;
    assert_int_equal(e->n_prompt, strlen(prompt) + 1);
    assert_int_equal(data->ids[e->prompt], END);
    sd_assert_ok(sd_tokenizer_decode(tok, data->ids + e->prompt, (size_t)e->n_prompt, text, sizeof text, &len, &err),
                 &err);
    assert_string_equal(text, prompt);
    assert_int_equal(e->n_response, strlen(response) + 1);
    assert_int_equal(data->ids[e->response + (size_t)e->n_response - 1], END);
    sd_assert_ok(
        sd_tokenizer_decode(tok, data->ids + e->response, (size_t)e->n_response, text, sizeof text, &len, &err), &err);
    assert_string_equal(text, response);
}

static void test_csv(void **state)
{
    (void)state;
    sd_dataset d = {0};
    sd_error err;
    sd_assert_ok(read_text(&d, "a.csv", "\xEF\xBB\xBFmr,ref\r\na,one\r\na,\"two, \"\"too\"\"\"\nb,\"three\nlines\"\n",
                           NULL, "{mr} {{}}\n", &err),
                 &err);
    assert_int_equal(d.n, 3);
    expect(&d, 0, "a {}\n", "one");
    expect(&d, 1, "a {}\n", "two, \"too\"");
    expect(&d, 2, "b {}\n", "three\nlines");
    assert_int_equal(d.examples[0].prompt, d.examples[1].prompt); /* tokenised once */
    assert_int_equal(d.prompt_tokens, 3 * 6);
    assert_int_equal(d.response_tokens, 4 + 11 + 12);
    assert_int_equal(d.longest, 6 + 12);
    assert_int_equal(sd_dataset_mean_steps(&d), 8); /* 3, 10 and 11 */
    int steps = 0;
    sd_assert_ok(sd_dataset_quantile_steps(&d, 0.5, &steps, &err), &err);
    assert_int_equal(steps, 10);
    sd_dataset_clear(&d);
}

static void test_jsonl(void **state)
{
    (void)state;
    sd_dataset d = {0};
    sd_error err;
    sd_assert_ok(read_text(&d, "a.jsonl",
                           "{\"x\": \"p\", \"ref\": [\"one\", \"two\"]}\n\n{\"prompt\": \"own\", \"ref\": "
                           "\"three\"}\n",
                           NULL, "<{x}>", &err),
                 &err);
    sd_assert_ok(read_text(&d, "b.txt", "q\nr</s>\n", "four\r\nfive", NULL, &err), &err); /* appended */
    assert_int_equal(d.n, 5);
    expect(&d, 0, "<p>", "one");
    expect(&d, 1, "<p>", "two");
    expect(&d, 2, "own", "three");
    expect(&d, 3, "q", "four");
    expect(&d, 4, "r</s>", "five"); /* text, not the end token */
    sd_dataset_clear(&d);
}

static void test_faults(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text, *responses, *template;
        int code;
        const char *says;
    } faults[] = {
        {"a.csv", "mr,ref\na,b\n", NULL, NULL, SD_ERR_ARG, "a.csv: CSV needs a --template"},
        {"a.csv", "", NULL, "{mr}", SD_ERR_FORMAT, "a.csv: the CSV is empty"},
        {"a.csv", "mr,ref\n", NULL, "{mr}", SD_ERR_ARG, "a.csv: no rows"},
        {"a.csv", "mr,ref\na,b\nc,\n", NULL, "{mr}", SD_ERR_ARG, "a.csv: line 3: the response is empty"},
        {"a.csv", "mr,ref\n,b\n", NULL, "{mr}", SD_ERR_ARG, "a.csv: line 2: the prompt is empty"},
        {"a.csv", "mr,ref\na,b\nc\n", NULL, "{mr}", SD_ERR_FORMAT, "a.csv: line 3: 1 fields, the header has 2"},
        {"a.csv", "mr,text\na,b\n", NULL, "{mr}", SD_ERR_ARG,
         "line 2: there is no column \"ref\" for the response, only "
         "\"mr\", \"text\"; --response names it"},
        {"a.csv", "mr,ref\na,b\n", NULL, "{food}", SD_ERR_ARG,
         "line 2: the template asks for field \"food\"; there is only "
         "\"mr\", \"ref\""},
        {"a.csv", "mr,ref,ref\na,b,c\n", NULL, "{mr}", SD_ERR_FORMAT, "column \"ref\" twice"},
        {"a.csv", "mr,ref\na,\xFF\n", NULL, "{mr}", SD_ERR_ARG, "line 2: the response is not valid UTF-8"},
        {"a.csv", "mr,ref\na,\"b\n", NULL, "{mr}", SD_ERR_FORMAT, "line 2: a quoted field is never closed"},
        {"a.jsonl", "{\"prompt\": \"p\"}\n", NULL, NULL, SD_ERR_FORMAT,
         "line 1: key \"ref\": expected the response, a string "
         "or a list of them, found nothing"},
        {"a.jsonl", "{\"prompt\": \"p\", \"ref\": []}\n", NULL, NULL, SD_ERR_FORMAT, "found an empty list"},
        {"a.jsonl", "{\"prompt\": \"p\", \"ref\": [\"a\", 1]}\n", NULL, NULL, SD_ERR_FORMAT,
         "item 2: expected a string"},
        {"a.jsonl", "{\"prompt\": \"p\", \"ref\": \"r\"}\n[1]\n", NULL, NULL, SD_ERR_FORMAT,
         "line 2: expected a JSON object"},
        {"a.jsonl", "{\"prompt\": \"p\", \"ref\": \"r\"}\n{\n", NULL, NULL, SD_ERR_FORMAT, "line 2: not valid JSON"},
        {"a.jsonl", "{\"x\": \"p\", \"ref\": \"r\"}\n", NULL, NULL, SD_ERR_FORMAT, "a --template builds prompts"},
        {"a.txt", "a\n", NULL, NULL, SD_ERR_ARG, "a.txt: lines of text, by its name"},
        {"a.txt", "a\nb\nc\n", "x\ny\n", NULL, SD_ERR_FORMAT, "goes on after line 2, where"},
        {"a.txt", "a\nb\n", "x\ny\nz\n", NULL, SD_ERR_FORMAT, "ends after line 2, and"},
        {"a.txt", "a\nb\n", "x\n\n", NULL, SD_ERR_ARG, "line 2: the response is empty"},
        {"a.txt", "a\n", "x\n", "{a} {b}", SD_ERR_ARG, "has 2 fields; lines of text fill exactly one"},
    };
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        sd_dataset d = {0};
        sd_error err;
        int rc = read_text(&d, faults[i].name, faults[i].text, faults[i].responses, faults[i].template, &err);
        sd_assert_fails(rc, faults[i].code, &err, faults[i].says);
        sd_dataset_clear(&d);
    }
}

/* Rows of 1 + 3 prompt tokens and 2, 6 and 11 response tokens. */
static void test_too_long(void **state)
{
    (void)state;
    static const char text[] = "mr,ref\nabc,a\nabc,abcde\nxyz,abcdefghij\nabc,b\n";
    sd_dataset d = {0};
    sd_error err;
    sd_dataset_options o = options(10, SD_TOO_LONG_ERROR);
    int rc = read_with(&d, "a.csv", text, NULL, "{mr}", &o, &err);
    sd_assert_fails(rc, SD_ERR_LIMIT, &err, "a.csv: line 4: a prompt of 4 tokens and a response of 11");
    sd_dataset_clear(&d);
    o.too_long = SD_TOO_LONG_SKIP;
    sd_assert_ok(read_with(&d, "a.csv", text, NULL, "{mr}", &o, &err), &err);
    assert_int_equal(d.n, 3);
    assert_int_equal(d.n_skipped, 1);
    expect(&d, 1, "abc", "abcde");
    expect(&d, 2, "abc", "b"); /* after a row whose prompt was dropped */
    sd_dataset_clear(&d);
    o.too_long = SD_TOO_LONG_CUT;
    sd_assert_ok(read_with(&d, "a.csv", text, NULL, "{mr}", &o, &err), &err);
    assert_int_equal(d.n, 4);
    assert_int_equal(d.n_cut, 1);
    assert_int_equal(d.examples[2].n_response, 6); /* abcdef, and no end token */
    assert_int_not_equal(d.ids[d.examples[2].response + 5], END);
    sd_dataset_clear(&d);
    o.max_tokens = 4; /* no room behind any prompt */
    sd_assert_fails(read_with(&d, "a.csv", text, NULL, "{mr}", &o, &err), SD_ERR_ARG, &err, "longer than 4 tokens");
    sd_dataset_clear(&d);
    o = options(100, SD_TOO_LONG_ERROR);
    o.vocab = 50;
    sd_assert_fails(read_with(&d, "a.csv", text, NULL, "{mr}", &o, &err), SD_ERR_ARG, &err,
                    "the model's vocabulary has 50");
    sd_dataset_clear(&d);
}

static void test_hash_and_thin(void **state)
{
    (void)state;
    sd_dataset a = {0}, b = {0};
    sd_error err;
    sd_assert_ok(read_text(&a, "a.csv", "mr,ref\na,bc\nd,e\nf,g\nh,i\n", NULL, "{mr}", &err), &err);
    sd_assert_ok(read_text(&b, "a.csv", "mr,ref\nab,c\nd,e\nf,g\nh,i\n", NULL, "{mr}", &err), &err);
    assert_true(sd_dataset_hash(&a) != sd_dataset_hash(&b)); /* the same text, cut elsewhere */
    sd_dataset_thin(&a, 2);
    assert_int_equal(a.n, 2);
    expect(&a, 0, "a", "bc");
    expect(&a, 1, "f", "g");
    assert_int_equal(a.response_tokens, 5);
    sd_dataset_thin(&a, 7);
    assert_int_equal(a.n, 2);
    sd_dataset_clear(&a);
    sd_dataset_clear(&b);
}

static void test_allocations_fail(void **state)
{
    (void)state;
    char *path = file("a.csv", "mr,ref\na,bc\nd,e\n"),
         *json = file("a.jsonl", "{\"prompt\": \"p\", \"ref\": [\"x\", \"y\"]}\n");
    bool done = false;
    for (long n = 1; !done; n++) {
        sd_dataset d = {0};
        sd_error err;
        const sd_dataset_options o = options(100, SD_TOO_LONG_ERROR);
        sd_alloc_fail_at(n);
        int rc = sd_dataset_read(&d, &(sd_data_source){path, NULL, "{mr}", "ref", 0}, &o, &err);
        rc = rc == SD_OK ? sd_dataset_read(&d, &(sd_data_source){json, NULL, NULL, "ref", 0}, &o, &err) : rc;
        done = sd_alloc_count() < n;
        sd_alloc_fail_at(0);
        assert_int_equal(rc, done ? SD_OK : SD_ERR_MEMORY);
        sd_dataset_clear(&d);
    }
    sd_free(path);
    sd_free(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_csv),           cmocka_unit_test(test_jsonl),
        cmocka_unit_test(test_faults),        cmocka_unit_test(test_too_long),
        cmocka_unit_test(test_hash_and_thin), cmocka_unit_test(test_allocations_fail),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
