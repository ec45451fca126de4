/* SPDX-License-Identifier: MIT */
#include "src/generate/sampler.h"

#include <math.h>

#include "src/base/alloc.h"
#include "src/base/error.h"

void sd_sampling_default(sd_sampling *sampling)
{
    *sampling = (sd_sampling){.top_p = 1, .repetition_penalty = 1};
}

int sd_sampling_check(const sd_sampling *s, sd_error *err)
{
    /* each condition is written so that NaN fails it */
    if (!(s->temperature >= 0 && s->temperature <= 100)) {
        return sd_fail(err, SD_ERR_ARG, "temperature %g: expected 0 (greedy) .. 100", (double)s->temperature);
    }
    if (s->top_k < 0) {
        return sd_fail(err, SD_ERR_ARG, "top_k %d: expected 0 (off) or more", s->top_k);
    }
    if (!(s->top_p > 0 && s->top_p <= 1)) {
        return sd_fail(err, SD_ERR_ARG, "top_p %g: expected more than 0, at most 1 (off)", (double)s->top_p);
    }
    if (!(s->min_p >= 0 && s->min_p < 1)) {
        return sd_fail(err, SD_ERR_ARG, "min_p %g: expected at least 0 (off), less than 1", (double)s->min_p);
    }
    if (!(s->repetition_penalty > 0 && s->repetition_penalty <= 100)) {
        return sd_fail(err, SD_ERR_ARG, "repetition_penalty %g: expected more than 0, at most 100 (1 is off)",
                       (double)s->repetition_penalty);
    }
    return SD_OK;
}

int sd_sampler_init(sd_sampler *sampler, const sd_sampling *sampling, int vocab, int valid, sd_error *err)
{
    *sampler = (sd_sampler){.options = *sampling, .vocab = vocab, .valid = valid < vocab ? valid : vocab};
    int rc = sd_sampling_check(sampling, err);
    if (rc != SD_OK) {
        return rc;
    }
    sd_rng_seed(&sampler->rng, sampling->seed);
    if (sampling->repetition_penalty != 1.0f) {
        sampler->seen = sd_calloc((size_t)vocab, 1);
        if (!sampler->seen) {
            return sd_fail_memory(err, (size_t)vocab, "the repetition penalty");
        }
    }
    return SD_OK;
}

void sd_sampler_clear(sd_sampler *sampler)
{
    sd_free(sampler->seen);
    *sampler = (sd_sampler){0};
}

void sd_sampler_note(sd_sampler *sampler, int32_t id)
{
    if (sampler->seen && id >= 0 && id < sampler->vocab) {
        sampler->seen[id] = 1;
    }
}

/* The logit after the repetition penalty: as CTRL (arXiv 1909.05858) has it, with the sign taken into account, so that
 * a seen token always becomes less likely. */
static float penalized(const sd_sampler *s, const float *logits, int id)
{
    float x = logits[id];
    if (s->seen && s->seen[id]) {
        return x > 0 ? x / s->options.repetition_penalty : x * s->options.repetition_penalty;
    }
    return x;
}

/* Higher logit first, the lower id first on a tie: a total order, so that a seed gives one result. */
static bool before(const sd_candidate *a, const sd_candidate *b)
{
    return a->logit > b->logit || (a->logit == b->logit && a->id < b->id);
}

static void sift_down(sd_candidate *heap, int n, int i)
{
    for (;;) {
        int child = 2 * i + 1;
        if (child >= n) {
            return;
        }
        if (child + 1 < n && before(&heap[child + 1], &heap[child])) {
            child++;
        }
        if (before(&heap[i], &heap[child])) {
            return;
        }
        sd_candidate t = heap[i];
        heap[i] = heap[child];
        heap[child] = t;
        i = child;
    }
}

/* Takes the best candidate off the heap and leaves it just past the shrunken heap's end: sorted from the back. */
static void pop(sd_candidate *heap, int *n)
{
    sd_candidate best = heap[0];
    heap[0] = heap[--*n];
    heap[*n] = best;
    sift_down(heap, *n, 0);
}

/* Fills scratch with the finite logits, relative to the largest (so that exp() of one is at most 1) and divided by the
 * temperature; returns how many. In this order a tiny temperature sends all but the best to -infinity; the other way
 * round the best would overflow. */
