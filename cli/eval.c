/* SPDX-License-Identifier: MIT
 *
 * skipdecode eval: arguments, the test set, and the order of the work. */
#include "cli/eval.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/gnuplot.h"
#include "src/base/alloc.h"
#include "src/base/error.h"
#include "src/base/file.h"
#include "src/base/utf8.h"

/* ---- the test set ---- */

typedef struct sd_testset { /* while files are read */
    sd_eval *eval;
    const char *template, *response;
    bool grouped, paired;
    size_t segment;
} sd_testset;

static int add_prompt(sd_input *in, sd_buf *prompt, long line, sd_error *err)
{
    if (in->n == in->cap) {
        const size_t cap = in->cap ? 2 * in->cap : 64;
        sd_input_row *rows = sd_realloc(in->rows, cap, sizeof *rows);
        if (!rows) {
            return sd_fail_memory(err, cap * sizeof *rows, "the prompts");
        }
        in->rows = rows;
        in->cap = cap;
    }
    in->rows[in->n++] = (sd_input_row){.prompt = prompt->data, .prompt_len = prompt->len, .line = line};
    *prompt = (sd_buf){0};
    return SD_OK;
}

/* From the template, or, of text lines and of JSON lines with a "prompt", as it is. */
static int fill_prompt(const sd_testset *t, const sd_record *record, sd_buf *prompt, sd_error *err)
{
    const bool own = record->object && json_is_string(json_object_get(record->object, "prompt"));
    int rc = SD_OK;
    if (own || (record->lines && !t->template)) {
        sd_str text;
        rc = sd_record_text(record, "prompt", &text, err);
        if (rc == SD_OK) {
            sd_buf_add(prompt, text.text, text.len);
        }
    } else if (!t->template) {
        rc = sd_fail(err, SD_ERR_ARG, "no --template, and the model carries none: a prompt is built from fields, "
                     "such as \"{question}\"");
    } else {
        rc = sd_template_fill(t->template, record->field, record->context, record->names, prompt, err);
    }
    if (rc == SD_OK && prompt->failed) {
        rc = sd_fail_memory(err, prompt->len, "a prompt");
    } else if (rc == SD_OK && prompt->len == 0) {
        rc = sd_fail(err, SD_ERR_ARG, "the prompt is empty");
    } else if (rc == SD_OK && !sd_utf8_valid(prompt->data, prompt->len)) {
        rc = sd_fail(err, SD_ERR_FORMAT, "the prompt is not valid UTF-8");
    }
    return rc;
}

static int take_reference(void *user, sd_str text, sd_error *err)
{
    sd_testset *t = user;
    return sd_references_add(&t->eval->references, t->segment, text, err);
}

static int take_row(void *user, const sd_record *record, sd_error *err)
{
    sd_testset *t = user;
    sd_input *in = &t->eval->input;
    sd_buf prompt = {0};
    int rc = fill_prompt(t, record, &prompt, err);
    t->segment = in->n;
    t->grouped = !record->lines && !record->object && !t->eval->flags->no_group; /* CSV */
    if (rc == SD_OK && t->grouped) {
        rc = sd_references_group(&t->eval->references, (sd_str){prompt.data, prompt.len}, &t->segment, err);
    }
    if (rc == SD_OK && t->segment == in->n) {
        rc = add_prompt(in, &prompt, record->line, err);
    }
    sd_buf_free(&prompt);
    return rc == SD_OK && !t->paired ? sd_record_texts(record, t->response, take_reference, t, err) : rc;
}

static int take_response(void *user, const sd_record *record, sd_error *err)
{
    sd_testset *t = user;
    int rc = sd_record_texts(record, t->response, take_reference, t, err);
    t->segment++;
    return rc;
}

static bool is_table(const char *path)
{
    const char *const ends[] = {".csv", ".jsonl", ".ndjson"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const size_t n = strlen(path), m = strlen(ends[i]);
        if (n >= m && strcmp(path + n - m, ends[i]) == 0) {
            return true;
        }
    }
    return false;
}

