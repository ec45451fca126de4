/* SPDX-License-Identifier: MIT
 *
 * Measuring. The speed of memory changes from second to second on shared machines, so that all targets take turns
 * within each repetition, with full depth first and last, and each run stands between two probes. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cli/bench.h"
#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "src/base/error.h"
#include "src/engine/memory.h"

/* A probe reads about PROBE_MOST bytes of the weights: some tens of milliseconds. Weights of less than PROBE_LEAST may
 * stay in a last-level cache, so that it reads an array of that size instead. */
static const size_t PROBE_MOST = (size_t)1 << 30, PROBE_LEAST = (size_t)256 << 20;

/* ---- memory ---- */

size_t sd_bench_peak_rss(void)
{
    char line[256];
    unsigned long long kilobytes = 0;
    FILE *f = fopen("/proc/self/status", "re");
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "VmHWM: %llu kB", &kilobytes) == 1) {
            break;
        }
    }
    if (f) {
        fclose(f);
    }
    struct rusage usage;
    if (kilobytes == 0 && getrusage(RUSAGE_SELF, &usage) == 0) {
        kilobytes = (unsigned long long)usage.ru_maxrss;
    }
    return (size_t)kilobytes * 1024;
}

void sd_bench_reset_peak(void)
{
    const int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t written = write(fd, "5", 1); /* proc(5): the peak becomes the present size */
        (void)written;
        close(fd);
    }
}

static size_t matrix_bytes(const sd_matrix *m) { return m->data ? sd_matrix_bytes(m->type, m->n, m->k) : 0; }

static void add_span(sd_bench *bench, size_t *total, const sd_matrix *m)
{
    const size_t bytes = matrix_bytes(m);
    if (*total < PROBE_MOST && bytes > 0) {
        bench->spans[bench->n_spans++] = (sd_span){m->data, bytes};
        *total += bytes;
    }
}

int sd_bench_prepare_probe(sd_bench *bench, sd_error *err)
{
    const sd_model *m = bench->model;
    const size_t most = (size_t)m->config.n_layers * 4 + 1;
    bench->spans = sd_calloc(most, sizeof *bench->spans);
    if (!bench->spans) {
        return sd_fail_memory(err, most * sizeof *bench->spans, "the probe");
    }
    size_t total = 0;
    for (int l = 0; l < m->config.n_layers; l++) {
        const sd_layer *layer = &m->layers[l];
        add_span(bench, &total, &layer->qkv.w);
        add_span(bench, &total, &layer->out.w);
        add_span(bench, &total, &layer->fc1.w);
        add_span(bench, &total, &layer->fc2.w);
    }
    add_span(bench, &total, &m->head);
    if (total < PROBE_LEAST) {
        bench->probe_array = sd_malloc_aligned(PROBE_LEAST, 1);
        if (!bench->probe_array) {
            return sd_fail_memory(err, PROBE_LEAST, "the probe of memory speed");
        }
        memset(bench->probe_array, 1, PROBE_LEAST);
        bench->probe_array_bytes = PROBE_LEAST;
        bench->spans[0] = (sd_span){bench->probe_array, PROBE_LEAST};
        bench->n_spans = 1;
    }
    return SD_OK;
}

/* ---- what a run comes to ---- */

static double decode_layers(const sd_bench *bench, const sd_bench_line *line)
{
    double layers = 0;
    for (int j = 0; j < bench->flags->n_gen - 1; j++) {
        layers += sd_schedule_budget(line->schedule, j);
    }
    return layers;
}

double sd_bench_decode_bytes(const sd_bench *bench, const sd_bench_line *line)
{
    const sd_model *m = bench->model;
    const size_t every_step = matrix_bytes(&m->head) + matrix_bytes(&m->project_in.w) + matrix_bytes(&m->project_out.w);
    return decode_layers(bench, line) * (double)bench->info.layer_bytes +
           (double)(bench->flags->n_gen - 1) * (double)every_step;
}

