/* SPDX-License-Identifier: MIT
 *
 * The table of eval, as text, as JSON and as a picture. */
#include <math.h>
#include <string.h>

#include "cli/eval.h"
#include "cli/gnuplot.h"
#include "src/base/alloc.h"
#include "src/base/error.h"
#include "src/base/file.h"

static const double significant = 0.05;

static double loss_of(const sd_eval_line *line)
{
    return line->likelihood.tokens > 0 ? line->likelihood.loss / (double)line->likelihood.tokens : NAN;
}

static double accuracy_of(const sd_eval_line *line)
{
    return line->likelihood.tokens > 0 ? (double)line->likelihood.correct / (double)line->likelihood.tokens : NAN;
}

/* ---- text ---- */

static int column_width(const sd_eval *eval, sd_metric metric)
{
    const int name = (int)strlen(sd_metric_name(metric)), number = 5 + sd_metric_digits(metric);
    const int interval = eval->flags->score.bootstrap > 0 ? 12 : 0;
    return (name > number ? name : number) + interval;
}

void sd_eval_print_head(const sd_eval *eval)
{
    const sd_eval_flags *f = eval->flags;
    const size_t n_refs = eval->references.found.n;
    if (f->json) {
        return;
    }
    printf("%s on %s: %zu prompt%s, %zu response%s; %d thread%s, batch %d, %s kernels\n", f->dir, f->data,
           eval->input.n, eval->input.n == 1 ? "" : "s", n_refs, n_refs == 1 ? "" : "s", eval->info.threads,
           eval->info.threads == 1 ? "" : "s", f->batch, sd_cpu_level());
}

/* Once the first line is there, which has dropped the metrics that do not apply. */
static void print_columns(const sd_eval *eval)
{
    printf("\n%-12s%7s", "policy", "target");
    for (int i = 0; i < eval->metrics.n; i++) {
        printf("  %-*s", column_width(eval, eval->metrics.list[i]), sd_metric_name(eval->metrics.list[i]));
    }
    printf("  layers  decode  request    tok/s  tokens    loss  perplexity  accuracy\n");
}

static void print_ratio(double x)
{
    isnan(x) ? (void)printf(" %7s", "-") : (void)printf(" %6.2fx", x);
}

static void print_number(double x, int width, int digits)
{
    isnan(x) ? (void)printf("  %*s", width, "-") : (void)printf("  %*.*f", width, digits, x);
}

static void print_score(const sd_eval *eval, const sd_scores *s, int i)
{
    const int digits = sd_metric_digits(s->stats[i].metric);
    char text[64];
    int used = snprintf(text, sizeof text, "%.*f", digits, s->score[i]);
    if (s->resamples > 0) {
        used += snprintf(text + used, sizeof text - (size_t)used, " +- %.*f%s", digits, s->interval[i].half,
                         s->compared && s->p[i] < significant ? "*" : "");
    }
    printf("  %-*s", column_width(eval, s->stats[i].metric), text);
}

static void print_line(const sd_eval *eval, const sd_eval_line *line)
{
    printf("%-12s%6gx", line->policy, line->speedup);
    for (int i = 0; i < line->scores.n; i++) {
        print_score(eval, &line->scores, i);
    }
    print_ratio(sd_eval_layer_speedup(eval, line));
    print_ratio(line->decode_speedup);
    putchar(' ');
    print_ratio(line->request_speedup);
    print_number(line->decode_tps, 7, 0);
    print_number((double)line->tokens / (double)eval->input.n, 6, 1);
    print_number(loss_of(line), 6, 4);
    print_number(exp(loss_of(line)), 10, 3);
    print_number(accuracy_of(line), 8, 4);
    putchar('\n');
}

void sd_eval_print_tail(const sd_eval *eval)
{
    const sd_scores *s = &eval->lines[0].scores;
    if (eval->n_too_long > 0) {
        fprintf(stderr, "skipdecode: warning: %zu response%s too long for the model: left out of the loss\n",
                eval->n_too_long, eval->n_too_long == 1 ? "" : "s");
    }
    if (eval->flags->json) {
        return;
    }
    putchar('\n');
    for (int i = 0; i < s->n; i++) {
        sd_buf signature = {0};
        sd_stats_signature(&s->stats[i], &signature);
        printf("%-12s %s, %s\n", sd_metric_name(s->stats[i].metric), sd_metric_about(s->stats[i].metric),
               signature.data ? signature.data : "");
        sd_buf_free(&signature);
    }
    if (s->resamples > 0) {
        printf("+- half of the middle 95 %% of %d resamples; * differs from full depth, p < %g by paired bootstrap\n",
               s->resamples, significant);
    }
    printf("layers: layers of full depth over those run. decode, request: seconds of full depth over the schedule's, "
           "of a\nbatch replayed twice each way%s. tok/s: decode, of the run itself. tokens: a text's mean%s\n",
           eval->flags->repeat > 1 ? ", median of the repetitions" : "",
           eval->loss_none ? "" : ". loss: nats a response token,\nthe end token too, teacher-forced on the schedule; "
                                  "accuracy: share of tokens that were the likeliest");
}

/* ---- JSON ---- */

/* JSON has no NaN: null says that there is no such number. */
static json_t *number(double x) { return isfinite(x) ? json_real(x) : json_null(); }

