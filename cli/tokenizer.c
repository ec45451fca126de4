/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "src/base/error.h"
#include "src/base/file.h"
#include "src/tokenizer/train.h"
#include "src/train/data.h"

typedef struct sd_tokenizer_flags {
    sd_data_flags data;
    const char *output;
    int vocab_size;
    bool overwrite, json, quiet;
} sd_tokenizer_flags;

int sd_data_flags_check(const char *verb, const char *name, const sd_strings *data, const sd_strings *responses)
{
    if (responses->n > 0 && responses->n != data->n) {
        return sd_cli_usage(verb, "%d files as --%s and %d as --%s-responses; expected as many", data->n, name,
                            responses->n, name);
    }
    return -1;
}

static int add_pair(void *user, const sd_text_pair *pair, sd_error *err)
{
    int rc = sd_bpe_trainer_add(user, pair->prompt, pair->prompt_len, err);
    return rc == SD_OK ? sd_bpe_trainer_add(user, pair->response, pair->response_len, err) : rc;
}

/* A directory that holds no tokenizer, or none yet. *made: by this call. */
static int enter(const sd_tokenizer_flags *f, bool *made, sd_error *err)
{
    static const char *const names[] = {"vocab.json", "merges.txt", "tokenizer.json", "tokenizer_config.json"};
    struct stat st;
    *made = false;
    if (!*f->output) {
        return sd_fail(err, SD_ERR_ARG, "an empty name for what is to be written; expected the name of a directory");
    }
    if (stat(f->output, &st) != 0) {
        *made = mkdir(f->output, 0777) == 0;
        return *made ? SD_OK : sd_fail_errno(err, "%s: cannot make the directory", f->output);
    }
    if (!S_ISDIR(st.st_mode)) {
        return sd_fail(err, SD_ERR_ARG, "%s: is a file; expected the name of a directory", f->output);
    }
    for (size_t i = 0; !f->overwrite && i < sizeof names / sizeof *names; i++) {
        char *path = sd_path_join(f->output, names[i]);
        const bool there = path && lstat(path, &st) == 0;
        sd_free(path);
        if (there || !path) {
            return there
                       ? sd_fail(err, SD_ERR_ARG, "%s: holds %s already; --overwrite replaces it", f->output, names[i])
                       : sd_fail_memory(err, strlen(f->output), "a file name");
        }
    }
    return SD_OK;
}

static int learn(const sd_tokenizer_flags *f, sd_bpe_trainer *trainer, sd_error *err)
{
    int rc = SD_OK;
    for (int i = 0; rc == SD_OK && i < f->data.data.n; i++) {
        const sd_data_source source = {
            .path = f->data.data.items[i],
            .responses = f->data.responses.n > 0 ? f->data.responses.items[i] : NULL,
            .prompt_template = f->data.prompt_template,
            .response = f->data.response ? f->data.response : "response",
        };
        rc = sd_data_read(&source, add_pair, trainer, err);
    }
    rc = rc == SD_OK ? sd_bpe_trainer_run(trainer, f->vocab_size, err) : rc;
    bool made = false;
    rc = rc == SD_OK ? enter(f, &made, err) : rc;
    rc = rc == SD_OK ? sd_bpe_trainer_save(trainer, f->output, err) : rc;
    if (rc != SD_OK && made) {
        (void)rmdir(f->output);
    }
    return rc;
}

static int report(const sd_tokenizer_flags *f, const sd_bpe_trainer *t, double seconds, sd_error *err)
{
    const int size = sd_bpe_trainer_vocab_size(t), merges = sd_bpe_trainer_n_merges(t);
    if (f->json) {
        return sd_cli_print_json(json_pack("{s:o, s:i, s:i, s:I, s:f}", "output", sd_cli_json_path(f->output),
                                           "vocab_size", size, "merges", merges, "pieces",
                                           (json_int_t)sd_bpe_trainer_n_pieces(t), "seconds", seconds),
                                 JSON_COMPACT, err);
    }
    if (!f->quiet) {
        fprintf(stderr, "%s: %d tokens, %d merges, learned from %zu different pieces in %.1f s\n", f->output, size,
                merges, sd_bpe_trainer_n_pieces(t), seconds);
    }
    if (!f->quiet && size < f->vocab_size) {
        fprintf(stderr, "the data have no more to merge: %d tokens instead of %d\n", size, f->vocab_size);
    }
    return SD_OK;
}

int sd_verb_tokenizer(int argc, char **argv)
{
    sd_tokenizer_flags f = {0};
    const char *action = NULL;
    const sd_option options[] = {
        SD_DATA_OPTIONS(f.data),
        {"vocab-size", "N", SD_OPTION_COUNT, &f.vocab_size, "tokens, the 4 special ones and 256 single bytes included"},
        {"output", "DIR", SD_OPTION_STRING, &f.output, "where to write (needed; -o for short)"},
        {"overwrite", NULL, SD_OPTION_FLAG, &f.overwrite, "replace the tokenizer that DIR holds"},
        {"quiet", NULL, SD_OPTION_FLAG, &f.quiet, "no closing line"},
        {"json", NULL, SD_OPTION_FLAG, &f.json, "the closing line as one JSON object"},
    };
    int code = sd_options_read("tokenizer", options, sizeof options / sizeof *options, argc, argv, &action, -1);
    if (code >= 0) {
        return code;
    }
    if (!action || strcmp(action, "train") != 0) {
        return sd_cli_usage("tokenizer", "%s%s%s; expected: skipdecode tokenizer train", action ? "\"" : "nothing",
                            action ? action : " to do", action ? "\"" : "");
    }
    if (f.data.data.n == 0) {
        return sd_cli_usage("tokenizer", "there is no --data FILE to learn from");
    }
    code = sd_data_flags_check("tokenizer", "data", &f.data.data, &f.data.responses);
    if (code >= 0) {
        return code;
    }
    if (f.vocab_size == 0 || !f.output) {
        return sd_cli_usage("tokenizer", "%s", f.output ? "there is no --vocab-size N, the number of tokens"
                                                  : "there is no -o DIR, which says where to write");
    }
    sd_error err = {0};
    sd_bpe_trainer *trainer;
    const double start = sd_clock_seconds();
    int rc = sd_bpe_trainer_create(&trainer, &err);
    rc = rc == SD_OK ? learn(&f, trainer, &err) : rc;
    rc = rc == SD_OK ? report(&f, trainer, sd_clock_seconds() - start, &err) : rc;
    sd_bpe_trainer_free(trainer);
    return rc == SD_OK ? sd_cli_close_stdout(SD_EXIT_OK) : sd_cli_fail(&err);
}
