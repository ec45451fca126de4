/* SPDX-License-Identifier: MIT */
#include "src/kernels/probe.h"

#include <stdatomic.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/cpu.h"

/* Small enough that threads of unequal speed end together, large enough that starting one costs nothing. */
enum { CHUNK = 2 << 20, LINE_GROUP = 256, AHEAD = 4096 };

/* Results end up here, so that no compiler leaves the work out. */
static _Atomic uint64_t sink;

static uint64_t read_words(const void *data, size_t bytes)
{
    const char *from = data;
    uint64_t sum[8] = {0};
    for (size_t at = 0; at < bytes; at += sizeof sum) {
        __builtin_prefetch(from + at + AHEAD);
        for (size_t j = 0; j < 8; j++) {
            uint64_t word;
            memcpy(&word, from + at + 8 * j, sizeof word);
            sum[j] += word;
        }
    }
    return sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
}

static sd_probes find_probes(void)
{
    sd_probes probes = {.read = read_words};
#if defined(__x86_64__)
    const sd_cpu_level_id best = sd_cpu_detect();
    if (best >= SD_CPU_AVX2) {
        sd_probes_init_avx2(&probes);
    }
    if (best >= SD_CPU_AVX512) { /* with it, the operating system keeps the registers of the two below */
        sd_probes_init_avx512(&probes);
        if (__builtin_cpu_supports("avx512vnni")) {
            sd_probes_init_avx512vnni(&probes);
        }
        if (__builtin_cpu_supports("avx512bf16")) {
            sd_probes_init_avx512bf16(&probes);
        }
    }
#endif
    return probes;
}

typedef struct sd_read_job {
    const sd_probes *probes;
    const char *data;
    size_t bytes;
} sd_read_job;

static void read_chunk(void *context, int task, int worker)
{
    (void)worker;
    const sd_read_job *job = context;
    const size_t at = (size_t)task * CHUNK, left = job->bytes - at;
    const uint64_t sum = job->probes->read(job->data + at, left < CHUNK ? left : CHUNK);
    atomic_fetch_add_explicit(&sink, sum, memory_order_relaxed);
}

double sd_probe_read(sd_pool *pool, const sd_span *spans, int n)
{
    const sd_probes probes = find_probes();
    double bytes = 0;
    const double start = sd_clock_seconds();
    for (int i = 0; i < n; i++) {
        sd_read_job job = {.probes = &probes, .data = spans[i].data, .bytes = spans[i].bytes / LINE_GROUP * LINE_GROUP};
        sd_pool_run(pool, (int)((job.bytes + CHUNK - 1) / CHUNK), read_chunk, &job);
        bytes += (double)job.bytes;
    }
    const double seconds = sd_clock_seconds() - start;
    return seconds > 0 ? bytes / seconds * 1e-9 : 0;
}

const char *sd_peak_name(sd_peak peak)
{
    static const char *const names[SD_PEAKS] = {"f32", "bf16", "int8"};
    return names[peak];
}

typedef struct sd_peak_job {
    double (*run)(void);
} sd_peak_job;

static void run_peak(void *context, int task, int worker)
{
    (void)task;
    (void)worker;
    const sd_peak_job *job = context;
    atomic_fetch_add_explicit(&sink, (uint64_t)job->run(), memory_order_relaxed);
}

double sd_probe_peak(sd_pool *pool, sd_peak peak)
{
    const sd_probes probes = find_probes();
    sd_peak_job job = {probes.peak[peak].run};
    if (!job.run) {
        return 0;
    }
    const int threads = sd_pool_size(pool);
    const double start = sd_clock_seconds();
    sd_pool_run(pool, threads, run_peak, &job);
    const double seconds = sd_clock_seconds() - start;
    return threads * probes.peak[peak].operations_a_round * (double)SD_PROBE_ROUNDS / seconds * 1e-9;
}