static int read_testset(sd_eval *eval, sd_error *err)
{
    const sd_eval_flags *f = eval->flags;
    const size_t limit = (size_t)f->limit;
    sd_testset t = {.eval = eval, .template = f->template ? f->template : eval->recipe.prompt_template,
                    .response = f->response ? f->response : "response", .paired = f->responses != NULL};
    if (t.template && !is_table(f->data)) {
        const int fields = sd_template_fields(t.template, err);
        if (fields != 1) {
            return fields < 0 ? fields : sd_fail(err, SD_ERR_ARG, "template \"%s\" has %d fields; a line of text fills "
                                                 "exactly one", t.template, fields);
        }
    }
    int rc = sd_records_read(f->data, limit, take_row, &t, err);
    if (rc == SD_OK && f->responses) {
        t.segment = 0;
        rc = sd_records_read(f->responses, limit, take_response, &t, err);
        if (rc == SD_OK && t.segment != eval->input.n) {
            rc = sd_fail(err, SD_ERR_ARG, "%s has %zu prompts, %s %zu responses; expected as many", f->data,
                         eval->input.n, f->responses, t.segment);
        }
    }
    rc = rc == SD_OK ? sd_references_finish(&eval->references, err) : rc;
    eval->sources = rc == SD_OK ? sd_calloc(eval->input.n, sizeof *eval->sources) : NULL;
    if (rc == SD_OK && !eval->sources) {
        return sd_fail_memory(err, eval->input.n * sizeof *eval->sources, "the prompts");
    }
    for (size_t i = 0; rc == SD_OK && i < eval->input.n; i++) {
        eval->sources[i] = (sd_str){eval->input.rows[i].prompt, eval->input.rows[i].prompt_len};
    }
    return rc;
}

/* ---- lines ---- */

static int add_line(sd_eval *eval, const char *policy, size_t len, double speedup, sd_error *err)
{
    sd_eval_line *line = &eval->lines[eval->n_lines];
    const sd_schedule_flags flags = {.speedup = speedup, .measure = eval->flags->measure};
    *line = (sd_eval_line){.speedup = speedup};
    if (len == 0 || len >= sizeof line->policy) {
        return sd_fail(err, SD_ERR_ARG, "--policies: \"%.*s\"; expected names separated by commas", (int)len, policy);
    }
    memcpy(line->policy, policy, len);
    eval->n_lines++;
    return speedup > 1 ? sd_schedule_flags_by_clock(&flags, false, &line->by_clock, err) : SD_OK;
}

/* Full depth first, then each policy at each other speedup. */
static int make_lines(sd_eval *eval, sd_error *err)
{
    const sd_eval_flags *f = eval->flags;
    double speedups[SD_EVAL_LIST];
    int n, policies = 0;
    int rc = sd_parse_list("speedups", f->speedups, false, 1000, SD_EVAL_LIST, speedups, &n, err);
    eval->lines = rc == SD_OK ? sd_calloc(1 + SD_EVAL_LIST * SD_EVAL_LIST, sizeof *eval->lines) : NULL;
    if (rc == SD_OK && !eval->lines) {
        return sd_fail_memory(err, sizeof *eval->lines, "the table");
    }
    rc = rc == SD_OK ? add_line(eval, "full", 4, 1, err) : rc;
    for (const char *name = f->policies; rc == SD_OK; policies++) {
        const size_t len = strcspn(name, ",");
        if (policies == SD_EVAL_LIST) {
            return sd_fail(err, SD_ERR_ARG, "--policies: more than %d; expected at most that many", SD_EVAL_LIST);
        }
        for (int i = 1; i < eval->n_lines; i++) {
            if (strlen(eval->lines[i].policy) == len && memcmp(eval->lines[i].policy, name, len) == 0) {
                return sd_fail(err, SD_ERR_ARG, "--policies: %s comes twice", eval->lines[i].policy);
            }
        }
        for (int i = 0; rc == SD_OK && i < n; i++) {
            rc = speedups[i] > 1 ? add_line(eval, name, len, speedups[i], err) : SD_OK;
        }
        if (!name[len]) {
            break;
        }
        name += len + 1;
    }
    return rc;
}

/* That every policy is one: before any work. */
static int check_policies(sd_eval *eval, sd_error *err)
{
    int rc = SD_OK;
    for (int i = 1; rc == SD_OK && i < eval->n_lines; i++) {
        sd_schedule_options options;
        sd_schedule_options_default(&options);
        const sd_schedule_flags flags = {.speedup = 1, .policy = eval->lines[i].policy};
        rc = strcmp(flags.policy, "full") == 0
                 ? sd_fail(err, SD_ERR_ARG, "--policies: full runs all layers, and is always the first line")
                 : sd_schedule_flags_resolve(&flags, eval->info.n_layers, false, &options, err);
        sd_schedule_options_clear(&options);
    }
    return rc;
}

