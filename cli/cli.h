/* SPDX-License-Identifier: MIT
 *
 * The program: one file per verb, arguments and messages in common. Only cli/ prints and exits. */
#ifndef SD_CLI_CLI_H
#define SD_CLI_CLI_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "include/skipdecode/skipdecode.h"

/* Exit codes. */
enum { SD_EXIT_OK = 0, SD_EXIT_FAILURE = 1, SD_EXIT_USAGE = 2 };

/* Prints "skipdecode: message" to stderr; returns the exit code that fits err->code (2 for SD_ERR_ARG and _LIMIT). */
int sd_cli_fail(const sd_error *err);

/* Prints a usage error with a pointer to `skipdecode help VERB`; returns SD_EXIT_USAGE. */
int sd_cli_usage(const char *verb, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Flushes stdout; a write error there (a full disk, a closed pipe) is a failure that must not pass unnoticed. */
int sd_cli_close_stdout(int exit_code);

/* A path as a JSON string, bytes that are no UTF-8 replaced. NULL when memory is out. */
json_t *sd_cli_json_path(const char *path);

/* Prints the object on a line of its own and releases it. NULL, from a json_pack that failed, is an error. */
int sd_cli_print_json(json_t *object, size_t flags, sd_error *err);

/* ---- options ---- */

typedef enum sd_option_kind {
    SD_OPTION_FLAG,    /* bool * */
    SD_OPTION_INT,     /* int * */
    SD_OPTION_COUNT,   /* int *, at least 1: 0 can mean "not given" */
    SD_OPTION_UINT64,  /* uint64_t * */
    SD_OPTION_DOUBLE,  /* double *, finite */
    SD_OPTION_RATIO,   /* double *, at least 1: 0 can mean "not given" */
    SD_OPTION_STRING,  /* const char ** */
    SD_OPTION_STRINGS  /* sd_strings *: may be given several times */
} sd_option_kind;

enum { SD_MAX_STRINGS = 16 };

typedef struct sd_strings {
    const char *items[SD_MAX_STRINGS];
    int n;
} sd_strings;

typedef struct sd_option {
    const char *name;     /* "max-tokens" */
    const char *argument; /* "N"; NULL for flags */
    sd_option_kind kind;
    void *value;          /* set if the option is given */
    const char *help;
} sd_option;

typedef struct sd_verb {
    const char *name;
    const char *usage; /* after "skipdecode NAME " */
    const char *summary;
    int (*run)(int argc, char **argv); /* argv[0] is the verb's name; returns an exit code */
} sd_verb;

extern const sd_verb sd_verbs[];
extern const size_t sd_n_verbs;

/* Reads argv by the table, and exactly n_positional other arguments into positional[]; with a negative number at most
 * that many, those not given staying as they were. --help prints the table.
 * Returns -1 to go on, else the exit code to leave with. */
int sd_options_read(const char *verb, const sd_option *options, size_t n_options, int argc, char **argv,
                    const char **positional, int n_positional);

int sd_verb_generate(int argc, char **argv);
int sd_verb_plan(int argc, char **argv);
int sd_verb_logits(int argc, char **argv);
int sd_verb_tokenize(int argc, char **argv);
int sd_verb_tokenizer(int argc, char **argv);
int sd_verb_train(int argc, char **argv);
int sd_verb_info(int argc, char **argv);
int sd_verb_bench(int argc, char **argv);
int sd_verb_quantize(int argc, char **argv);
int sd_verb_score(int argc, char **argv);
int sd_verb_eval(int argc, char **argv);

/* ---- what several verbs share ---- */

/* Options that load a model. */
typedef struct sd_model_flags {
    const char *weights, *head, *kv; /* NULL: auto */
    int threads;
    bool no_mmap;
} sd_model_flags;

#define SD_MODEL_OPTIONS(flags)                                                                                        \
    {"weights", "TYPE", SD_OPTION_STRING, &(flags).weights,                                                            \
     "auto (default: as the checkpoint, f16 as f32), f32, bf16, q8 or q4"},                                            \
    {"head", "TYPE", SD_OPTION_STRING, &(flags).head, "the output head's type; default: the weights', q8 with q4"},    \
    {"kv", "TYPE", SD_OPTION_STRING, &(flags).kv, "keys and values as f32 or f16; default: f32 with f32 weights"},     \
    {"threads", "N", SD_OPTION_INT, &(flags).threads, "threads; default: the CPUs this process may use"},              \
    {"no-mmap", NULL, SD_OPTION_FLAG, &(flags).no_mmap, "read the weights instead of mapping the file"}

int sd_parse_kv(const char *text, sd_kv_type *type, sd_error *err); /* text NULL: auto */
int sd_model_flags_resolve(const sd_model_flags *flags, sd_model_options *options, sd_error *err);

/* Options that choose a schedule. */
typedef struct sd_schedule_flags {
    double speedup; /* 0: not given */
    const char *schedule, *policy, *measure;
} sd_schedule_flags;

#define SD_SCHEDULE_OPTIONS(flags)                                                                                     \
    {"speedup", "S", SD_OPTION_RATIO, &(flags).speedup, "how much faster decoding is to be than at full depth"},       \
    {"schedule", "SPEC", SD_OPTION_STRING, &(flags).schedule,                                                          \
     "warmup=1,max=16,min=8,horizon=64,prompt=full; also budgets=24:16:8, ranking=0:23:22:..., full"},                 \
    {"policy", "NAME", SD_OPTION_STRING, &(flags).policy,                                                              \
     "full (default) or skipdecode; to compare, with --speedup: early-exit, spread, unified"}

/* For verbs that can measure the model. */
#define SD_MEASURE_OPTION(flags, usual)                                                                                \
    {"measure", "NAME", SD_OPTION_STRING, &(flags).measure,                                                            \
     "what --speedup is a ratio of: wall (seconds of decoding) or layers (a mean); default " usual}

/* Whether the budget is to be chosen by the clock. by_default: what no --measure means. */
int sd_schedule_flags_by_clock(const sd_schedule_flags *flags, bool by_default, bool *by_clock, sd_error *err);

/* `options` holds the model's own defaults (warm-up, horizon, prompt) and becomes what the flags ask for. by_clock: its
 * budget is left to sd_cost_choose. */
int sd_schedule_flags_resolve(const sd_schedule_flags *flags, int n_layers, bool by_clock,
                              sd_schedule_options *options, sd_error *err);

/* Options that name training data. */
typedef struct sd_data_flags {
    sd_strings data, responses;
    const char *prompt_template, *response; /* response NULL: "response" */
} sd_data_flags;

#define SD_DATA_OPTIONS(flags)                                                                                         \
    {"data", "FILE", SD_OPTION_STRINGS, &(flags).data,                                                                 \
     "rows of prompts and responses: .csv, .jsonl, or lines of text; may be given several times"},                     \
    {"data-responses", "FILE", SD_OPTION_STRINGS, &(flags).responses,                                                  \
     "for lines of text: the responses, one a line; once for each --data"},                                            \
    {"template", "TEXT", SD_OPTION_STRING, &(flags).prompt_template,                                                   \
     "builds the prompt: {name} is a column or key; default: the model's"},                                            \
    {"response", "NAME", SD_OPTION_STRING, &(flags).response,                                                          \
     "the column or key of the response; in JSON it may be a list; default: response"}

/* Checks that the files go together: lists as --NAME and --NAME-responses. Returns -1 to go on. */
int sd_data_flags_check(const char *verb, const char *name, const sd_strings *data, const sd_strings *responses);

/* "1,2,3" -> ids, at least one unless allow_empty. *ids is the caller's (free with sd_free). */
int sd_parse_ids(const char *text, const char *option, bool allow_empty, int32_t **ids, int *n, sd_error *err);

/* "1,8,32" -> values, 1 .. most each, none twice, at most `cap` of them. Whole numbers where `whole`. option: its name
 * for messages. */
int sd_parse_list(const char *option, const char *text, bool whole, double most, int cap, double *values, int *n,
                  sd_error *err);

#endif
