/* SPDX-License-Identifier: MIT
 *
 * Texts through every metric. The first byte of the input holds the options; the rest are a text and its references,
 * cut at 0xFF, the source of slots first. */
#define _GNU_SOURCE
#include <math.h>
#include <string.h>

#include "src/base/utf8.h"
#include "src/eval/score.h"
#include "tests/fuzz/fuzz.h"

enum { PARTS = 6 }; /* a source, two texts, a reference of the first, and two of the second */

static void check(const sd_corpus *corpus, sd_metric metric, const sd_metric_options *options)
{
    static const double most[SD_N_METRICS] = {
        [SD_METRIC_BLEU] = 100, [SD_METRIC_CHRF] = 100, [SD_METRIC_CHRFPP] = 100, [SD_METRIC_ROUGE1] = 1,
        [SD_METRIC_ROUGE2] = 1, [SD_METRIC_ROUGEL] = 1, [SD_METRIC_ROUGELSUM] = 1, [SD_METRIC_NIST] = 1000,
        [SD_METRIC_NIST_MTEVAL] = 1000,
        [SD_METRIC_COCO_ROUGEL] = 1, [SD_METRIC_CIDER] = 10, [SD_METRIC_SLOTS] = 1, [SD_METRIC_SLOTS_COPY] = 1,
        [SD_METRIC_REPETITION] = 1,
    };
    sd_stats stats;
    sd_error err = {0};
    const int rc = sd_stats_make(&stats, metric, options, corpus, &err);
    if (rc != SD_OK) {
        sd_fuzz_require(rc == SD_ERR_ARG && sd_metric_needs_sources(metric));
        return;
    }
    const double all = sd_stats_corpus(&stats);
    sd_fuzz_require(all >= 0 && all <= most[metric] * (1 + 1e-9)); /* NaN fails */
    for (size_t i = 0; i < stats.n; i++) {
        const double one = sd_stats_segment(&stats, i);
        sd_fuzz_require(one >= 0 && one <= most[metric] * (1 + 1e-9));
    }
    sd_stats_free(&stats);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    const unsigned flags = data[0];
    sd_buf parts[PARTS] = {{0}};
    sd_str texts[PARTS];
    size_t at = 1;
    for (int i = 0; i < PARTS; i++) {
        const uint8_t *end = at < size ? memchr(data + at, 0xFF, size - at) : NULL;
        const size_t len = end ? (size_t)(end - data) - at : size - at;
        sd_utf8_sanitize(&parts[i], (const char *)data + at, len);
        texts[i] = (sd_str){parts[i].data ? parts[i].data : "", parts[i].len};
        at = end ? at + len + 1 : size;
    }
    const sd_str sources[] = {texts[0], texts[0]};
    static const size_t first[] = {0, 1, 3};
    const sd_corpus corpus = {2, texts + 1, first, texts + 3, sources};
    const sd_metric_options options = {(sd_tokenization)(flags % 3), (flags & 4) != 0, (flags & 8) != 0};
    for (int metric = 0; metric < SD_N_METRICS; metric++) {
        check(&corpus, (sd_metric)metric, &options);
    }
    for (int i = 0; i < PARTS; i++) {
        sd_buf_free(&parts[i]);
    }
    return 0;
}