/* ---- the work ---- */

static int make_folder(const char *path, sd_error *err)
{
    if (mkdir(path, 0777) != 0 && (errno != EEXIST || !sd_dir_exists(path))) {
        return sd_fail_errno(err, "-o %s: cannot make the directory", path);
    }
    return SD_OK;
}

static int check_arguments(sd_eval *eval, sd_model_options *options, sd_error *err)
{
    const sd_eval_flags *f = eval->flags;
    int rc = sd_metrics_parse(&eval->metrics, &f->score, "bleu,chrf,rougeL,slots,repetition", err);
    rc = rc == SD_OK ? sd_model_flags_resolve(&f->model, options, err) : rc;
    rc = rc == SD_OK ? make_lines(eval, err) : rc;
    eval->loss_all = strcmp(f->loss, "all") == 0;
    eval->loss_none = strcmp(f->loss, "none") == 0;
    if (rc == SD_OK && !eval->loss_all && !eval->loss_none && strcmp(f->loss, "first") != 0) {
        rc = sd_fail(err, SD_ERR_ARG, "--loss \"%s\"; expected first, all or none", f->loss);
    }
    if (rc == SD_OK && f->plot) {
        rc = sd_gnuplot_check(f->plot, err);
    }
    return rc;
}

static int prepare(sd_eval *eval, sd_error *err)
{
    const sd_eval_flags *f = eval->flags;
    sd_model_options options;
    int rc = check_arguments(eval, &options, err);
    rc = rc == SD_OK ? sd_recipe_load(&eval->recipe, f->dir, err) : rc;
    rc = rc == SD_OK ? read_testset(eval, err) : rc;
    rc = rc == SD_OK ? sd_model_load(&eval->model, f->dir, &options, err) : rc;
    rc = rc == SD_OK ? sd_tokenizer_load(&eval->tok, f->dir, err) : rc;
    if (rc != SD_OK) {
        return rc;
    }
    sd_model_get_info(eval->model, &eval->info);
    rc = check_policies(eval, err);
    return rc == SD_OK && f->output ? make_folder(f->output, err) : rc;
}

static int run(sd_eval *eval, sd_error *err)
{
    const sd_eval_flags *f = eval->flags;
    const int64_t rows = (int64_t)eval->input.n * eval->n_lines;
    const int most = f->max_tokens ? f->max_tokens : eval->recipe.max_tokens ? eval->recipe.max_tokens : 128;
    int rc = SD_OK;
    sd_eval_print_head(eval);
    sd_progress_start(&eval->progress, rows, (double)rows * most, f->quiet);
    for (int i = 0; rc == SD_OK && i < eval->n_lines; i++) {
        rc = sd_eval_run(eval, i, err);
        sd_progress_clear(&eval->progress);
        rc = rc == SD_OK ? sd_eval_print(eval, i, err) : rc;
        fflush(stdout); /* hours may lie between two lines; a write error stays in stdout */
    }
    if (rc == SD_OK) {
        sd_eval_print_tail(eval);
    }
    rc = rc == SD_OK && f->output ? sd_eval_save(eval, err) : rc;
    return rc == SD_OK && f->plot ? sd_eval_plot(eval, err) : rc;
}

static void clear(sd_eval *eval)
{
    for (int i = 0; i < eval->n_lines; i++) {
        sd_free(eval->lines[i].schedule);
        sd_texts_clear(&eval->lines[i].texts);
        sd_scores_clear(&eval->lines[i].scores);
    }
    sd_free(eval->lines);
    sd_free(eval->sources);
    sd_references_clear(&eval->references);
    sd_input_clear(&eval->input);
    sd_recipe_clear(&eval->recipe);
    sd_tokenizer_free(eval->tok);
    sd_model_free(eval->model);
}

