/* SPDX-License-Identifier: MIT
 *
 * The table of bench, as text, as JSON and as a picture. Ratios are formed within a repetition; what is printed is
 * the median over the repetitions of such ratios, not a ratio of medians. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench.h"
#include "cli/gnuplot.h"
#include "src/base/error.h"
#include "src/schedule/schedule.h"

/* ---- metrics: one number of one repetition ---- */

typedef double (*sd_bench_metric)(const sd_bench *bench, const sd_bench_line *line, const sd_repetition *repetition);

typedef struct sd_spread {
    double median, min, max; /* NAN where a value is missing */
} sd_spread;

static double prefill_tps(const sd_bench *b, const sd_bench_line *l, const sd_repetition *r)
{
    return (double)l->batch * b->flags->n_prompt / r->prefill_seconds;
}

static double decode_tps(const sd_bench *b, const sd_bench_line *l, const sd_repetition *r)
{
    return (double)l->batch * (b->flags->n_gen - 1) / r->decode_seconds;
}

static double weight_gbps(const sd_bench *b, const sd_bench_line *l, const sd_repetition *r)
{
    return sd_bench_decode_bytes(b, l) / r->decode_seconds * 1e-9;
}

static double probe_gbps(const sd_bench *b, const sd_bench_line *l, const sd_repetition *r)
{
    (void)b;
    (void)l;
    return r->probe_gbps;
}

static double read_share(const sd_bench *b, const sd_bench_line *l, const sd_repetition *r)
{
    return weight_gbps(b, l, r) / r->probe_gbps;
}

static double decode_gops(const sd_bench *b, const sd_bench_line *l, const sd_repetition *r)
{
    return sd_bench_decode_operations(b, l) / r->decode_seconds * 1e-9;
}

static double prefill_gops(const sd_bench *b, const sd_bench_line *l, const sd_repetition *r)
{
    return sd_bench_prefill_operations(b, l) / r->prefill_seconds * 1e-9;
}

static double peak_gops(const sd_bench *b, const sd_bench_line *l, const sd_repetition *r)
{
    (void)b;
    (void)l;
    return r->peak_gops > 0 ? r->peak_gops : NAN;
}

static double decode_peak_share(const sd_bench *b, const sd_bench_line *l, const sd_repetition *r)
{
    return decode_gops(b, l, r) / peak_gops(b, l, r);
}

static double prefill_peak_share(const sd_bench *b, const sd_bench_line *l, const sd_repetition *r)
{
    return prefill_gops(b, l, r) / peak_gops(b, l, r);
}

static double wall_speedup(const sd_bench *b, const sd_bench_line *l, const sd_repetition *r)
{
    (void)b;
    (void)l;
    return r->wall_speedup;
}

