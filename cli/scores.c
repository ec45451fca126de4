/* SPDX-License-Identifier: MIT */
#include "cli/scores.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/base/error.h"

static const char e2e_set[] = "bleu,nist_mteval,coco_rougeL,cider,slots";

static int add_metric(sd_metrics *m, sd_metric metric, sd_error *err)
{
    for (int i = 0; i < m->n; i++) {
        if (m->list[i] == metric) {
            return sd_fail(err, SD_ERR_ARG, "--metrics: %s comes twice", sd_metric_name(metric));
        }
    }
    m->list[m->n++] = metric;
    return SD_OK;
}

static int unknown_metric(const char *name, size_t len, sd_error *err)
{
    sd_buf list = {0};
    for (int i = 0; i < SD_N_METRICS; i++) {
        sd_buf_printf(&list, "%s%s", i ? ", " : "", sd_metric_name((sd_metric)i));
    }
    int rc = sd_fail(err, SD_ERR_ARG, "--metrics: \"%.*s\"; expected some of %s, separated by commas, or e2e or all",
                     (int)len, name, list.data ? list.data : "");
    sd_buf_free(&list);
    return rc;
}

static int parse_list(sd_metrics *m, const char *text, sd_error *err)
{
    if (strcmp(text, "all") == 0) { /* of what there is: slots only where there are sources */
        m->chosen = false;
        for (m->n = 0; m->n < SD_N_METRICS; m->n++) {
            m->list[m->n] = (sd_metric)m->n;
        }
        return SD_OK;
    }
    text = strcmp(text, "e2e") == 0 ? e2e_set : text;
    for (const char *item = text;;) {
        const size_t len = strcspn(item, ",");
        sd_metric metric;
        int rc = sd_metric_find(item, len, &metric) ? add_metric(m, metric, err) : unknown_metric(item, len, err);
        if (rc != SD_OK || !item[len]) {
            return rc;
        }
        item += len + 1;
    }
}

int sd_metrics_parse(sd_metrics *m, const sd_score_flags *flags, const char *usual, sd_error *err)
{
    static const char *const names[] = {[SD_TOKENS_13A] = "13a", [SD_TOKENS_INTL] = "intl", [SD_TOKENS_NONE] = "none"};
    unsigned tokenize = 0;
    while (flags->tokenize && tokenize < 3 && strcmp(flags->tokenize, names[tokenize]) != 0) {
        tokenize++;
    }
    if (tokenize == 3) {
        return sd_fail(err, SD_ERR_ARG, "--tokenize \"%s\"; expected 13a, intl or none", flags->tokenize);
    }
    if (flags->bootstrap < 0 || flags->bootstrap > SD_SCORE_RESAMPLES_MAX) {
        return sd_fail(err, SD_ERR_ARG, "--bootstrap %d; expected 0 .. %d resamples", flags->bootstrap,
                       SD_SCORE_RESAMPLES_MAX);
    }
    *m = (sd_metrics){.chosen = flags->metrics != NULL,
                      .options = {(sd_tokenization)tokenize, flags->lowercase, flags->stem}};
    return parse_list(m, flags->metrics ? flags->metrics : usual, err);
}

static int resample(sd_scores *s, const sd_score_flags *flags, sd_error *err)
{
    const sd_stats *list[SD_N_METRICS];
    const size_t n = (size_t)s->n * (size_t)flags->bootstrap;
    s->samples = sd_calloc(n, sizeof *s->samples);
    if (!s->samples) {
        return sd_fail_memory(err, n * sizeof *s->samples, "resampling");
    }
    s->resamples = flags->bootstrap;
    for (int i = 0; i < s->n; i++) {
        list[i] = &s->stats[i];
    }
    int rc = sd_bootstrap(s->samples, list, s->n, s->resamples, flags->seed, NULL, err);
    for (int i = 0; rc == SD_OK && i < s->n; i++) {
        rc = sd_bootstrap_interval(&s->interval[i], s->samples + (size_t)i * (size_t)s->resamples, s->resamples, err);
    }
    return rc;
}

int sd_scores_make(sd_scores *s, sd_metrics *m, const sd_corpus *corpus, const sd_score_flags *flags, sd_error *err)
{
    int rc = SD_OK;
    for (int i = 0; rc == SD_OK && i < m->n;) {
        rc = sd_stats_make(&s->stats[s->n], m->list[i], &m->options, corpus, err);
        if (rc == SD_ERR_ARG && !m->chosen && sd_metric_needs_sources(m->list[i])) {
            memmove(m->list + i, m->list + i + 1, (size_t)(m->n - i - 1) * sizeof *m->list);
            m->n--;
            rc = SD_OK;
            continue;
        }
        if (rc == SD_OK) {
            s->score[s->n] = sd_stats_corpus(&s->stats[s->n]);
            s->n++;
            i++;
        }
    }
    return rc == SD_OK && flags->bootstrap > 0 ? resample(s, flags, err) : rc;
}

void sd_scores_compare(sd_scores *s, const sd_scores *base)
{
    s->compared = s->resamples > 0 && s->resamples == base->resamples && s->n == base->n;
    for (int i = 0; s->compared && i < s->n; i++) {
        const size_t at = (size_t)i * (size_t)s->resamples;
        s->p[i] = sd_bootstrap_p(s->samples + at, base->samples + at, s->resamples, s->score[i] - base->score[i]);
    }
}

void sd_scores_clear(sd_scores *s)
{
    for (int i = 0; i < s->n; i++) {
        sd_stats_free(&s->stats[i]);
    }
    sd_free(s->samples);
    *s = (sd_scores){0};
}

static bool set(json_t *o, const char *name, const char *end, json_t *value)
{
    char key[64];
    (void)snprintf(key, sizeof key, "%s%s", name, end);
    return json_object_set_new(o, key, value) == 0;
}

static bool add_bleu(const sd_stats *stats, json_t *o)
{
    double sums[SD_STATS_MAX];
    sd_bleu_parts p;
    sd_stats_sums(stats, sums);
    sd_bleu_split(sums, &p);
    return set(o, "bleu", "_precisions", json_pack("[f, f, f, f]", p.precisions[0], p.precisions[1], p.precisions[2],
                                                   p.precisions[3])) &&
           set(o, "bleu", "_bp", json_real(p.brevity)) &&
           set(o, "bleu", "_hyp_len", json_integer((json_int_t)p.hyp_len)) &&
           set(o, "bleu", "_ref_len", json_integer((json_int_t)p.ref_len));
}

bool sd_scores_add_json(const sd_scores *s, json_t *o)
{
    bool ok = o != NULL;
    for (int i = 0; ok && i < s->n; i++) {
        const char *name = sd_metric_name(s->stats[i].metric);
        sd_buf signature = {0};
        sd_stats_signature(&s->stats[i], &signature);
        ok = !signature.failed && set(o, name, "", json_real(s->score[i]));
        if (s->resamples > 0) {
            ok = ok && set(o, name, "_ci", json_real(s->interval[i].half)) &&
                 set(o, name, "_mean", json_real(s->interval[i].mean));
        }
        ok = ok && (!s->compared || set(o, name, "_p", json_real(s->p[i])));
        ok = ok && (s->stats[i].metric != SD_METRIC_BLEU || add_bleu(&s->stats[i], o));
        ok = ok && set(o, name, "_signature", json_string(signature.data));
        sd_buf_free(&signature);
    }
    return ok;
}

int sd_metric_digits(sd_metric metric)
{
    switch (metric) {
    case SD_METRIC_BLEU:
    case SD_METRIC_CHRF:
    case SD_METRIC_CHRFPP: return 2;
    default: return 4;
    }
}
