/* SPDX-License-Identifier: MIT
 *
 * skipdecode score: texts against references. */
#include <string.h>

#include "cli/records.h"
#include "cli/scores.h"
#include "src/base/alloc.h"
#include "src/base/error.h"

typedef struct sd_scorer_flags {
    const char *hyp, *against, *source, *hyp_field, *ref_field, *group;
    sd_strings refs;
    sd_score_flags score;
    int bootstrap; /* -1: not given */
    bool blocks, segments, json;
} sd_scorer_flags;

typedef struct sd_scorer {
    const sd_scorer_flags *flags;
    sd_texts hyps, against, sources;
    sd_references references;
    sd_metrics metrics;
    /* while a file of references is read */
    const char *path;
    size_t at, n_blocks; /* segments so far; 0 until the first of a block */
    bool in_block, by_field;
    const char *field;
} sd_scorer;

/* ---- texts ---- */

typedef struct sd_text_list {
    sd_texts *texts;
    const char *field;
} sd_text_list;

static int take_text(void *user, const sd_record *record, sd_error *err)
{
    const sd_text_list *list = user;
    sd_str text;
    int rc = sd_record_text(record, list->field, &text, err);
    return rc == SD_OK ? sd_texts_add(list->texts, text, err) : rc;
}

static int read_texts(sd_texts *texts, const char *path, const char *field, sd_error *err)
{
    sd_text_list list = {texts, field};
    return sd_records_read(path, 0, take_text, &list, err);
}

/* ---- references ---- */

static int take_reference(void *user, sd_str text, sd_error *err)
{
    sd_scorer *s = user;
    return sd_references_add(&s->references, s->at, text, err);
}

/* The field of the references: as given, or the first of the usual names that the record has. */
static const char *reference_field(const sd_scorer *s, const sd_record *record)
{
    static const char *const usual[] = {"references", "ref", "reference", "text"};
    size_t len;
    if (s->flags->ref_field) {
        return s->flags->ref_field;
    }
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
        if (record->object ? json_object_get(record->object, usual[i]) != NULL
                           : record->field(record->context, usual[i], strlen(usual[i]), &len) != NULL) {
            return usual[i];
        }
    }
    return usual[0];
}

/* A line of a file of blocks: references of one segment, up to an empty line. */
static int take_block_line(sd_scorer *s, const sd_record *record, sd_error *err)
{
    if (record->text.len == 0) {
        s->in_block = false;
        return SD_OK;
    }
    s->n_blocks += !s->in_block;
    s->in_block = true;
    sd_str text;
    int rc = sd_record_text(record, "", &text, err);
    return rc == SD_OK ? sd_references_add(&s->references, s->n_blocks - 1, text, err) : rc;
}

static int take_references(void *user, const sd_record *record, sd_error *err)
{
    sd_scorer *s = user;
    if (s->flags->blocks && record->lines) {
        return take_block_line(s, record, err);
    }
    const char *group = s->flags->group ? s->flags->group : "mr";
    size_t len;
    const bool table = !record->lines && !record->object;
    int rc = SD_OK;
    if (table && (s->flags->group || record->field(record->context, group, strlen(group), &len))) {
        sd_str key;
        rc = sd_record_text(record, group, &key, err);
        rc = rc == SD_OK ? sd_references_group(&s->references, key, &s->at, err) : rc;
        if (rc == SD_OK && s->at == s->sources.n && !s->flags->source) { /* a new one: it is what was to be said */
            rc = sd_texts_add(&s->sources, key, err);
        }
        s->n_blocks = s->references.keys.n;
    } else {
        s->at = s->n_blocks++;
    }
    return rc == SD_OK ? sd_record_texts(record, reference_field(s, record), take_reference, s, err) : rc;
}

static int mismatch(const char *a, size_t n, const char *b, size_t m, sd_error *err)
{
    return sd_fail(err, SD_ERR_ARG, "%s has %zu text%s, %s %zu segment%s; expected as many", a, n, n == 1 ? "" : "s", b,
                   m, m == 1 ? "" : "s");
}

