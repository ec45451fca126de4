/* SPDX-License-Identifier: MIT */
#include "cli/train.h"

#include <string.h>

#include "cli/gnuplot.h"
#include "src/base/error.h"

static int run(sd_train_job *job, bool *stopped, sd_error *err)
{
    bool complete = false;
    int rc = sd_train_prepare(job, err);
    rc = rc == SD_OK && job->flags->output && job->ranks.rank == 0 ? sd_train_check_output(job, &complete, err) : rc;
    if (rc != SD_OK || sd_ranks_max(&job->ranks, complete) > 0) {
        return rc;
    }
    rc = sd_train_print_plan(job, err);
    if (rc != SD_OK || job->flags->dry_run) {
        return rc;
    }
    rc = sd_train_run(job, stopped, err);
    if (rc != SD_OK || *stopped || job->ranks.rank > 0) {
        return rc;
    }
    rc = sd_train_write_model(job, err);
    rc = rc == SD_OK && job->flags->plot ? sd_train_plot(job, err) : rc;
    return rc == SD_OK ? sd_train_print_result(job, err) : rc;
}

static int train(sd_train_flags *flags)
{
    sd_error err = {0};
    bool stopped = false;
    sd_train_job job = {.flags = flags};
    sd_train_catch_signals();
    int rc = sd_ranks_begin(&job.ranks, &err);
    if (job.ranks.rank > 0) {
        flags->quiet = true;
        sd_set_log(NULL, NULL);
    }
    rc = rc == SD_OK ? run(&job, &stopped, &err) : rc;
    int code = rc == SD_OK ? sd_cli_close_stdout(stopped ? SD_EXIT_FAILURE : SD_EXIT_OK) : sd_cli_fail(&err);
    sd_train_clear(&job);
    sd_ranks_end(&job.ranks, rc != SD_OK);
    return code;
}

static int check_ranges(const sd_train_flags *f)
{
    const struct {
        const char *name;
        double value, least, below;
        const char *expected;
    } ranges[] = {
        {"lr", f->lr, 1e-12, 10, "a number above 0 and below 10"},
        {"min-lr", f->min_lr, 0, f->lr * 1.0000001, "a number of at least 0, and --lr at most"},
        {"weight-decay", f->weight_decay, 0, 10, "a number from 0 to below 10"},
        {"clip", f->clip, 0, 1e9, "a number of at least 0 (0 does not clip)"},
        {"beta2", f->beta2, 0, 1, "a number from 0 to below 1"},
        {"init-std", f->init_std, 0, 10, "a number from 0 (the default) to below 10"},
        {"dropout", f->dropout, 0, 0.95, "a number from 0 to below 0.95"},
        {"distill", f->distill, 0, 1.0000001, "a number from 0 to 1"},
        {"warmup-steps", f->warmup_steps, 0, 1e9, "a number of steps"},
        {"lora-rank", f->lora_rank, 0, 4097, "0 .. 4096"},
        {"threads", f->threads, 0, 257, "1 .. 256, or 0 for the default"},
        {"warmup", f->warmup, -1, 1 << 14, "a number of layers"},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        if (!(ranges[i].value >= ranges[i].least && ranges[i].value < ranges[i].below)) {
            return sd_cli_usage("train", "--%s %g; expected %s", ranges[i].name, ranges[i].value, ranges[i].expected);
        }
    }
    return -1;
}

