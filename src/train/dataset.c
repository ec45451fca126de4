/* SPDX-License-Identifier: MIT
 *
 * Pairs of texts to tokens, all in memory. */
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/error.h"
#include "src/base/hash.h"
#include "src/train/data.h"

typedef struct sd_collector {
    sd_dataset *data;
    const sd_dataset_options *options;
} sd_collector;

static int encode(sd_dataset *d, const sd_dataset_options *o, const char *text, size_t len, unsigned flags, size_t *n,
                  sd_error *err)
{
    for (;;) {
        const size_t room = d->cap_ids - d->n_ids;
        int rc = sd_tokenizer_encode(o->tok, text, len, flags, d->ids ? d->ids + d->n_ids : NULL, room, n, err);
        if (rc != SD_ERR_LIMIT) {
            return rc;
        }
        size_t cap = 2 * (d->cap_ids + *n) + 1024;
        int32_t *ids = sd_realloc(d->ids, cap, sizeof *ids);
        if (!ids) {
            return sd_fail_memory(err, cap * sizeof *ids, "the examples");
        }
        d->ids = ids;
        d->cap_ids = cap;
    }
}

static int check_ids(const sd_dataset *d, const sd_dataset_options *o, size_t n, sd_error *err)
{
    for (size_t i = 0; i < n; i++) {
        const int32_t id = d->ids[d->n_ids + i];
        if (id < 0 || id >= o->vocab) {
            return sd_fail(err, SD_ERR_ARG,
                           "token %zu is id %d, and the model's vocabulary has %d: the tokenizer is not "
                           "the model's",
                           i, id, o->vocab);
        }
    }
    return SD_OK;
}

/* The prompt of an example; often that of the one before. */
static int take_prompt(sd_collector *c, const sd_text_pair *pair, sd_example *e, sd_error *err)
{
    sd_dataset *d = c->data;
    if (d->n > 0 && d->last_text && d->last_len == pair->prompt_len &&
        memcmp(d->last_text, pair->prompt, pair->prompt_len) == 0) {
        e->prompt = d->examples[d->n - 1].prompt;
        e->n_prompt = d->examples[d->n - 1].n_prompt;
        return SD_OK;
    }
    size_t n = 0;
    int rc = encode(d, c->options, pair->prompt, pair->prompt_len, SD_ENCODE_BOS, &n, err);
    rc = rc == SD_OK ? check_ids(d, c->options, n, err) : rc;
    if (rc != SD_OK) {
        return rc;
    }
    if (pair->prompt_len > d->last_cap) {
        sd_free(d->last_text);
        d->last_cap = 2 * pair->prompt_len;
        d->last_text = sd_malloc(d->last_cap, 1);
        if (!d->last_text) {
            d->last_cap = 0;
            return sd_fail_memory(err, 2 * pair->prompt_len, "a prompt");
        }
    }
    memcpy(d->last_text, pair->prompt, pair->prompt_len);
    d->last_len = pair->prompt_len;
    e->prompt = d->n_ids;
    e->n_prompt = n > INT32_MAX / 2 ? INT32_MAX / 2 : (int32_t)n;
    d->n_ids += n;
    return SD_OK;
}

/* The response and the end token. *n: tokens with it. */
static int take_response(sd_collector *c, const sd_text_pair *pair, size_t *n, sd_error *err)
{
    sd_dataset *d = c->data;
    int rc = encode(d, c->options, pair->response, pair->response_len, 0, n, err);
    rc = rc == SD_OK ? check_ids(d, c->options, *n, err) : rc;
    if (rc == SD_OK && d->n_ids + *n == d->cap_ids) {
        int32_t *ids = sd_realloc(d->ids, d->cap_ids + 1024, sizeof *ids);
        if (!ids) {
            return sd_fail_memory(err, (d->cap_ids + 1024) * sizeof *ids, "the examples");
        }
        d->ids = ids;
        d->cap_ids += 1024;
    }
    if (rc == SD_OK) {
        d->ids[d->n_ids + (*n)++] = c->options->end_id;
    }
    return rc;
}

static int add_example(sd_dataset *d, const sd_example *e, sd_error *err)
{
    if (d->n == d->cap) {
        size_t cap = d->cap ? 2 * d->cap : 1024;
        sd_example *examples = sd_realloc(d->examples, cap, sizeof *examples);
        if (!examples) {
            return sd_fail_memory(err, cap * sizeof *examples, "the examples");
        }
        d->examples = examples;
        d->cap = cap;
    }
    d->examples[d->n++] = *e;
    d->n_ids += (size_t)e->n_response;
    d->prompt_tokens += e->n_prompt;
    d->response_tokens += e->n_response;
    d->longest = e->n_prompt + e->n_response > d->longest ? e->n_prompt + e->n_response : d->longest;
    d->longest_response = e->n_response > d->longest_response ? e->n_response : d->longest_response;
    return SD_OK;
}

