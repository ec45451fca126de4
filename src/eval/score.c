/* SPDX-License-Identifier: MIT */
#include "src/eval/score.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/eval/metrics.h"

double sd_share_score(const double *sums, bool single)
{
    (void)single;
    return sums[1] > 0 ? sums[0] / sums[1] : 0;
}

static const sd_metric_kind kinds[SD_N_METRICS] = {
    [SD_METRIC_BLEU] = {"bleu", "BLEU as sacrebleu", 10, false, false, sd_prepare_words, sd_bleu_segment,
                        sd_bleu_score},
    [SD_METRIC_CHRF] = {"chrf", "chrF2 as sacrebleu", 18, false, false, sd_prepare_chrf, sd_chrf_segment,
                        sd_chrf_score},
    [SD_METRIC_CHRFPP] = {"chrf++", "chrF2++ as sacrebleu", 24, false, false, sd_prepare_chrfpp, sd_chrf_segment,
                          sd_chrfpp_score},
    [SD_METRIC_ROUGE1] = {"rouge1", "ROUGE-1 F1 as rouge-score", 2, false, false, sd_prepare_rouge, sd_rouge_segment,
                          sd_share_score},
    [SD_METRIC_ROUGE2] = {"rouge2", "ROUGE-2 F1 as rouge-score", 2, false, false, sd_prepare_rouge, sd_rouge_segment,
                          sd_share_score},
    [SD_METRIC_ROUGEL] = {"rougeL", "ROUGE-L F1 as rouge-score", 2, false, false, sd_prepare_rouge, sd_rouge_segment,
                          sd_share_score},
    [SD_METRIC_ROUGELSUM] = {"rougeLsum", "ROUGE-Lsum F1 as rouge-score", 2, false, false, sd_prepare_rouge,
                             sd_rouge_segment, sd_share_score},
    [SD_METRIC_NIST] = {"nist", "NIST as NLTK", 12, false, false, sd_prepare_nist, sd_nist_segment, sd_nist_score},
    [SD_METRIC_NIST_MTEVAL] = {"nist_mteval", "NIST as mteval", 12, false, false, sd_prepare_nist,
                               sd_nist_mteval_segment, sd_nist_score},
    [SD_METRIC_COCO_ROUGEL] = {"coco_rougeL", "ROUGE-L of the COCO caption tools", 2, false, false, sd_prepare_coco,
                               sd_coco_rouge_segment, sd_share_score},
    [SD_METRIC_CIDER] = {"cider", "CIDEr-D of the COCO caption tools", 2, false, false, sd_prepare_cider,
                         sd_cider_segment, sd_share_score},
    [SD_METRIC_SLOTS] = {"slots", "share of the source's slots said", 2, false, true, NULL, sd_slots_segment,
                         sd_share_score},
    [SD_METRIC_SLOTS_COPY] = {"slots_copy", "the same of name, near, food, eatType, area", 2, false, true, NULL,
                              sd_slots_segment, sd_share_score},
    [SD_METRIC_REPETITION] = {"repetition", "share of 4-grams said before in a text", 2, true, false,
                              sd_prepare_words, sd_repetition_segment, sd_share_score},
};

const char *sd_metric_name(sd_metric metric) { return kinds[metric].name; }
const char *sd_metric_about(sd_metric metric) { return kinds[metric].about; }
bool sd_metric_is_cost(sd_metric metric) { return kinds[metric].cost; }
bool sd_metric_needs_sources(sd_metric metric) { return kinds[metric].sources; }

bool sd_metric_find(const char *name, size_t len, sd_metric *metric)
{
    for (int i = 0; i < SD_N_METRICS; i++) {
        if (strlen(kinds[i].name) == len && memcmp(kinds[i].name, name, len) == 0) {
            *metric = (sd_metric)i;
            return true;
        }
    }
    return false;
}

/* ---- looking at a corpus ---- */

void *sd_scoring_room(void *block, size_t *cap, size_t n, size_t size)
{
    if (n <= *cap && block) {
        return block;
    }
    const size_t wanted = n > 2 * *cap ? n : 2 * *cap;
    sd_free(block);
    block = sd_malloc(wanted, size);
    *cap = block ? wanted : 0;
    return block;
}

int sd_scoring_cut(sd_scoring *s, sd_tokenization how, bool lowercase, sd_sequences *hyps, sd_sequences *refs,
                   sd_error *err)
{
    const sd_corpus *c = s->corpus;
    int rc = how == SD_TOKENS_INTL && !s->cutter.classes ? sd_classes_create(&s->classes, err) : SD_OK;
    s->cutter.classes = s->classes;
    for (size_t i = 0; rc == SD_OK && i < c->n; i++) {
        rc = sd_cut(&s->cutter, how, lowercase, c->hyps[i], hyps, err);
    }
    for (size_t r = 0; rc == SD_OK && r < c->first[c->n]; r++) {
        rc = sd_cut(&s->cutter, how, lowercase, c->refs[r], refs, err);
    }
    return rc;
}

int sd_scoring_memory(const sd_scoring *s, sd_error *err)
{
    return s->grams.failed ? sd_fail_memory(err, s->grams.n * sizeof(sd_gram), "n-grams") : SD_OK;
}

static void clear_scoring(sd_scoring *s)
{
    sd_classes_free(s->classes);
    sd_cutter_free(&s->cutter);
    sd_sequences_free(&s->hyps);
    sd_sequences_free(&s->refs);
    sd_sequences_free(&s->hyp_words);
    sd_sequences_free(&s->ref_words);
    sd_grams_free(&s->grams);
    sd_bag_free(&s->hyp);
    sd_bag_free(&s->ref);
    sd_free(s->weight);
    sd_free(s->frequency);
    sd_free(s->most);
    sd_free(s->rows);
    sd_free(s->steps);
    sd_free(s->taken);
    sd_free(s->bits);
    sd_free(s->heads);
    sd_free(s->links);
    sd_free(s->left_hyp);
    sd_free(s->left_ref);
    sd_buf_free(&s->text);
    sd_buf_free(&s->source);
}