static int check_flags(sd_train_flags *f)
{
    if (!f->dir == !f->config || !f->config != !f->tokenizer) {
        return sd_cli_usage("train",
                            "expected either MODEL, a directory to start from, or --config FILE and --tokenizer DIR "
                            "to start from random weights");
    }
    if (f->data.data.n == 0) {
        return sd_cli_usage("train", "there is no --data FILE to train on");
    }
    int code = sd_data_flags_check("train", "data", &f->data.data, &f->data.responses);
    code = code < 0 ? sd_data_flags_check("train", "dev", &f->dev, &f->dev_responses) : code;
    if (code >= 0) {
        return code;
    }
    if (!f->output && !f->dry_run) {
        return sd_cli_usage("train", "there is no -o DIR, which says where to write");
    }
    if (f->speedups && f->schedules.n > 0) {
        return sd_cli_usage("train", "--speedups and --schedule both set the budgets; give one of them");
    }
    if (f->batch && f->batch_tokens) {
        return sd_cli_usage("train", "--batch counts rows and --batch-tokens tokens; give one of them");
    }
    if (f->epochs && f->steps) {
        return sd_cli_usage("train", "--epochs and --steps both set the length of the run; give one of them");
    }
    if (f->resume && f->overwrite) {
        return sd_cli_usage("train", "--resume and --overwrite exclude each other");
    }
    if (f->dev.n == 0 && ((f->keep && strcmp(f->keep, "best") == 0) || f->patience || f->eval_every)) {
        return sd_cli_usage("train", "--keep best, --patience and --eval-every need --dev FILE");
    }
    if (f->distill_from && f->distill == 0) {
        return sd_cli_usage("train", "--distill-from names the teacher; add --distill SHARE");
    }
    return check_ranges(f);
}