static json_t *line_json(const sd_eval *eval, const sd_eval_line *line)
{
    const sd_eval_flags *f = eval->flags;
    json_t *o = json_pack("{s:o, s:o, s:s, s:f, s:s, s:s, s:i, s:i, s:I, s:I, s:I, s:f, s:f, s:o, s:o, s:o, s:o, s:o, "
                          "s:o, s:o, s:I, s:i}",
                          "model", sd_cli_json_path(f->dir), "data", sd_cli_json_path(f->data), "policy", line->policy,
                          "speedup", line->speedup, "measure", line->by_clock ? "wall" : "layers", "schedule",
                          line->schedule, "batch", f->batch, "threads", eval->info.threads, "segments",
                          (json_int_t)eval->input.n, "references", (json_int_t)eval->references.found.n,
                          "rows_done_now", (json_int_t)line->rows_now, "tokens",
                          (double)line->tokens / (double)eval->input.n,
                          "layer_speedup", sd_eval_layer_speedup(eval, line), "predicted_speedup",
                          number(line->predicted > 0 ? line->predicted : NAN), "wall_speedup",
                          number(line->decode_speedup), "request_speedup", number(line->request_speedup), "decode_tps",
                          number(line->decode_tps), "loss", number(loss_of(line)), "perplexity",
                          number(exp(loss_of(line))), "accuracy", number(accuracy_of(line)), "loss_tokens",
                          (json_int_t)line->likelihood.tokens, "bootstrap", line->scores.resamples);
    if (o && !sd_scores_add_json(&line->scores, o)) {
        json_decref(o);
        o = NULL;
    }
    return o;
}

int sd_eval_print(const sd_eval *eval, int index, sd_error *err)
{
    const sd_eval_line *line = &eval->lines[index];
    if (eval->flags->json) {
        return sd_cli_print_json(line_json(eval, line), 0, err);
    }
    if (index == 0) {
        print_columns(eval);
    }
    print_line(eval, line);
    return SD_OK;
}

int sd_eval_save(const sd_eval *eval, sd_error *err)
{
    char *path = sd_path_join(eval->flags->output, "scores.jsonl");
    sd_atomic_file file;
    int rc = path ? sd_atomic_open(&file, path, err) : sd_fail_memory(err, 256, "a file name");
    if (rc == SD_OK) {
        for (int i = 0; rc == SD_OK && i < eval->n_lines; i++) {
            json_t *o = line_json(eval, &eval->lines[i]);
            rc = o ? SD_OK : sd_fail_memory(err, 4096, "a JSON object");
            if (o) {
                (void)json_dumpf(o, file.stream, 0); /* errors stay in the stream and come out at commit */
                (void)putc('\n', file.stream);
            }
            json_decref(o);
        }
        rc = rc == SD_OK ? sd_atomic_commit(&file, err) : rc;
        sd_atomic_discard(&file);
    }
    sd_free(path);
    return rc;
}

/* ---- the plot: the first metric against the seconds ---- */

static void write_point(FILE *to, const sd_eval_line *line)
{
    const sd_scores *s = &line->scores;
    if (!isnan(line->decode_speedup)) {
        fprintf(to, "%g %g %g %g\n", line->decode_speedup, s->score[0], s->score[0] - s->interval[0].half,
                s->score[0] + s->interval[0].half);
    }
}

static bool begins_policy(const sd_eval *eval, int i)
{
    return i == 1 || (i > 1 && strcmp(eval->lines[i].policy, eval->lines[i - 1].policy) != 0);
}

static void write_plot(const void *context, FILE *to)
{
    const sd_eval *eval = context;
    fprintf(to, "set terminal pngcairo size 800,600 font 'sans,12'\nset title 'quality against speed, batch %d, %d "
                "threads'\nset xlabel 'decode speedup by the clock'\nset ylabel '%s'\nset grid\nset key bottom left\n"
                "set yrange [0:*]\nset xrange [0:*]\nplot ",
            eval->flags->batch, eval->info.threads, sd_metric_name(eval->lines[0].scores.stats[0].metric));
    fprintf(to, "'-' using 1:2:3:4 with yerrorbars lw 2 lc rgb '#444444' title 'full depth'");
    for (int i = 1; i < eval->n_lines; i++) {
        if (begins_policy(eval, i)) {
            fprintf(to, ", '-' using 1:2:3:4 with yerrorlines lw 2 title '%s'", eval->lines[i].policy);
        }
    }
    fputs("\n", to);
    write_point(to, &eval->lines[0]);
    fputs("e\n", to);
    for (int i = 1; i < eval->n_lines; i++) {
        write_point(to, &eval->lines[i]);
        if (i + 1 == eval->n_lines || begins_policy(eval, i + 1)) {
            fputs("e\n", to);
        }
    }
}

int sd_eval_plot(const sd_eval *eval, sd_error *err)
{
    for (int i = 0; i < eval->n_lines; i++) {
        if (!isnan(eval->lines[i].decode_speedup)) {
            return sd_gnuplot(eval->flags->plot, write_plot, eval, err);
        }
    }
    return sd_fail(err, SD_ERR_ARG, "--plot: no line has seconds; texts that were all generated before are not timed, "
                   "--overwrite generates them anew");
}