static int collect(const sd_sampler *s, const float *logits, sd_candidate *scratch)
{
    int n = 0;
    float top = -INFINITY;
    for (int i = 0; i < s->valid; i++) {
        float x = penalized(s, logits, i);
        if (isfinite(x)) {
            scratch[n++] = (sd_candidate){x, i};
            top = x > top ? x : top;
        }
    }
    for (int i = 0; i < n; i++) {
        scratch[i].logit = (scratch[i].logit - top) / s->options.temperature;
    }
    return n;
}

/* Draws among `count` candidates with weights exp(logit). */
static int32_t draw(sd_rng *rng, const sd_candidate *c, int count)
{
    double total = 0;
    for (int i = 0; i < count; i++) {
        total += exp((double)c[i].logit);
    }
    double u = sd_rng_double(rng) * total, sum = 0;
    for (int i = 0; i < count; i++) {
        sum += exp((double)c[i].logit);
        if (u < sum) {
            return c[i].id;
        }
    }
    return c[count - 1].id;
}

/* Keeps the best ones that the filters allow, at the end of the scratch array; returns where they start. */
static int filter(const sd_sampler *s, sd_candidate *c, int n)
{
    const sd_sampling *o = &s->options;
    int heap = n, limit = o->top_k > 0 && o->top_k < n ? n - o->top_k : 0;
    for (int i = n / 2 - 1; i >= 0; i--) {
        sift_down(c, n, i);
    }
    if (o->top_p >= 1) {
        while (heap > limit) {
            double p = exp((double)c[0].logit); /* relative to the best one */
            if (p < (double)o->min_p && heap < n) {
                break;
            }
            pop(c, &heap);
        }
        return heap;
    }
    double total = 0, sum = 0; /* top-p counts the mass of what top-k left */
    if (limit > 0) {
        int rest = n;
        while (rest > limit) {
            total += exp((double)c[0].logit);
            pop(c, &rest);
        }
        int start = rest;
        for (heap = n; heap > start && (heap == n || sum < (double)o->top_p * total); heap--) {
            sum += exp((double)c[heap - 1].logit);
        }
    } else {
        for (int i = 0; i < n; i++) {
            total += exp((double)c[i].logit);
        }
        while (heap > 0 && (heap == n || sum < (double)o->top_p * total)) {
            sum += exp((double)c[0].logit);
            pop(c, &heap);
        }
    }
    while (heap < n - 1 && exp((double)c[heap].logit) < (double)o->min_p) {
        heap++; /* the worst of those kept stands first */
    }
    return heap;
}

static int no_token(sd_error *err)
{
    return sd_fail(err, SD_ERR_STATE, "the model gave no finite logit: its weights hold NaN or infinity, or overflow");
}

static int greedy(const sd_sampler *s, const float *logits, int32_t *id, sd_error *err)
{
    int best = -1;
    float most = 0;
    for (int i = 0; i < s->valid; i++) {
        float x = penalized(s, logits, i);
        if (isfinite(x) && (best < 0 || x > most)) {
            best = i;
            most = x;
        }
    }
    *id = best;
    return best >= 0 ? SD_OK : no_token(err);
}

int sd_sampler_next(sd_sampler *s, const float *logits, sd_candidate *scratch, int32_t *id, sd_error *err)
{
    if (s->options.temperature == 0) {
        return greedy(s, logits, id, err);
    }
    int n = collect(s, logits, scratch);
    if (n == 0) {
        return no_token(err);
    }
    const sd_sampling *o = &s->options;
    int start = o->top_k > 0 || o->top_p < 1 || o->min_p > 0 ? filter(s, scratch, n) : 0;
    *id = draw(&s->rng, scratch + start, n - start);
    return SD_OK;
}

float sd_logprob(const float *logits, int vocab, int32_t id)
{
    double top = -INFINITY, sum = 0;
    for (int i = 0; i < vocab; i++) {
        top = (double)logits[i] > top ? (double)logits[i] : top;
    }
    for (int i = 0; i < vocab; i++) {
        sum += exp((double)logits[i] - top);
    }
    return (float)((double)logits[id] - top - log(sum));
}