int sd_verb_train(int argc, char **argv)
{
    sd_train_flags f = {.warmup = -1, .lr = 5e-4, .weight_decay = 0.01, .clip = 1, .beta2 = 0.98, .warmup_steps = 100,
                        .dropout = 0, .dev_rows = 1000, .accumulate = 1, .micro_tokens = 4096, .log_every = 1};
    const sd_option options[] = {
        {"config", "FILE", SD_OPTION_STRING, &f.config, "a config.json: start from random weights of this shape"},
        {"tokenizer", "DIR", SD_OPTION_STRING, &f.tokenizer, "the tokenizer that goes with --config"},
        SD_DATA_OPTIONS(f.data),
        {"dev", "FILE", SD_OPTION_STRINGS, &f.dev, "other rows, of the same kind: their loss is watched"},
        {"dev-responses", "FILE", SD_OPTION_STRINGS, &f.dev_responses, "as --data-responses, for --dev"},
        {"dev-rows", "N", SD_OPTION_COUNT, &f.dev_rows, "at most so many rows of --dev, evenly spread; default 1000"},
        {"limit", "N", SD_OPTION_COUNT, &f.limit, "only the first N rows of each file"},
        {"max-length", "N", SD_OPTION_COUNT, &f.max_length,
         "longest row in tokens, prompt and response; default: the model's positions"},
        {"too-long", "WHAT", SD_OPTION_STRING, &f.too_long,
         "error (default), skip: leave longer rows out, or cut: shorten their responses"},
        {"speedups", "LIST", SD_OPTION_STRING, &f.speedups,
         "layer speedups to train for; default 1,2,3,4,5. In stages: 1,2@40%/1,2,3,4,5"},
        {"schedule", "SPEC", SD_OPTION_STRINGS, &f.schedules,
         "a schedule written out instead; several share every batch"},
        {"warmup", "N", SD_OPTION_INT, &f.warmup, "bottom layers that every token runs; default: the model's, else 1"},
        {"horizon", "N", SD_OPTION_STRING, &f.horizon,
         "steps over which the budget falls: a number, mean (default) or p90 of the responses' lengths"},
        {"prompt", "WHAT", SD_OPTION_STRING, &f.prompt, "layers of the prompt: full (default), max, or a number"},
        {"ranking", "LIST", SD_OPTION_STRING, &f.ranking, "layers, the one given up last first: 0:23:22:..."},
        {"epochs", "N", SD_OPTION_COUNT, &f.epochs, "passes over the data; default 1"},
        {"steps", "N", SD_OPTION_COUNT, &f.steps, "optimiser steps instead"},
        {"batch", "N", SD_OPTION_COUNT, &f.batch, "rows of a batch, split evenly among the speeds; default 80"},
        {"batch-tokens", "N", SD_OPTION_COUNT, &f.batch_tokens, "about so many tokens a batch instead"},
        {"accumulate", "N", SD_OPTION_COUNT, &f.accumulate, "batches a step; default 1"},
        {"micro-tokens", "N", SD_OPTION_COUNT, &f.micro_tokens,
         "tokens whose activations are in memory at once; default 4096"},
        {"lr", "X", SD_OPTION_DOUBLE, &f.lr, "highest learning rate; default 5e-4"},
        {"warmup-steps", "N", SD_OPTION_INT, &f.warmup_steps, "steps up to it; default 100. Then a cosine down to"},
        {"min-lr", "X", SD_OPTION_DOUBLE, &f.min_lr, "this; default 0"},
        {"weight-decay", "X", SD_OPTION_DOUBLE, &f.weight_decay, "of matrices, not of biases and norms; default 0.01"},
        {"clip", "X", SD_OPTION_DOUBLE, &f.clip, "largest norm of a gradient; default 1, 0 is any"},
        {"beta2", "X", SD_OPTION_DOUBLE, &f.beta2, "AdamW's; default 0.98"},
        {"dropout", "P", SD_OPTION_DOUBLE, &f.dropout, "default 0"},
        {"init-std", "X", SD_OPTION_DOUBLE, &f.init_std, "of random weights, with --config; default 0.02"},
        {"distill", "SHARE", SD_OPTION_DOUBLE, &f.distill,
         "share of the loss that is agreement with a full-depth teacher; default 0"},
        {"distill-from", "DIR", SD_OPTION_STRING, &f.distill_from, "the teacher; default: the model as it was"},
        {"lora-rank", "N", SD_OPTION_INT, &f.lora_rank,
         "train low-rank updates of the matrices; 0 (default) trains all"},
        {"seed", "N", SD_OPTION_UINT64, &f.seed, "of the first weights, the order of the rows and dropout; default 0"},
        {"threads", "N", SD_OPTION_INT, &f.threads, "threads; default: the CPUs this process may use"},
        {"products", "TYPE", SD_OPTION_STRING, &f.products, "f32 (default) or bf16: how matrices are multiplied"},
        {"save-every", "N", SD_OPTION_STRING, &f.save_every,
         "a checkpoint every N steps, or Nm: every N minutes; default 10m"},
        {"resume", NULL, SD_OPTION_FLAG, &f.resume, "go on from the checkpoint in DIR, if there is one"},
        {"overwrite", NULL, SD_OPTION_FLAG, &f.overwrite, "start afresh where DIR holds a run or a model"},
        {"eval-every", "N", SD_OPTION_STRING, &f.eval_every, "steps between losses on --dev; default: each epoch"},
        {"keep", "WHICH", SD_OPTION_STRING, &f.keep, "best on --dev (default with --dev) or last"},
        {"patience", "N", SD_OPTION_COUNT, &f.patience, "stop after N losses on --dev without a better one"},
        {"save-as", "TYPE", SD_OPTION_STRING, &f.save_as, "weights of the model written: f32 (default), bf16 or f16"},
        {"output", "DIR", SD_OPTION_STRING, &f.output, "where to write (needed; -o for short): a model directory"},
        {"log", "FILE", SD_OPTION_STRING, &f.log, "JSON lines of losses; default: train.jsonl in DIR"},
        {"log-every", "N", SD_OPTION_COUNT, &f.log_every, "log only every N-th step"},
        {"plot", "FILE", SD_OPTION_STRING, &f.plot, "a picture of the losses, drawn by gnuplot at the end"},
        {"dry-run", NULL, SD_OPTION_FLAG, &f.dry_run, "only say what would be done: parameters, memory, steps, tokens"},
        {"quiet", NULL, SD_OPTION_FLAG, &f.quiet, "no plan, progress or result"},
        {"json", NULL, SD_OPTION_FLAG, &f.json, "the result as one JSON object"},
    };
    int code = sd_options_read("train", options, sizeof options / sizeof *options, argc, argv, &f.dir, -1);
    code = code < 0 ? check_flags(&f) : code;
    return code >= 0 ? code : train(&f);
}