/* Operations of `layers` layers, `tokens` projections of embeddings and `outputs` heads. */
static double operations(const sd_config *c, double layers, double tokens, double outputs)
{
    const double layer = 4.0 * c->hidden * c->hidden + 2.0 * c->hidden * c->ffn;
    const double projection = c->embed != c->hidden ? (double)c->embed * c->hidden : 0;
    return 2 * (layers * layer + tokens * projection + outputs * (projection + (double)c->vocab * c->embed));
}

double sd_bench_decode_operations(const sd_bench *bench, const sd_bench_line *line)
{
    const double steps = bench->flags->n_gen - 1;
    return line->batch * operations(&bench->config, decode_layers(bench, line), steps, steps);
}

double sd_bench_prefill_operations(const sd_bench *bench, const sd_bench_line *line)
{
    const double tokens = bench->flags->n_prompt, layers = tokens * sd_schedule_prompt_budget(line->schedule);
    return line->batch * operations(&bench->config, layers, tokens, 1); /* logits of the last token only */
}

/* ---- one run: a batch of rows from the first prompt token to the last step ---- */

static const int32_t *row_tokens(const sd_bench *bench, int row)
{
    return bench->tokens + (size_t)row * (size_t)(bench->flags->n_prompt + bench->flags->n_gen);
}

/* Prompts in passes of at most prefill_tokens, one row after the other, as sd_generate does it. */
static int prefill(sd_bench *bench, sd_session *session, int batch, sd_error *err)
{
    const int n_prompt = bench->flags->n_prompt;
    int rc = SD_OK;
    for (int row = 0, fed = 0; rc == SD_OK && row < batch;) {
        int n_feeds = 0, room = bench->flags->prefill_tokens;
        while (row < batch && room > 0) {
            const int some = n_prompt - fed < room ? n_prompt - fed : room;
            bench->feeds[n_feeds++] = (sd_feed){bench->rows[row], row_tokens(bench, row) + fed, some};
            room -= some;
            fed += some;
            if (fed == n_prompt) {
                fed = 0;
                row++;
            }
        }
        rc = sd_session_forward(session, bench->feeds, n_feeds, err);
        sd_progress_tick(&bench->progress);
    }
    return rc;
}

static int decode(sd_bench *bench, sd_session *session, int batch, int steps, sd_error *err)
{
    int rc = SD_OK;
    for (int j = 0; rc == SD_OK && j < steps; j++) {
        for (int row = 0; row < batch; row++) {
            bench->feeds[row] = (sd_feed){bench->rows[row], row_tokens(bench, row) + bench->flags->n_prompt + j, 1};
        }
        rc = sd_session_forward(session, bench->feeds, batch, err);
        bench->progress.tokens += batch;
        sd_progress_tick(&bench->progress);
    }
    return rc;
}

/* seconds: [2] prefill and decode. */
static int run_rows(sd_bench *bench, sd_session *session, const sd_bench_line *line, int steps, double *seconds,
                    sd_error *err)
{
    const sd_bench_flags *f = bench->flags;
    int rc = SD_OK, open = 0;
    while (rc == SD_OK && open < line->batch) {
        rc = sd_session_add(session, f->n_prompt, f->n_gen, line->schedule, &bench->rows[open], err);
        open += rc == SD_OK;
    }
    const double start = sd_clock_seconds();
    rc = rc == SD_OK ? prefill(bench, session, line->batch, err) : rc;
    const double middle = sd_clock_seconds();
    rc = rc == SD_OK ? decode(bench, session, line->batch, steps, err) : rc;
    seconds[0] = middle - start;
    seconds[1] = sd_clock_seconds() - middle;
    for (int i = 0; i < open; i++) {
        sd_session_remove(session, bench->rows[i]);
    }
    return rc;
}

typedef struct sd_moment { /* what the machine can do now */
    double gbps, gops;
} sd_moment;

static sd_moment probe(const sd_bench *bench)
{
    sd_pool *pool = bench->model->pool;
    return (sd_moment){sd_probe_read(pool, bench->spans, bench->n_spans), sd_probe_peak(pool, bench->peak)};
}

static double blend(double mean, double value, int n) { return mean + (value - mean) / n; }

