/* SPDX-License-Identifier: MIT */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "src/base/cpu.h"

const sd_verb sd_verbs[] = {
    {"generate", "MODEL (--prompt TEXT | --input FILE) [options]",
     "Continues prompts in batches, every token on the same shrinking budget of layers.", sd_verb_generate},
    {"plan", "MODEL [--speedup S | --schedule SPEC] [options]",
     "Shows which layers run at which step, what that saves, and the memory of a row, without loading weights.",
     sd_verb_plan},
    {"logits", "MODEL --ids LIST [--forced LIST] [options]",
     "Feeds given tokens and prints the logits at every step: an oracle that needs no tokenizer.", sd_verb_logits},
    {"tokenize", "DIR (--text TEXT | --input FILE.jsonl) [options]",
     "Turns text into token ids and back, one JSON object a line.", sd_verb_tokenize},
#ifndef SD_NO_TRAIN
    {"train", "(MODEL | --config FILE --tokenizer DIR) --data FILE -o DIR [options]",
     "Trains a model for several budgets of layers at once, on prompts and responses.", sd_verb_train},
#endif
    {"tokenizer", "train --data FILE --vocab-size N -o DIR [options]",
     "Learns a byte-level BPE from training data, for a model that is to be trained from scratch.", sd_verb_tokenizer},
    {"quantize", "MODEL -o DIR [options]",
     "Packs a model's weights into 8 or 4 bits (or bf16, f32), in a directory that loads at once.", sd_verb_quantize},
    {"info", "MODEL [options]", "Says what a model directory holds.", sd_verb_info},
    {"bench", "(MODEL | --shape NAME) [options]",
     "Measures speed and memory at several batches and speedups, beside what the machine can do.", sd_verb_bench},
    {"score", "--hyp FILE --ref FILE [options]",
     "Scores texts against references: BLEU, chrF, ROUGE, NIST, CIDEr, with intervals and significance.",
     sd_verb_score},
    {"eval", "MODEL --data FILE [options]",
     "Quality against speed: generates a test set at several speedups, scores and times each.", sd_verb_eval},
};
const size_t sd_n_verbs = sizeof sd_verbs / sizeof *sd_verbs;

static void print_warning(void *user, const char *message)
{
    (void)user;
    fprintf(stderr, "skipdecode: warning: %s\n", message);
}

static const sd_verb *find_verb(const char *name)
{
    for (size_t i = 0; i < sd_n_verbs; i++) {
        if (strcmp(sd_verbs[i].name, name) == 0) {
            return &sd_verbs[i];
        }
    }
    return NULL;
}

static int unknown_verb(const char *name)
{
    return sd_cli_usage(NULL,
                        "unknown verb \"%s\"; expected generate, plan, logits, tokenize, train, tokenizer, score, "
                        "eval, quantize, info, bench or help",
                        name);
}

static int overview(FILE *stream)
{
    fprintf(stream, "usage: skipdecode VERB [arguments]\n\n"
                    "Language models on a fixed, shrinking budget of layers (SkipDecode).\n\n");
    for (size_t i = 0; i < sd_n_verbs; i++) {
        fprintf(stream, "  %-10s %s\n", sd_verbs[i].name, sd_verbs[i].summary);
    }
    fprintf(stream, "  %-10s %s\n\n  --version  %s\n", "help", "Explains a verb: skipdecode help VERB.",
            "The version and the CPU level in use; SKIPDECODE_CPU=ref|avx2|avx512|avx512vnni|avx512bf16 asks\n"
            "             for a lower one.");
    return stream == stdout ? sd_cli_close_stdout(SD_EXIT_OK) : SD_EXIT_USAGE;
}

static int run_help(int argc, char **argv)
{
    if (argc < 3 || strcmp(argv[2], "help") == 0) {
        return overview(stdout);
    }
    const sd_verb *verb = find_verb(argv[2]);
    if (!verb) {
        return unknown_verb(argv[2]);
    }
    char *arguments[] = {argv[2], "--help", NULL};
    return verb->run(2, arguments);
}

static int run_version(void)
{
    sd_cpu_level_id level;
    sd_error err = {0};
    if (sd_cpu_select(&level, &err) != SD_OK) {
        return sd_cli_fail(&err);
    }
    printf("skipdecode %s (%s)\n", sd_version(), sd_cpu_level_name(level));
    return sd_cli_close_stdout(SD_EXIT_OK);
}

/* A standard stream that the caller closed would become the next file that is opened, and messages would end up in it.
 * Its place is taken by a file that cannot be written, so that writing fails and is reported. */
static void hold_standard_streams(void)
{
    int fd;
    do {
        fd = open("/dev/null", O_RDONLY);
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd > STDERR_FILENO) {
        close(fd);
    }
}

int main(int argc, char **argv)
{
    hold_standard_streams();
    signal(SIGPIPE, SIG_IGN); /* a closed pipe comes back as a write error and is reported, */
    signal(SIGXFSZ, SIG_IGN); /* and so does a limit on the size of files */
    sd_set_log(print_warning, NULL);
    if (argc < 2) {
        return overview(stderr);
    }
    if (strcmp(argv[1], "--version") == 0) {
        return run_version();
    }
    if (strcmp(argv[1], "help") == 0 || strcmp(argv[1], "--help") == 0) {
        return run_help(argc, argv);
    }
    const sd_verb *verb = find_verb(argv[1]);
    if (!verb) {
        return unknown_verb(argv[1]);
    }
    return verb->run(argc - 1, argv + 1);
}
