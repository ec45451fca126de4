/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/progress.h"
#include "src/base/clock.h"
#include "src/base/error.h"
#include "src/model/packed.h"

/* What a model directory holds beside its weights, as far as it is read or tells how to generate. */
static const char *const companions[] = {
    "config.json", "generation_config.json", "skipdecode.json", "tokenizer.json", "tokenizer_config.json",
    "vocab.json", "merges.txt", "added_tokens.json", "special_tokens_map.json", NULL,
};

static void show_progress(void *user, size_t done, size_t total)
{
    sd_progress *progress = user;
    progress->done = (int64_t)(done / 1000000);
    progress->total = (int64_t)(total / 1000000);
    progress->work_done = (double)done;
    progress->work_total = (double)total;
    sd_progress_tick(progress);
}

static int check_output(const char *output, sd_error *err)
{
    const size_t length = strlen(output), suffix = sizeof ".gguf" - 1;
    if (length > suffix && strcmp(output + length - suffix, ".gguf") == 0) {
        return sd_fail(err, SD_ERR_ARG, "%s: GGUF files are not written yet; name a directory, which every verb takes "
                       "as a model", output);
    }
    return SD_OK;
}

static void print_bytes(size_t bytes)
{
    const double n = (double)bytes;
    n < 1e9 ? printf("%.4g MB", n * 1e-6) : printf("%.4g GB", n * 1e-9);
}

static void print_summary(const sd_quantized *q, const char *output, double seconds)
{
    printf("%s: %.4g million parameters, ", output, (double)q->n_params * 1e-6);
    print_bytes(q->bytes_before);
    printf(" -> ");
    print_bytes(q->bytes_after);
    printf(" (%.3g %%), %s", 100 * (double)q->bytes_after / (double)q->bytes_before, sd_weights_name(q->weights));
    if (q->head != q->weights) {
        printf(", head %s", sd_weights_name(q->head));
    }
    printf(", %.3g bits a weight, in %.1f s\n", q->bits, seconds);
}

static int print_json(const sd_quantized *q, const char *output, double seconds, sd_error *err)
{
    json_t *o = json_pack("{s:o, s:s, s:s, s:I, s:I, s:I, s:f, s:f}", "output", sd_cli_json_path(output), "weights",
                          sd_weights_name(q->weights), "head", sd_weights_name(q->head), "n_params",
                          (json_int_t)q->n_params, "bytes_before", (json_int_t)q->bytes_before, "bytes_after",
                          (json_int_t)q->bytes_after, "bits_per_weight", q->bits, "seconds", seconds);
    return sd_cli_print_json(o, 0, err);
}

int sd_verb_quantize(int argc, char **argv)
{
    sd_model_flags flags = {0};
    const char *dir, *output = NULL;
    bool overwrite = false, json = false, quiet = false;
    const sd_option options[] = {
        {"output", "DIR", SD_OPTION_STRING, &output, "where to write (needed; -o for short): a model directory"},
        {"weights", "TYPE", SD_OPTION_STRING, &flags.weights, "q8 (default), q4, bf16 or f32"},
        {"head", "TYPE", SD_OPTION_STRING, &flags.head,
         "the embedding's and the output head's type; default: the weights', q8 with q4"},
        {"overwrite", NULL, SD_OPTION_FLAG, &overwrite, "replace the packed model that DIR holds"},
        {"threads", "N", SD_OPTION_INT, &flags.threads, "threads; default: the CPUs this process may use"},
        {"no-mmap", NULL, SD_OPTION_FLAG, &flags.no_mmap, "read the checkpoint instead of mapping its files"},
        {"quiet", NULL, SD_OPTION_FLAG, &quiet, "no progress, no closing line"},
        {"json", NULL, SD_OPTION_FLAG, &json, "the closing line as one JSON object"},
    };
    int code = sd_options_read("quantize", options, sizeof options / sizeof *options, argc, argv, &dir, 1);
    if (code >= 0) {
        return code;
    }
    if (!output) {
        return sd_cli_usage("quantize", "there is no -o DIR, which says where to write");
    }
    sd_error err = {0};
    sd_model_options model;
    sd_quantized quantized;
    sd_progress progress;
    const double start = sd_clock_seconds();
    int rc = sd_model_flags_resolve(&flags, &model, &err);
    rc = rc == SD_OK ? check_output(output, &err) : rc;
    if (rc == SD_OK) {
        sd_progress_start(&progress, 0, 0, quiet);
        progress.unit = "MB";
        rc = sd_quantize(dir, output,
                         &(sd_quantize_options){.weights = model.weights, .head = model.head, .threads = model.threads,
                                                .no_mmap = model.no_mmap, .overwrite = overwrite,
                                                .companions = companions, .progress = show_progress,
                                                .user = &progress},
                         &quantized, &err);
        sd_progress_clear(&progress);
    }
    const double seconds = sd_clock_seconds() - start;
    if (rc == SD_OK && json) {
        rc = print_json(&quantized, output, seconds, &err);
    } else if (rc == SD_OK && !quiet) {
        print_summary(&quantized, output, seconds);
    }
    return rc == SD_OK ? sd_cli_close_stdout(SD_EXIT_OK) : sd_cli_fail(&err);
}
