/* SPDX-License-Identifier: MIT */
#include "src/train/batch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/error.h"
#include "src/base/rng.h"

/* Batches are cut from spans of so many batches' worth of shuffled rows, sorted by length: enough for batches of nearly
 * one length, few enough (SPANS in an epoch, where the data allow) that neighbours differ from epoch to epoch. */
enum { MOST_BATCHES = 64, LEAST_BATCHES = 4, SPANS = 8 };

int sd_batcher_create(sd_batcher *b, const sd_dataset *data, const sd_batch_options *options, sd_error *err)
{
    *b = (sd_batcher){.data = data, .options = *options};
    if (data->n < (size_t)options->min_rows) {
        return sd_fail(err, SD_ERR_ARG,
                       "%zu examples, and every step takes one for each of %d speeds; expected more data "
                       "or fewer speeds",
                       data->n, options->min_rows);
    }
    if (data->n > UINT32_MAX / 2) {
        return sd_fail(err, SD_ERR_LIMIT, "%zu examples; expected fewer than 2^31", data->n);
    }
    if (options->rows > 0 && options->rows < options->min_rows) {
        return sd_fail(err, SD_ERR_ARG, "a batch of %d rows for %d speeds; expected at least a row for each",
                       options->rows, options->min_rows);
    }
    b->order = sd_malloc(data->n, sizeof *b->order);
    b->keys = sd_malloc(data->n, sizeof *b->keys);
    b->starts = sd_malloc(data->n + 1, sizeof *b->starts);
    b->batches = sd_malloc(data->n + 1, sizeof *b->batches);
    if (!b->order || !b->keys || !b->starts || !b->batches) {
        sd_batcher_clear(b);
        return sd_fail_memory(err, data->n * 20, "the order of the examples");
    }
    return SD_OK;
}

void sd_batcher_clear(sd_batcher *b)
{
    sd_free(b->order);
    sd_free(b->keys);
    sd_free(b->starts);
    sd_free(b->batches);
    *b = (sd_batcher){0};
}

static int length_of(const sd_batcher *b, uint32_t example)
{
    return b->data->examples[example].n_prompt + b->data->examples[example].n_response;
}

static void shuffle(uint32_t *items, size_t n, sd_rng *rng)
{
    for (size_t i = n; i > 1; i--) {
        const size_t k = (size_t)sd_rng_below(rng, i);
        const uint32_t item = items[k];
        items[k] = items[i - 1];
        items[i - 1] = item;
    }
}

static int by_key(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Longest first, rows of one length as they were shuffled. */
static void sort_span(sd_batcher *b, size_t from, size_t n)
{
    uint32_t *rows = b->order + from;
    for (size_t i = 0; i < n; i++) {
        b->keys[i] = (uint64_t)(INT32_MAX - length_of(b, rows[i])) << 32 | i;
    }
    qsort(b->keys, n, sizeof *b->keys, by_key);
    uint32_t *sorted = b->batches; /* not in use yet: as long as the data */
    for (size_t i = 0; i < n; i++) {
        sorted[i] = rows[b->keys[i] & UINT32_MAX];
    }
    memcpy(rows, sorted, n * sizeof *rows);
}

/* Cuts a sorted span into batches of about equally many tokens (or rows), none above what was asked for but where a
 * single row or min_rows of them are. */
static void cut_span(sd_batcher *b, size_t from, size_t n)
{
    const bool by_rows = b->options.rows > 0;
    const int64_t budget = by_rows ? b->options.rows : b->options.tokens;
    int64_t used = 0;
    size_t first = from;
    for (size_t i = from; i < from + n; i++) {
        const int64_t cost = by_rows ? 1 : length_of(b, b->order[i]);
        if (used + cost > budget && i - first >= (size_t)b->options.min_rows) {
            b->starts[b->n_batches++] = (uint32_t)first;
            first = i;
            used = 0;
        }
        used += cost;
    }
    /* a rest too small for a batch goes to the one before */
    if (from + n - first >= (size_t)b->options.min_rows || b->n_batches == 0) {
        b->starts[b->n_batches++] = (uint32_t)first;
    }
}

static size_t span_rows(const sd_batcher *b)
{
    const double n = (double)b->data->n, least = b->options.min_rows;
    const double mean = (double)(b->data->prompt_tokens + b->data->response_tokens) / n;
    double rows = b->options.rows > 0 ? b->options.rows : b->options.tokens / mean; /* of a batch */
    rows = rows < least ? least : rows;
    double batches = n / rows / SPANS;
    batches = batches < LEAST_BATCHES ? LEAST_BATCHES : batches > MOST_BATCHES ? MOST_BATCHES : floor(batches);
    return (size_t)(rows * batches);
}

int sd_batcher_epoch(sd_batcher *b, int epoch, sd_error *err)
{
    if (b->options.rows <= 0 && b->options.tokens <= 0) {
        return sd_fail(err, SD_ERR_ARG, "a batch of no rows");
    }
    sd_rng rng;
    sd_rng_seed(&rng, b->options.seed ^ (uint64_t)(uint32_t)epoch * UINT64_C(0x9E3779B97F4A7C15));
    const size_t n = b->data->n, span = span_rows(b);
    for (size_t i = 0; i < n; i++) {
        b->order[i] = (uint32_t)i;
    }
    shuffle(b->order, n, &rng);
    b->epoch = epoch;
    b->n_batches = 0;
    for (size_t from = 0; from < n; from += span) {
        const size_t rows = n - from < span ? n - from : span;
        sort_span(b, from, rows);
        cut_span(b, from, rows);
    }
    b->starts[b->n_batches] = (uint32_t)n;
    for (size_t i = 0; i < b->n_batches; i++) {
        b->batches[i] = (uint32_t)i;
    }
    shuffle(b->batches, b->n_batches, &rng);
    return SD_OK;
}

size_t sd_batcher_steps(const sd_batcher *b)
{
    const size_t each = (size_t)b->options.accumulate;
    return (b->n_batches + each - 1) / each;
}

int sd_batcher_count(sd_batcher *b, int epochs, int64_t *steps, sd_error *err)
{
    *steps = 0;
    for (int e = 0; e < epochs; e++) {
        int rc = sd_batcher_epoch(b, e, err);
        if (rc != SD_OK) {
            return rc;
        }
        *steps += (int64_t)sd_batcher_steps(b);
    }
    return SD_OK;
}

const uint32_t *sd_batcher_rows(const sd_batcher *b, size_t i, int *n_rows)
{
    const uint32_t batch = b->batches[i];
    *n_rows = (int)(b->starts[batch + 1] - b->starts[batch]);
    return b->order + b->starts[batch];
}

int sd_batch_speed(int64_t batch, int row, int n_speeds) { return (int)((batch + row) % n_speeds); }