static int count_references(const sd_corpus *c)
{
    size_t least = SIZE_MAX, most = 0;
    for (size_t i = 0; i < c->n; i++) {
        const size_t n = c->first[i + 1] - c->first[i];
        least = n < least ? n : least;
        most = n > most ? n : most;
    }
    return least < most ? -1 : (int)most;
}

static int look(sd_stats *stats, sd_scoring *s, sd_error *err)
{
    const sd_metric_kind *kind = &kinds[stats->metric];
    int rc = kind->prepare ? kind->prepare(s, err) : SD_OK;
    for (size_t i = 0; rc == SD_OK && i < stats->n; i++) {
        rc = kind->segment(s, i, stats->values + i * (size_t)stats->width, err);
        if (rc != SD_OK && rc != SD_ERR_MEMORY) {
            (void)sd_fail_prefix(err, rc, "segment %zu", i);
        }
    }
    double sums[SD_STATS_MAX];
    if (rc == SD_OK && kind->sources) {
        sd_stats_sums(stats, sums);
        rc = sums[1] > 0 ? SD_OK
                         : sd_fail(err, SD_ERR_ARG, "%s: no source holds a slot; expected meaning representations such "
                                   "as name[Blue Spice], area[riverside]", kind->name);
    }
    return rc;
}

int sd_stats_make(sd_stats *stats, sd_metric metric, const sd_metric_options *options, const sd_corpus *corpus,
                  sd_error *err)
{
    const sd_metric_kind *kind = &kinds[metric];
    *stats = (sd_stats){.metric = metric, .options = *options, .n = corpus->n, .width = kind->width,
                        .n_refs = count_references(corpus)};
    if (kind->sources && !corpus->sources) {
        return sd_fail(err, SD_ERR_ARG, "%s compares texts with what they were to say; there are only references",
                       kind->name);
    }
    stats->values = sd_calloc(corpus->n, (size_t)kind->width * sizeof *stats->values);
    if (!stats->values) {
        return sd_fail_memory(err, corpus->n * (size_t)kind->width * sizeof *stats->values, "scores");
    }
    sd_scoring s = {.corpus = corpus, .options = options, .metric = metric};
    int rc = look(stats, &s, err);
    clear_scoring(&s);
    if (rc != SD_OK) {
        sd_stats_free(stats);
    }
    return rc;
}

void sd_stats_free(sd_stats *stats)
{
    sd_free(stats->values);
    *stats = (sd_stats){0};
}

/* ---- scores ---- */

double sd_stats_score(const sd_stats *stats, const double *sums) { return kinds[stats->metric].score(sums, false); }

void sd_stats_sums(const sd_stats *stats, double *sums)
{
    memset(sums, 0, (size_t)stats->width * sizeof *sums);
    for (size_t i = 0; i < stats->n; i++) {
        for (int k = 0; k < stats->width; k++) {
            sums[k] += stats->values[i * (size_t)stats->width + (size_t)k];
        }
    }
}

double sd_stats_corpus(const sd_stats *stats)
{
    double sums[SD_STATS_MAX];
    sd_stats_sums(stats, sums);
    return sd_stats_score(stats, sums);
}

double sd_stats_segment(const sd_stats *stats, size_t i)
{
    return kinds[stats->metric].score(stats->values + i * (size_t)stats->width, true);
}

void sd_stats_signature(const sd_stats *stats, sd_buf *out)
{
    static const char *const tokens[] = {[SD_TOKENS_13A] = "13a", [SD_TOKENS_INTL] = "intl", [SD_TOKENS_NONE] = "none"};
    const sd_metric_options *o = &stats->options;
    if (stats->n_refs < 0) {
        sd_buf_add_str(out, "nrefs:var");
    } else {
        sd_buf_printf(out, "nrefs:%d", stats->n_refs);
    }
    const char *letters = o->lowercase ? "lc" : "mixed";
    switch (stats->metric) {
    case SD_METRIC_BLEU: sd_buf_printf(out, "|case:%s|eff:no|tok:%s|smooth:exp", letters, tokens[o->tokenize]); break;
    case SD_METRIC_CHRF: sd_buf_printf(out, "|case:%s|eff:yes|nc:6|nw:0|space:no", letters); break;
    case SD_METRIC_CHRFPP: sd_buf_printf(out, "|case:%s|eff:yes|nc:6|nw:2|space:no", letters); break;
    case SD_METRIC_NIST:
    case SD_METRIC_NIST_MTEVAL: sd_buf_printf(out, "|case:%s|tok:%s|order:5", letters, tokens[o->tokenize]); break;
    case SD_METRIC_REPETITION: sd_buf_printf(out, "|case:%s|tok:%s|order:4", letters, tokens[o->tokenize]); break;
    case SD_METRIC_COCO_ROUGEL:
    case SD_METRIC_CIDER: sd_buf_add_str(out, o->tokenize == SD_TOKENS_NONE ? "|tok:none" : "|case:lc|tok:ptb-like");
        break;
    case SD_METRIC_SLOTS:
    case SD_METRIC_SLOTS_COPY: sd_buf_add_str(out, "|case:lc|verbatim"); break;
    default: sd_buf_printf(out, "|case:lc|stem:%s|multi:best", o->stem ? "porter" : "no"); break;
    }
    sd_buf_printf(out, "|version:skipdecode-%s", sd_version());
}