static int measure(sd_bench *bench, sd_session *session, sd_bench_line *line, int repetition, sd_error *err)
{
    double seconds[2];
    sd_bench_reset_peak();
    const sd_moment before = probe(bench);
    int rc = run_rows(bench, session, line, bench->flags->n_gen - 1, seconds, err);
    const sd_moment after = probe(bench);
    const size_t peak = sd_bench_peak_rss();
    line->peak_rss = peak > line->peak_rss ? peak : line->peak_rss;
    sd_repetition *r = &line->repetitions[repetition];
    r->runs++;
    r->prefill_seconds = blend(r->prefill_seconds, seconds[0], r->runs);
    r->decode_seconds = blend(r->decode_seconds, seconds[1], r->runs);
    r->probe_gbps = blend(r->probe_gbps, (before.gbps + after.gbps) / 2, r->runs);
    r->peak_gops = blend(r->peak_gops, (before.gops + after.gops) / 2, r->runs);
    bench->progress.done += line->batch;
    bench->progress.work_done += line->batch * (bench->flags->n_gen + bench->flags->n_prompt) / line->target;
    return rc;
}

/* Full depth, the targets, full depth; the targets in the other direction every second time. */
static int repeat(sd_bench *bench, sd_session *session, sd_bench_line *lines, int repetition, sd_error *err)
{
    const int n = bench->n_targets;
    int rc = measure(bench, session, &lines[0], repetition, err);
    for (int i = 1; rc == SD_OK && i < n; i++) {
        rc = measure(bench, session, &lines[repetition % 2 ? n - i : i], repetition, err);
    }
    if (rc == SD_OK && n > 1) {
        rc = measure(bench, session, &lines[0], repetition, err);
    }
    const sd_repetition *full = &lines[0].repetitions[repetition];
    for (int i = 0; rc == SD_OK && i < n; i++) {
        sd_repetition *r = &lines[i].repetitions[repetition];
        r->wall_speedup = full->decode_seconds / r->decode_seconds;
        r->request_speedup =
            (full->prefill_seconds + full->decode_seconds) / (r->prefill_seconds + r->decode_seconds);
    }
    return rc;
}

/* A batch that cannot be held is refused before the machine runs out. */
static int check_memory(sd_bench *bench, const sd_bench_line *line, sd_error *err)
{
    const double physical = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGE_SIZE);
    const size_t row = sd_kv_planned_bytes(bench->model, bench->flags->n_prompt, bench->flags->n_gen, line->schedule);
    const double bytes = (double)line->batch * (double)row + (double)bench->info.weight_bytes;
    if (physical > 0 && bytes > physical) {
        return sd_fail(err, SD_ERR_MEMORY,
                       "a batch of %d rows of %d + %d tokens needs %.1f GB with the weights, this machine has %.1f GB; "
                       "give a smaller --batch",
                       line->batch, bench->flags->n_prompt, bench->flags->n_gen, bytes * 1e-9, physical * 1e-9);
    }
    return SD_OK;
}

int sd_bench_run(sd_bench *bench, int batch, sd_error *err)
{
    sd_bench_line *lines = sd_bench_lines(bench, batch);
    int rc = check_memory(bench, &lines[0], err);
    sd_session *session = NULL;
    rc = rc == SD_OK ? sd_session_create(&session, bench->model, lines[0].batch, err) : rc;
    if (rc != SD_OK) {
        return rc;
    }
    double seconds[2]; /* the first pass makes room for activations */
    rc = run_rows(bench, session, &lines[0], 1, seconds, err);
    for (int i = 0; i < bench->n_targets; i++) {
        const size_t row = sd_kv_planned_bytes(bench->model, bench->flags->n_prompt, bench->flags->n_gen,
                                               lines[i].schedule);
        lines[i].planned_bytes = bench->info.weight_bytes + (size_t)lines[i].batch * row +
                                 sd_session_scratch_bytes(session) + bench->probe_array_bytes;
    }
    for (int i = 0; rc == SD_OK && i < bench->flags->repeat; i++) {
        rc = repeat(bench, session, lines, i, err);
    }
    sd_session_free(session);
    return rc;
}