static double request_speedup(const sd_bench *b, const sd_bench_line *l, const sd_repetition *r)
{
    (void)b;
    (void)l;
    return r->request_speedup;
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of the repetitions that `wanted` marks; NULL: all. */
static sd_spread spread_of(const sd_bench *bench, const sd_bench_line *line, sd_bench_metric metric, const bool *wanted)
{
    double values[SD_BENCH_REPEAT];
    size_t n = 0;
    for (int i = 0; i < bench->flags->repeat; i++) {
        if (!wanted || wanted[i]) {
            values[n++] = metric(bench, line, &line->repetitions[i]);
        }
    }
    if (n == 0 || isnan(values[0])) {
        return (sd_spread){NAN, NAN, NAN};
    }
    qsort(values, n, sizeof *values, compare_doubles);
    return (sd_spread){(values[(n - 1) / 2] + values[n / 2]) / 2, values[0], values[n - 1]};
}

static sd_spread spread(const sd_bench *bench, const sd_bench_line *line, sd_bench_metric metric)
{
    return spread_of(bench, line, metric, NULL);
}

static double median(const sd_bench *bench, const sd_bench_line *line, sd_bench_metric metric)
{
    return spread_of(bench, line, metric, NULL).median;
}

static double layer_speedup(const sd_bench *bench, const sd_bench_line *line)
{
    return sd_schedule_layer_speedup(line->schedule, bench->flags->n_gen - 1);
}

/* ---- text ---- */

void sd_bench_print_head(const sd_bench *bench)
{
    const sd_bench_flags *f = bench->flags;
    const sd_model_info *info = &bench->info;
    if (f->json) {
        return;
    }
    printf("%s%s\n", bench->name, f->shape ? ", random weights: speed only, its text would mean nothing" : "");
    printf("  weights   %s, head %s, keys and values %s: %.4g MB, %.4g a layer, %.4g the head; %s in %.1f s\n",
           sd_weights_name(info->weights), sd_weights_name(info->head), info->kv == SD_KV_F16 ? "f16" : "f32",
           (double)info->weight_bytes * 1e-6, (double)info->layer_bytes * 1e-6, (double)info->head_bytes * 1e-6,
           f->shape ? "made" : "loaded", bench->load_seconds);
    printf("  machine   %d thread%s, %s kernels\n", info->threads, info->threads == 1 ? "" : "s", sd_cpu_level());
    printf("  a row     %d prompt tokens and %d generated, given, not sampled; %d repetition%s\n", f->n_prompt,
           f->n_gen, f->repeat, f->repeat == 1 ? "" : "s");
    printf("  columns   median (min-max). GB/s: weights that decode streams, and their share of the read probe.\n"
           "            Gop/s: multiply-adds of decode (one is two), and their share of the %s peak. Speedups over\n"
           "            1x: layers, decode seconds, request seconds. MB: weights, caches, activations%s as\n"
           "            planned, and the largest resident size\n",
           sd_peak_name(bench->peak), bench->probe_array ? " and the probe's array" : "");
}

static void print_columns(void)
{
    printf("\n%-14s%-21s%-23s%s\n", "batch target", "prefill tok/s", "decode tok/s",
           "GB/s read    Gop/s peak  layers decode request  planned resident");
}

/* Three digits, or a whole number. */
static int digits(double x) { return x >= 100 ? 0 : x >= 10 ? 1 : 2; }

static void print_spread(sd_spread s, int width)
{
    char text[128];
    const int used = snprintf(text, sizeof text, "%.*f (%.*f-%.*f)", digits(s.median), s.median, digits(s.min), s.min,
                              digits(s.max), s.max);
    printf("  %s%*s", text, used < width ? width - used : 0, "");
}

static void print_percent(double share)
{
    isnan(share) ? (void)fputs("    -", stdout) : (void)printf("%3.0f %%", 100 * share);
}

static void print_line(const sd_bench *bench, const sd_bench_line *line)
{
    printf("%5d %5gx", line->batch, line->target);
    print_spread(spread(bench, line, prefill_tps), 19);
    print_spread(spread(bench, line, decode_tps), 19);
    printf(" %6.1f ", median(bench, line, weight_gbps));
    print_percent(median(bench, line, read_share));
    printf(" %7.1f ", median(bench, line, decode_gops));
    print_percent(median(bench, line, decode_peak_share));
    printf("  %5.2fx %5.2fx  %5.2fx  %7.0f %8.0f", layer_speedup(bench, line), median(bench, line, wall_speedup),
           median(bench, line, request_speedup), (double)line->planned_bytes * 1e-6, (double)line->peak_rss * 1e-6);
    if (!isnan(line->predicted_speedup)) {
        printf("  predicted %.2fx", line->predicted_speedup);
    }
    putchar('\n');
}

/* The probe of a repetition: the mean over the lines of a batch. */
static double repetition_probe(const sd_bench *bench, const sd_bench_line *lines, int repetition)
{
    double sum = 0;
    for (int i = 0; i < bench->n_targets; i++) {
        sum += lines[i].repetitions[repetition].probe_gbps;
    }
    return sum / bench->n_targets;
}

/* Names the repetitions of one kind and what decode made of the memory in them. */
static void print_kind(const sd_bench *bench, const sd_bench_line *lines, const char *kind, const bool *wanted)
{
    printf("  %s memory, repetitions", kind);
    for (int i = 0; i < bench->flags->repeat; i++) {
        if (wanted[i]) {
            printf(" %d", i + 1);
        }
    }
    printf(": share of the read probe");
    for (int i = 0; i < bench->n_targets; i++) {
        printf("%s %gx %.0f %%", i ? "," : "", lines[i].target,
               100 * spread_of(bench, &lines[i], read_share, wanted).median);
    }
    putchar('\n');
}

static void print_probe(const sd_bench *bench, const sd_bench_line *lines)
{
    enum { APART = 5 }; /* quarters: memory changed its speed if the fastest repetition had 5/4 of the slowest */
    double values[SD_BENCH_REPEAT], low = INFINITY, high = 0;
    printf("  read probe by repetition, GB/s:");
    for (int i = 0; i < bench->flags->repeat; i++) {
        values[i] = repetition_probe(bench, lines, i);
        low = values[i] < low ? values[i] : low;
        high = values[i] > high ? values[i] : high;
        printf(" %.1f", values[i]);
    }
    printf("; fastest to slowest %.2f\n", high / low);
    if (4 * high > APART * low) {
        bool fast[SD_BENCH_REPEAT], slow[SD_BENCH_REPEAT];
        for (int i = 0; i < bench->flags->repeat; i++) {
            fast[i] = values[i] * values[i] >= low * high;
            slow[i] = !fast[i];
        }
        print_kind(bench, lines, "fast", fast);
        print_kind(bench, lines, "slow", slow);
    }
}

/* ---- JSON ---- */

/* JSON has no NaN: null says that there is no such number. */
static json_t *number(double x) { return isfinite(x) ? json_real(x) : json_null(); }

static bool set_spread(json_t *o, const char *name, sd_spread s)
{
    char low[64], high[64];
    (void)snprintf(low, sizeof low, "%s_min", name);
    (void)snprintf(high, sizeof high, "%s_max", name);
    return json_object_set_new(o, name, number(s.median)) == 0 && json_object_set_new(o, low, number(s.min)) == 0 &&
           json_object_set_new(o, high, number(s.max)) == 0;
}

/* The value of each repetition, in their order: what fast and slow memory did is seen in them. */
static json_t *by_repetition(const sd_bench *bench, const sd_bench_line *line, sd_bench_metric metric)
{
    json_t *list = json_array();
    for (int i = 0; i < bench->flags->repeat; i++) {
        json_array_append_new(list, number(metric(bench, line, &line->repetitions[i])));
    }
    return list;
}

static int print_json(const sd_bench *bench, const sd_bench_line *line, sd_error *err)
{
    const sd_bench_flags *f = bench->flags;
    const sd_model_info *info = &bench->info;
    json_t *o = json_pack(
        "{s:o, s:b, s:s, s:s, s:s, s:s, s:i, s:i, s:i, s:f, s:s, s:s, s:i, s:i, s:i, s:f, s:o, s:I, s:I, s:I, s:I, "
        "s:f, s:s}",
        "shape", sd_cli_json_path(bench->name), "random_weights", f->shape != NULL, "weights",
        sd_weights_name(info->weights), "head", sd_weights_name(info->head), "kv",
        info->kv == SD_KV_F16 ? "f16" : "f32", "cpu_level", sd_cpu_level(), "threads", info->threads, "n_layers",
        info->n_layers, "batch", line->batch, "target", line->target, "measure", f->measure ? f->measure : "layers",
        "schedule", sd_schedule_text(line->schedule), "prompt_tokens", f->n_prompt, "gen_tokens", f->n_gen, "repeat",
        f->repeat, "layer_speedup", layer_speedup(bench, line), "predicted_speedup", number(line->predicted_speedup),
        "peak_rss", (json_int_t)line->peak_rss, "planned_bytes", (json_int_t)line->planned_bytes, "weight_bytes",
        (json_int_t)info->weight_bytes, "load_peak_rss", (json_int_t)bench->load_peak_rss, "load_seconds",
        bench->load_seconds, "peak_of", sd_peak_name(bench->peak));
    const struct {
        const char *name;
        sd_bench_metric metric;
    } spreads[] = {
        {"wall_speedup", wall_speedup}, {"request_speedup", request_speedup}, {"decode_tps", decode_tps},
        {"prefill_tps", prefill_tps}, {"weight_gbps", weight_gbps}, {"probe_gbps", probe_gbps},
        {"read_share", read_share}, {"decode_gops", decode_gops}, {"prefill_gops", prefill_gops},
        {"peak_gops", peak_gops}, {"decode_peak_share", decode_peak_share}, {"prefill_peak_share", prefill_peak_share},
    };
    bool ok = o != NULL;
    for (size_t i = 0; ok && i < sizeof spreads / sizeof *spreads; i++) {
        ok = set_spread(o, spreads[i].name, spread(bench, line, spreads[i].metric));
    }
    ok = ok && json_object_set_new(o, "probe_gbps_by_repetition", by_repetition(bench, line, probe_gbps)) == 0;
    ok = ok && json_object_set_new(o, "decode_tps_by_repetition", by_repetition(bench, line, decode_tps)) == 0;
    ok = ok && json_object_set_new(o, "prefill_tps_by_repetition", by_repetition(bench, line, prefill_tps)) == 0;
    ok = ok && json_object_set_new(o, "read_share_by_repetition", by_repetition(bench, line, read_share)) == 0;
    if (!ok) {
        json_decref(o);
        o = NULL;
    }
    return sd_cli_print_json(o, 0, err);
}

int sd_bench_print(const sd_bench *bench, int batch, sd_error *err)
{
    const sd_bench_line *lines = sd_bench_lines(bench, batch);
    int rc = SD_OK;
    if (!bench->flags->json) {
        print_columns();
    }
    for (int i = 0; rc == SD_OK && i < bench->n_targets; i++) {
        if (bench->flags->json) {
            rc = print_json(bench, &lines[i], err);
        } else {
            print_line(bench, &lines[i]);
        }
    }
    if (!bench->flags->json) {
        print_probe(bench, lines);
    }
    return rc;
}

/* ---- the plot: tokens a second and speedup against the budget ---- */

static double layers_metric(const sd_bench *b, const sd_bench_line *l, const sd_repetition *r)
{
    (void)r;
    return layer_speedup(b, l);
}

static void write_series(const sd_bench *bench, FILE *to, int batch, sd_bench_metric metric)
{
    for (int i = 0; i < bench->n_targets; i++) {
        const sd_bench_line *line = sd_bench_lines(bench, batch) + i;
        fprintf(to, "%g %g\n", bench->config.n_layers / layer_speedup(bench, line), median(bench, line, metric));
    }
    fputs("e\n", to);
}

static void write_plot(const void *context, FILE *to)
{
    const sd_bench *bench = context;
    const sd_bench_flags *f = bench->flags;
    fprintf(to, "set terminal pngcairo size 1200,600 font 'sans,12'\nset multiplot layout 1,2 title '%s, %s weights, "
                "%d + %d tokens, %d threads' noenhanced\n",
            f->shape ? f->shape : "skipdecode bench", sd_weights_name(bench->info.weights), f->n_prompt, f->n_gen,
            bench->info.threads);
    fprintf(to, "set xlabel 'budget: layers a decode step, mean'\nset xrange [0:%g]\nset yrange [0:*]\nset grid\n"
                "set key top right\n", bench->config.n_layers + 0.5);
    fprintf(to, "set ylabel 'tokens a second'\nset logscale y\nset yrange [*:*]\nplot ");
    for (int b = 0; b < bench->n_batches; b++) {
        fprintf(to, "%s'-' using 1:2 with linespoints lw 2 title 'batch %d'", b ? ", " : "", bench->batches[b]);
    }
    fputs("\n", to);
    for (int b = 0; b < bench->n_batches; b++) {
        write_series(bench, to, b, decode_tps);
    }
    fputs("unset logscale y\nset yrange [0:*]\nset ylabel 'speedup over full depth'\n"
          "plot '-' using 1:2 with linespoints lw 1 lc rgb '#888888' title 'layers'", to);
    for (int b = 0; b < bench->n_batches; b++) {
        fprintf(to, ", '-' using 1:2 with linespoints lw 2 lt %d title 'batch %d, decode'", b + 1, bench->batches[b]);
        fprintf(to, ", '-' using 1:2 with linespoints lw 1 dt 3 lt %d title 'batch %d, request'", b + 1,
                bench->batches[b]);
    }
    fputs("\n", to);
    write_series(bench, to, 0, layers_metric);
    for (int b = 0; b < bench->n_batches; b++) {
        write_series(bench, to, b, wall_speedup);
        write_series(bench, to, b, request_speedup);
    }
    fputs("unset multiplot\n", to);
}

int sd_bench_plot(const sd_bench *bench, sd_error *err)
{
    return sd_gnuplot(bench->flags->plot, write_plot, bench, err);
}