static int collect(void *user, const sd_text_pair *pair, sd_error *err)
{
    sd_collector *c = user;
    sd_dataset *d = c->data;
    const sd_dataset_options *o = c->options;
    sd_example e = {0};
    size_t n = 0;
    const size_t before = d->n_ids;
    int rc = take_prompt(c, pair, &e, err);
    e.response = d->n_ids;
    rc = rc == SD_OK ? take_response(c, pair, &n, err) : rc;
    if (rc != SD_OK) {
        return rc;
    }
    const size_t room = e.n_prompt < o->max_tokens ? (size_t)(o->max_tokens - e.n_prompt) : 0;
    if (n > room && o->too_long == SD_TOO_LONG_ERROR) {
        return sd_fail(err, SD_ERR_LIMIT,
                       "a prompt of %d tokens and a response of %zu, the end token included; there is "
                       "room for %d (--too-long skip leaves such rows out, --too-long cut shortens their responses)",
                       e.n_prompt, n, o->max_tokens);
    }
    if (n > room && (o->too_long == SD_TOO_LONG_SKIP || room == 0)) {
        d->n_skipped++;
        d->n_ids = before;
        d->last_len = SIZE_MAX; /* its tokens are gone */
        return SD_OK;
    }
    d->n_cut += n > room;
    e.n_response = (int32_t)(n > room ? room : n);
    return add_example(d, &e, err);
}

int sd_dataset_read(sd_dataset *d, const sd_data_source *source, const sd_dataset_options *o, sd_error *err)
{
    const size_t before = d->n;
    sd_collector c = {d, o};
    d->last_len = SIZE_MAX;
    int rc = sd_data_read(source, collect, &c, err);
    if (rc == SD_OK && d->n == before) {
        rc = sd_fail(err, SD_ERR_ARG, "%s: each of its %zu rows is longer than %d tokens", source->path, d->n_skipped,
                     o->max_tokens);
    }
    return rc;
}

void sd_dataset_thin(sd_dataset *d, size_t n)
{
    if (n >= d->n) {
        return;
    }
    d->prompt_tokens = d->response_tokens = 0;
    d->longest = d->longest_response = 0;
    for (size_t i = 0; i < n; i++) {
        const sd_example *e = &d->examples[(size_t)((double)i * (double)d->n / (double)n)];
        d->examples[i] = *e;
        d->prompt_tokens += e->n_prompt;
        d->response_tokens += e->n_response;
        d->longest = e->n_prompt + e->n_response > d->longest ? e->n_prompt + e->n_response : d->longest;
        d->longest_response = e->n_response > d->longest_response ? e->n_response : d->longest_response;
    }
    d->n = n;
}

void sd_dataset_clear(sd_dataset *d)
{
    sd_free(d->ids);
    sd_free(d->examples);
    sd_free(d->last_text);
    *d = (sd_dataset){0};
}

uint64_t sd_dataset_hash(const sd_dataset *d)
{
    uint64_t h = SD_HASH_START;
    for (size_t i = 0; i < d->n; i++) {
        const sd_example *e = &d->examples[i];
        const int32_t lengths[] = {e->n_prompt, e->n_response};
        h = sd_hash(h, lengths, sizeof lengths);
        h = sd_hash(h, d->ids + e->prompt, (size_t)e->n_prompt * sizeof *d->ids);
        h = sd_hash(h, d->ids + e->response, (size_t)e->n_response * sizeof *d->ids);
    }
    return h;
}

int sd_dataset_mean_steps(const sd_dataset *d)
{
    const int64_t n = d->n > 0 ? (int64_t)d->n : 1, steps = d->response_tokens - n, mean = (2 * steps + n) / (2 * n);
    return mean < 1 ? 1 : (int)mean;
}

static int by_value(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

int sd_dataset_quantile_steps(const sd_dataset *d, double share, int *steps, sd_error *err)
{
    int32_t *lengths = sd_malloc(d->n + 1, sizeof *lengths);
    if (!lengths) {
        return sd_fail_memory(err, d->n * sizeof *lengths, "the lengths of the responses");
    }
    for (size_t i = 0; i < d->n; i++) {
        lengths[i] = d->examples[i].n_response - 1;
    }
    qsort(lengths, d->n, sizeof *lengths, by_value);
    const size_t at = d->n > 0 ? (size_t)(share * (double)(d->n - 1) + 0.5) : 0;
    *steps = d->n > 0 && lengths[at] > 1 ? lengths[at] : 1;
    sd_free(lengths);
    return SD_OK;
}