static int read_references(sd_scorer *s, sd_error *err)
{
    const sd_strings *files = &s->flags->refs;
    int rc = SD_OK;
    for (int i = 0; rc == SD_OK && i < files->n; i++) {
        s->n_blocks = 0;
        s->in_block = false;
        rc = sd_records_read(files->items[i], 0, take_references, s, err);
        if (rc == SD_OK && s->n_blocks != s->hyps.n) {
            rc = mismatch(s->flags->hyp, s->hyps.n, files->items[i], s->n_blocks, err);
        }
    }
    return rc == SD_OK ? sd_references_finish(&s->references, err) : rc;
}

static int read_all(sd_scorer *s, sd_error *err)
{
    const sd_scorer_flags *f = s->flags;
    int rc = read_texts(&s->hyps, f->hyp, f->hyp_field ? f->hyp_field : "text", err);
    if (rc == SD_OK && f->against) {
        rc = read_texts(&s->against, f->against, f->hyp_field ? f->hyp_field : "text", err);
        if (rc == SD_OK && s->against.n != s->hyps.n) {
            rc = mismatch(f->hyp, s->hyps.n, f->against, s->against.n, err);
        }
    }
    rc = rc == SD_OK ? read_references(s, err) : rc;
    if (rc == SD_OK && f->source) {
        rc = read_texts(&s->sources, f->source, "mr", err);
        if (rc == SD_OK && s->sources.n != s->hyps.n) {
            rc = mismatch(f->hyp, s->hyps.n, f->source, s->sources.n, err);
        }
    }
    return rc;
}

/* ---- output ---- */

static void print_scores(const sd_scores *scores, const sd_scores *against)
{
    for (int i = 0; i < scores->n; i++) {
        const sd_stats *stats = &scores->stats[i];
        const int digits = sd_metric_digits(stats->metric);
        sd_buf signature = {0};
        sd_stats_signature(stats, &signature);
        printf("%-12s %9.*f", sd_metric_name(stats->metric), digits, scores->score[i]);
        if (scores->resamples > 0) {
            printf(" +- %.*f", digits, scores->interval[i].half);
        }
        if (against) {
            printf("   against %.*f, p = %.4f", digits, against->score[i], scores->p[i]);
        }
        printf("   %s\n", signature.data ? signature.data : "");
        sd_buf_free(&signature);
        if (stats->metric == SD_METRIC_BLEU) {
            double sums[SD_STATS_MAX];
            sd_bleu_parts p;
            sd_stats_sums(stats, sums);
            sd_bleu_split(sums, &p);
            printf("%-12s precisions %.1f/%.1f/%.1f/%.1f, brevity penalty %.3f, %.0f words against %.0f\n", "",
                   p.precisions[0], p.precisions[1], p.precisions[2], p.precisions[3], p.brevity, p.hyp_len, p.ref_len);
        }
    }
}

static int print_segments(const sd_scores *scores, size_t n, sd_error *err)
{
    int rc = SD_OK;
    for (size_t i = 0; rc == SD_OK && i < n; i++) {
        json_t *o = json_pack("{s:I}", "index", (json_int_t)i);
        for (int k = 0; o && k < scores->n; k++) {
            if (json_object_set_new(o, sd_metric_name(scores->stats[k].metric),
                                    json_real(sd_stats_segment(&scores->stats[k], i))) != 0) {
                json_decref(o);
                o = NULL;
            }
        }
        rc = sd_cli_print_json(o, JSON_COMPACT, err);
    }
    return rc;
}

static int print_all(const sd_scorer *s, const sd_scores *scores, const sd_scores *against, sd_error *err)
{
    const sd_scorer_flags *f = s->flags;
    const size_t n_refs = s->references.found.n;
    if (f->segments) {
        return print_segments(scores, s->hyps.n, err);
    }
    if (!f->json) {
        printf("%zu text%s, %zu reference%s\n", s->hyps.n, s->hyps.n == 1 ? "" : "s", n_refs, n_refs == 1 ? "" : "s");
        print_scores(scores, f->against ? against : NULL);
        return SD_OK;
    }
    json_t *o = json_pack("{s:I, s:I, s:i}", "segments", (json_int_t)s->hyps.n, "references", (json_int_t)n_refs,
                          "bootstrap", scores->resamples);
    json_t *other = f->against ? json_object() : NULL;
    bool ok = sd_scores_add_json(scores, o);
    ok = ok && (!f->against || (sd_scores_add_json(against, other) && json_object_set(o, "against", other) == 0));
    json_decref(other);
    if (!ok) {
        json_decref(o);
        o = NULL;
    }
    return sd_cli_print_json(o, 0, err);
}