static int check_flags(const sd_eval_flags *f)
{
    if (!f->data) {
        return sd_cli_usage("eval", "expected --data FILE, the test set");
    }
    if (!f->responses && !is_table(f->data)) {
        return sd_cli_usage("eval", "--data %s holds lines of text; give their responses by --data-responses FILE",
                            f->data);
    }
    if (f->batch > 4096) {
        return sd_cli_usage("eval", "--batch %d; expected 1 .. 4096", f->batch);
    }
    if (f->repeat < 0 || f->repeat > SD_EVAL_REPEAT) {
        return sd_cli_usage("eval", "--repeat %d; expected 0 .. %d", f->repeat, SD_EVAL_REPEAT);
    }
    if (f->plot && f->repeat == 0) {
        return sd_cli_usage("eval", "--plot draws against the clock; --repeat 0 measures no seconds");
    }
    return -1;
}

int sd_verb_eval(int argc, char **argv)
{
    sd_eval_flags f = {.speedups = "1,2,3,4,5", .policies = "skipdecode", .loss = "first", .batch = 32, .repeat = 1,
                       .prefill_tokens = 512,
                       .score = {.bootstrap = SD_SCORE_RESAMPLES, .seed = SD_SCORE_SEED}};
    const sd_option options[] = {
        {"data", "FILE", SD_OPTION_STRING, &f.data, "the test set: .csv, .jsonl, or lines of text"},
        {"data-responses", "FILE", SD_OPTION_STRING, &f.responses, "for lines of text: the responses, one a line"},
        {"template", "TEXT", SD_OPTION_STRING, &f.template,
         "builds the prompt: {name} is a column or key; default: the model's"},
        {"response", "NAME", SD_OPTION_STRING, &f.response,
         "the column or key of the response; in JSON it may be a list; default: response"},
        {"no-group", NULL, SD_OPTION_FLAG, &f.no_group,
         "rows of a .csv with equal prompts stay apart; default: one prompt with several references"},
        {"limit", "N", SD_OPTION_COUNT, &f.limit, "only the first N rows of the test set"},
        {"speedups", "LIST", SD_OPTION_STRING, &f.speedups, "default 1,2,3,4,5; full depth, 1, always comes first"},
        {"policies", "LIST", SD_OPTION_STRING, &f.policies, "skipdecode (default), early-exit, spread, unified"},
        {"measure", "NAME", SD_OPTION_STRING, &f.measure, "what a speedup means: layers (default) or wall"},
        {"batch", "N", SD_OPTION_COUNT, &f.batch, "rows decoded together; default 32"},
        {"max-tokens", "N", SD_OPTION_COUNT, &f.max_tokens,
         "most tokens a row generates; default: the model's, else 128"},
        {"repeat", "N", SD_OPTION_INT, &f.repeat,
         "measurements of seconds, of which the median counts; 0 for none; default 1"},
        {"loss", "NAME", SD_OPTION_STRING, &f.loss,
         "teacher forcing on the first (default) response of each prompt, all or none"},
        SD_SCORE_OPTIONS(f.score),
        {"bootstrap", "N", SD_OPTION_INT, &f.score.bootstrap, "resamples for intervals; default 1000"},
        {"output", "DIR", SD_OPTION_STRING, &f.output,
         "keeps all texts and scores; started again, it goes on where it was"},
        {"overwrite", NULL, SD_OPTION_FLAG, &f.overwrite, "start afresh where --output holds other rows"},
        SD_MODEL_OPTIONS(f.model),
        {"prefill-tokens", "N", SD_OPTION_COUNT, &f.prefill_tokens, "most prompt tokens in one pass; default 512"},
        {"plot", "FILE.png", SD_OPTION_STRING, &f.plot, "draw the first metric against decode speedup with gnuplot"},
        {"json", NULL, SD_OPTION_FLAG, &f.json, "one JSON object a line of the table"},
        {"quiet", NULL, SD_OPTION_FLAG, &f.quiet, "no progress"},
    };
    int code = sd_options_read("eval", options, sizeof options / sizeof *options, argc, argv, &f.dir, 1);
    code = code < 0 ? check_flags(&f) : code;
    if (code >= 0) {
        return code;
    }
    sd_eval eval = {.flags = &f};
    sd_error err = {0};
    int rc = prepare(&eval, &err);
    rc = rc == SD_OK ? run(&eval, &err) : rc;
    code = rc == SD_OK ? sd_cli_close_stdout(SD_EXIT_OK) : sd_cli_fail(&err);
    clear(&eval);
    return code;
}
