/* SPDX-License-Identifier: MIT
 *
 * skipdecode bench: what the files of the verb share. bench.c reads arguments, bench_run.c measures, bench_report.c
 * prints. */
#ifndef SD_CLI_BENCH_H
#define SD_CLI_BENCH_H

#include "cli/cli.h"
#include "cli/progress.h"
#include "src/generate/cost.h"
#include "src/kernels/probe.h"
#include "src/model/model.h"

enum { SD_BENCH_LIST = 16, SD_BENCH_BATCH = 4096, SD_BENCH_REPEAT = 1000 }; /* most of each */

typedef struct sd_bench_flags {
    const char *dir, *shape; /* one of them */
    const char *batches, *speedups, *measure, *plot;
    sd_model_flags model;
    int n_prompt, n_gen, repeat, prefill_tokens;
    uint64_t seed;
    bool json, quick;
} sd_bench_flags;

/* One repetition of one line. Full depth runs twice in it, first and last, and this is the mean of the two. */
typedef struct sd_repetition {
    double prefill_seconds, decode_seconds;
    double probe_gbps; /* read probe: the mean of right before and right after */
    double peak_gops;  /* peak probe likewise; 0: none for these weights */
    double wall_speedup, request_speedup; /* over full depth in the same repetition */
    int runs;
} sd_repetition;

/* One line of the table: a batch at a target. */
typedef struct sd_bench_line {
    int batch;
    double target;
    sd_schedule *schedule;
    double predicted_speedup; /* NAN: nothing predicts it */
    sd_repetition *repetitions; /* [repeat] */
    size_t planned_bytes;     /* weights, caches of all rows, activations, and the probe's array if it needs one */
    size_t peak_rss;          /* largest resident size while it ran */
} sd_bench_line;

typedef struct sd_bench {
    const sd_bench_flags *flags;
    const char *name;      /* the shape's, or the model's directory */
    sd_config config;
    sd_schedule_options schedule; /* the model's own warm-up and prompt */
    bool by_clock;         /* targets are seconds, not layers */
    sd_cost cost;          /* of the batch whose schedules were chosen last */
    sd_model *model;
    sd_model_info info;
    double load_seconds;
    size_t load_peak_rss;
    int batches[SD_BENCH_LIST], n_batches;
    double targets[SD_BENCH_LIST]; /* the first is 1: full depth, which the others are compared with */
    int n_targets;
    sd_bench_line *lines;  /* [n_batches][n_targets] */
    sd_span *spans;        /* what the read probe reads: the weights, or an array of its own if they are small */
    int n_spans;
    void *probe_array;     /* NULL: the probe reads the weights */
    size_t probe_array_bytes;
    sd_peak peak;          /* that bounds the products with these weights */
    int32_t *tokens;       /* [largest batch][n_prompt + n_gen] random ids */
    sd_feed *feeds;        /* [largest batch] */
    int *rows;             /* [largest batch] */
    sd_progress progress;
} sd_bench;

static inline sd_bench_line *sd_bench_lines(const sd_bench *bench, int batch)
{
    return bench->lines + (size_t)batch * (size_t)bench->n_targets;
}

/* Measures lines of batch number `batch`, all targets interleaved in each repetition. */
int sd_bench_run(sd_bench *bench, int batch, sd_error *err);

/* Makes the probe's spans. To be called once the model is there; freed by the caller with sd_free, the array with
 * sd_free_aligned. */
int sd_bench_prepare_probe(sd_bench *bench, sd_error *err);

/* Largest resident size of this process since the last call of sd_bench_reset_peak, or, where the kernel cannot forget
 * it, since it started. */
size_t sd_bench_peak_rss(void);
void sd_bench_reset_peak(void);

/* Bytes of weights that all decode steps of a run stream, and the operations of the products (a multiply-add is two;
 * attention is not counted) of its decode steps and of its prompts. */
double sd_bench_decode_bytes(const sd_bench *bench, const sd_bench_line *line);
double sd_bench_decode_operations(const sd_bench *bench, const sd_bench_line *line);
double sd_bench_prefill_operations(const sd_bench *bench, const sd_bench_line *line);

/* ---- report ---- */

void sd_bench_print_head(const sd_bench *bench); /* text; nothing with --json */
int sd_bench_print(const sd_bench *bench, int batch, sd_error *err);
int sd_bench_plot(const sd_bench *bench, sd_error *err);

#endif
