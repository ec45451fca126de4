/* SPDX-License-Identifier: MIT */
#include "src/eval/likelihood.h"

#include <stdlib.h>

#include "src/base/alloc.h"
#include "src/base/error.h"
#include "src/generate/sampler.h"

typedef struct sd_forced { /* one row of a batch */
    const sd_pair *pair;
    sd_likelihood *result;
    sd_schedule *schedule;
    int row, fed, scored; /* prompt tokens fed, response tokens scored */
} sd_forced;

typedef struct sd_teacher {
    const sd_likelihood_options *options;
    sd_session *session;
    sd_model_info info;
    sd_forced *rows;  /* [batch] */
    sd_feed *feeds;   /* [batch] */
    int *feed_of;     /* [batch] */
    int n_rows;
} sd_teacher;

static int open_row(sd_teacher *t, sd_forced *f, sd_error *err)
{
    const sd_pair *p = f->pair;
    if (p->n_response < 1) {
        return sd_fail(err, SD_ERR_ARG, "an empty response; expected at least one token");
    }
    const int most = p->max_tokens > p->n_response ? p->max_tokens : p->n_response;
    int rc = sd_schedule_create(&f->schedule, t->info.n_layers, most, &t->options->schedule, err);
    return rc == SD_OK ? sd_session_add(t->session, p->n_prompt, p->n_response, f->schedule, &f->row, err) : rc;
}

static void close_rows(sd_teacher *t)
{
    for (int i = 0; i < t->n_rows; i++) {
        if (t->rows[i].row >= 0) {
            sd_session_remove(t->session, t->rows[i].row);
        }
        sd_schedule_free(t->rows[i].schedule);
    }
    t->n_rows = 0;
}

/* Pieces of prompts as long as there are any, then one response token of each row that has more to come. */
static int make_feeds(sd_teacher *t)
{
    int n = 0, left = t->options->prefill_tokens;
    for (int i = 0; i < t->n_rows && left > 0; i++) {
        sd_forced *f = &t->rows[i];
        const int rest = f->pair->n_prompt - f->fed, take = rest < left ? rest : left;
        if (rest > 0) {
            t->feeds[n] = (sd_feed){.row = f->row, .ids = f->pair->prompt + f->fed, .n = take};
            t->feed_of[n++] = i;
            f->fed += take;
            left -= take;
        }
    }
    for (int i = 0; i < t->n_rows && left == t->options->prefill_tokens; i++) {
        sd_forced *f = &t->rows[i];
        if (f->scored < f->pair->n_response) {
            t->feeds[n] = (sd_feed){.row = f->row, .ids = f->pair->response + f->scored - 1, .n = 1};
            t->feed_of[n++] = i;
        }
    }
    return n;
}

static void score(const sd_teacher *t, sd_forced *f, const float *logits)
{
    const int vocab = t->info.vocab_size;
    const int32_t id = f->pair->response[f->scored++];
    int likeliest = 0;
    for (int k = 1; k < vocab; k++) {
        likeliest = logits[k] > logits[likeliest] ? k : likeliest;
    }
    f->result->loss -= (double)sd_logprob(logits, vocab, id);
    f->result->correct += likeliest == id;
    f->result->tokens++;
}

static int run_batch(sd_teacher *t, sd_error *err)
{
    int rc = SD_OK;
    for (int i = 0; rc == SD_OK && i < t->n_rows; i++) {
        rc = open_row(t, &t->rows[i], err);
    }
    for (int n; rc == SD_OK && (n = make_feeds(t)) > 0;) {
        rc = sd_session_forward(t->session, t->feeds, n, err);
        for (int i = 0; rc == SD_OK && i < n; i++) {
            const float *logits = sd_session_logits(t->session, i);
            if (logits) {
                score(t, &t->rows[t->feed_of[i]], logits);
            }
        }
    }
    close_rows(t);
    return rc;
}

typedef struct sd_place {
    int n_response, index;
} sd_place;

static int compare_places(const void *a, const void *b)
{
    const sd_place *x = a, *y = b;
    return x->n_response != y->n_response ? (x->n_response < y->n_response ? 1 : -1)
                                          : (x->index > y->index) - (x->index < y->index);
}

static int run(sd_teacher *t, sd_likelihood *results, const sd_pair *pairs, int n, sd_place *places, sd_error *err)
{
    const sd_likelihood_options *o = t->options;
    int rc = SD_OK;
    for (int i = 0; i < n; i++) {
        places[i] = (sd_place){pairs[i].n_response, i};
        results[i] = (sd_likelihood){0};
    }
    qsort(places, (size_t)n, sizeof *places, compare_places); /* rows of a batch end together */
    for (int at = 0; rc == SD_OK && at < n; at += o->batch) {
        for (t->n_rows = 0; t->n_rows < o->batch && at + t->n_rows < n; t->n_rows++) {
            const int index = places[at + t->n_rows].index;
            t->rows[t->n_rows] = (sd_forced){.pair = &pairs[index], .result = &results[index], .row = -1};
        }
        const int done = at + t->n_rows;
        rc = run_batch(t, err);
        if (rc == SD_OK && o->on_pair && !o->on_pair(o->user, done)) {
            rc = sd_fail(err, SD_ERR_CANCELLED, "cancelled");
        }
    }
    return rc;
}

int sd_likelihood_measure(sd_likelihood *results, const sd_model *model, const sd_pair *pairs, int n,
                          const sd_likelihood_options *options, sd_error *err)
{
    sd_teacher t = {.options = options};
    if (n < 1 || options->batch < 1 || options->prefill_tokens < 1) {
        return sd_fail(err, SD_ERR_ARG, "%d pairs, batch %d, prefill_tokens %d; expected at least 1 of each", n,
                       options->batch, options->prefill_tokens);
    }
    const size_t batch = (size_t)options->batch;
    sd_model_get_info(model, &t.info);
    t.rows = sd_calloc(batch, sizeof *t.rows);
    t.feeds = sd_calloc(batch, sizeof *t.feeds);
    t.feed_of = sd_calloc(batch, sizeof *t.feed_of);
    sd_place *places = sd_calloc((size_t)n, sizeof *places);
    int rc = t.rows && t.feeds && t.feed_of && places ? SD_OK
                                                      : sd_fail_memory(err, batch * sizeof *t.rows, "teacher forcing");
    rc = rc == SD_OK ? sd_session_create(&t.session, model, options->batch, err) : rc;
    rc = rc == SD_OK ? run(&t, results, pairs, n, places, err) : rc;
    sd_session_free(t.session);
    sd_free(t.rows);
    sd_free(t.feeds);
    sd_free(t.feed_of);
    sd_free(places);
    return rc;
}