static int score_files(sd_scorer *s, sd_error *err)
{
    const sd_scorer_flags *f = s->flags;
    sd_scores scores = {0}, against = {0};
    int rc = sd_metrics_parse(&s->metrics, &f->score, "bleu,chrf,rouge1,rouge2,rougeL", err);
    rc = rc == SD_OK ? read_all(s, err) : rc;
    sd_corpus corpus = {s->hyps.n, s->hyps.items, s->references.first, s->references.refs,
                        s->sources.n == s->hyps.n ? s->sources.items : NULL};
    rc = rc == SD_OK ? sd_scores_make(&scores, &s->metrics, &corpus, &f->score, err) : rc;
    if (rc == SD_OK && f->against) {
        corpus.hyps = s->against.items;
        rc = sd_scores_make(&against, &s->metrics, &corpus, &f->score, err);
        sd_scores_compare(&scores, &against);
    }
    rc = rc == SD_OK ? print_all(s, &scores, &against, err) : rc;
    sd_scores_clear(&scores);
    sd_scores_clear(&against);
    return rc;
}

static int check_flags(sd_scorer_flags *f)
{
    if (!f->hyp || f->refs.n == 0) {
        return sd_cli_usage("score", "expected --hyp FILE and --ref FILE");
    }
    const int usual = f->against ? SD_SCORE_RESAMPLES : 0;
    f->score.bootstrap = f->bootstrap >= 0 ? f->bootstrap : usual;
    if (f->bootstrap < -1) {
        return sd_cli_usage("score", "--bootstrap %d; expected a number of resamples, 0 for none", f->bootstrap);
    }
    if (f->against && f->score.bootstrap == 0) {
        return sd_cli_usage("score", "--against tells a difference from chance by resampling; give --bootstrap N");
    }
    if (f->segments && (f->against || f->bootstrap > 0)) {
        return sd_cli_usage("score", "--segments prints single texts; it cannot be combined with --against or "
                            "--bootstrap");
    }
    return -1;
}

int sd_verb_score(int argc, char **argv)
{
    sd_scorer_flags f = {.bootstrap = -1, .score = {.seed = SD_SCORE_SEED}};
    const sd_option options[] = {
        {"hyp", "FILE", SD_OPTION_STRING, &f.hyp, "texts to score: lines, .jsonl or .csv; - is standard input"},
        {"ref", "FILE", SD_OPTION_STRINGS, &f.refs,
         "references: lines, .jsonl (a string or a list), .csv; may be given several times"},
        {"against", "FILE", SD_OPTION_STRING, &f.against, "texts of another system: is the difference chance?"},
        {"source", "FILE", SD_OPTION_STRING, &f.source,
         "what was to be said, for slots; default: the groups of a .csv"},
        {"hyp-field", "NAME", SD_OPTION_STRING, &f.hyp_field, "the key or column of the texts; default: text"},
        {"ref-field", "NAME", SD_OPTION_STRING, &f.ref_field,
         "that of the references; default: references, ref, reference or text"},
        {"group", "NAME", SD_OPTION_STRING, &f.group,
         "rows of a .csv that are equal in this column have one text; default: mr, if there is one"},
        {"blocks", NULL, SD_OPTION_FLAG, &f.blocks, "reference lines up to an empty one belong to one text"},
        SD_SCORE_OPTIONS(f.score),
        {"bootstrap", "N", SD_OPTION_INT, &f.bootstrap,
         "resamples for intervals; default: 1000 with --against, else none"},
        {"segments", NULL, SD_OPTION_FLAG, &f.segments, "one JSON object for each text instead of one score for all"},
        {"json", NULL, SD_OPTION_FLAG, &f.json, "one JSON object"},
    };
    int code = sd_options_read("score", options, sizeof options / sizeof *options, argc, argv, NULL, 0);
    code = code < 0 ? check_flags(&f) : code;
    if (code >= 0) {
        return code;
    }
    sd_scorer s = {.flags = &f};
    sd_error err = {0};
    int rc = score_files(&s, &err);
    code = rc == SD_OK ? sd_cli_close_stdout(SD_EXIT_OK) : sd_cli_fail(&err);
    sd_texts_clear(&s.hyps);
    sd_texts_clear(&s.against);
    sd_texts_clear(&s.sources);
    sd_references_clear(&s.references);
    return code;
}
