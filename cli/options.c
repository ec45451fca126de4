/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "src/base/alloc.h"
#include "src/base/error.h"
#include "src/base/utf8.h"
#include "src/schedule/schedule.h"

enum { MAX_OPTIONS = 64, HELP_COLUMN = 30 };

/* What getopt_long returns: values beyond any character, which it uses for short options. The only one of these is
 * OUTPUT, where there is an option of the name behind it. */
enum { FIRST_CODE = 256, HELP_CODE = FIRST_CODE + MAX_OPTIONS, OUTPUT = 'o' };

int sd_cli_fail(const sd_error *err)
{
    fprintf(stderr, "skipdecode: %s\n", err->message);
    return err->code == SD_ERR_ARG || err->code == SD_ERR_LIMIT ? SD_EXIT_USAGE : SD_EXIT_FAILURE;
}

int sd_cli_usage(const char *verb, const char *format, ...)
{
    va_list args;
    fputs("skipdecode: ", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "\nTry 'skipdecode help%s%s'.\n", verb ? " " : "", verb ? verb : "");
    return SD_EXIT_USAGE;
}

int sd_cli_close_stdout(int exit_code)
{
    errno = 0;
    if (fflush(stdout) != 0 || ferror(stdout)) {
        const char *why = errno ? strerror(errno) : "an earlier write failed (a full disk, or a reader that is gone)";
        fprintf(stderr, "skipdecode: cannot write to standard output: %s\n", why);
        return exit_code == SD_EXIT_OK ? SD_EXIT_FAILURE : exit_code;
    }
    return exit_code;
}

json_t *sd_cli_json_path(const char *path)
{
    sd_buf text = {0};
    sd_utf8_sanitize(&text, path, strlen(path));
    json_t *string = text.failed ? NULL : json_stringn(text.data ? text.data : "", text.len);
    sd_buf_free(&text);
    return string;
}

int sd_cli_print_json(json_t *object, size_t flags, sd_error *err)
{
    if (!object) {
        return sd_fail_memory(err, 4096, "a JSON object");
    }
    (void)json_dumpf(object, stdout, flags); /* a write error stays in stdout */
    putchar('\n');
    json_decref(object);
    return SD_OK;
}

static void print_help(const char *verb, const sd_option *options, size_t n)
{
    for (size_t i = 0; i < sd_n_verbs; i++) {
        if (strcmp(sd_verbs[i].name, verb) == 0) {
            printf("usage: skipdecode %s %s\n\n%s\n\n", verb, sd_verbs[i].usage, sd_verbs[i].summary);
        }
    }
    for (size_t i = 0; i < n; i++) {
        int used = printf("  --%s%s%s", options[i].name, options[i].argument ? " " : "",
                          options[i].argument ? options[i].argument : "");
        printf("%*s%s\n", used < HELP_COLUMN ? HELP_COLUMN - used : 1, "", options[i].help);
    }
    printf("  --help%*sthis text\n", HELP_COLUMN - 8, "");
}

static bool parse_int64(const char *text, long long *value)
{
    char *end;
    errno = 0;
    *value = strtoll(text, &end, 10);
    return errno == 0 && end != text && *end == '\0';
}

/* Stores one option's argument; returns false with the expectation in *expected. */
static bool store(const sd_option *o, const char *text, const char **expected)
{
    long long integer;
    char *end;
    switch (o->kind) {
    case SD_OPTION_FLAG:
        *(bool *)o->value = true;
        return true;
    case SD_OPTION_INT:
    case SD_OPTION_COUNT:
        *expected = o->kind == SD_OPTION_COUNT ? "an integer, 1 .. 2147483647" : "an integer of at most 2147483647";
        if (!parse_int64(text, &integer) || integer < (o->kind == SD_OPTION_COUNT ? 1 : INT_MIN) || integer > INT_MAX) {
            return false;
        }
        *(int *)o->value = (int)integer;
        return true;
    case SD_OPTION_UINT64:
        *expected = "an integer, 0 .. 18446744073709551615";
        errno = 0;
        *(uint64_t *)o->value = strtoull(text, &end, 10);
        return errno == 0 && end != text && *end == '\0' && text[strspn(text, " \t")] != '-';
    case SD_OPTION_DOUBLE:
    case SD_OPTION_RATIO:
        *expected = o->kind == SD_OPTION_RATIO ? "a number of at least 1" : "a number";
        *(double *)o->value = strtod(text, &end);
        return end != text && *end == '\0' && isfinite(*(double *)o->value) &&
               (o->kind == SD_OPTION_DOUBLE || *(double *)o->value >= 1);
    case SD_OPTION_STRING:
        *(const char **)o->value = text;
        return true;
    case SD_OPTION_STRINGS: {
        sd_strings *list = o->value;
        *expected = "to be given at most 16 times";
        if (list->n == SD_MAX_STRINGS) {
            return false;
        }
        list->items[list->n++] = text;
        return true;
    }
    }
    return false;
}

/* Edit distance of two short words, cut at `most` + 1. */
static int distance(const char *a, const char *b, int most)
{
    enum { WORD = 32 };
    size_t n = strlen(a), m = strlen(b);
    int row[WORD + 1];
    if (n > WORD || m > WORD) {
        return most + 1;
    }
    for (size_t j = 0; j <= m; j++) {
        row[j] = (int)j;
    }
    for (size_t i = 1; i <= n; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            int change = diagonal + (a[i - 1] != b[j - 1]);
            int insert = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = change < insert ? change : insert;
        }
    }
    return row[m] <= most ? row[m] : most + 1;
}

static int unknown_option(const char *verb, const sd_option *options, size_t n, const char *given)
{
    enum { CLOSE = 2 }; /* edits: one slip, or two letters exchanged */
    const char *nearest = NULL;
    int best = CLOSE + 1, name = (int)strcspn(given, "=");
    char word[64];
    (void)snprintf(word, sizeof word, "%.*s", name, given);
    for (size_t i = 0; i < n && strncmp(word, "--", 2) == 0; i++) {
        int d = distance(word + 2, options[i].name, CLOSE);
        if (d < best) {
            best = d;
            nearest = options[i].name;
        }
    }
    return nearest ? sd_cli_usage(verb, "unknown option %s; is --%s meant?", given, nearest)
                   : sd_cli_usage(verb, "unknown option %s", given);
}

/* Which option -o stands for; -1: none. */
static int find_output(const sd_option *options, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(options[i].name, "output") == 0) {
            return (int)i;
        }
    }
    return -1;
}

static int bad_option(const char *verb, const sd_option *options, size_t n, const char *given)
{
    const int output = find_output(options, n);
    if (optopt == OUTPUT && output >= 0 && strcmp(given, "-o") == 0) {
        return sd_cli_usage(verb, "-o needs a value");
    }
    if (optopt == HELP_CODE) {
        return sd_cli_usage(verb, "--help takes no value");
    }
    if (optopt >= FIRST_CODE) { /* a known option, used wrongly */
        const sd_option *o = &options[optopt - FIRST_CODE];
        return o->argument ? sd_cli_usage(verb, "--%s needs a value", o->name)
                           : sd_cli_usage(verb, "--%s takes no value", o->name);
    }
    return unknown_option(verb, options, n, given);
}

/* One option with its value in optarg. *given: whether it came before. Returns -1 to go on. */
static int take_option(const char *verb, const sd_option *o, bool *given)
{
    const char *expected = "";
    if (*given && o->kind != SD_OPTION_FLAG && o->kind != SD_OPTION_STRINGS) {
        return sd_cli_usage(verb, "--%s is given twice", o->name);
    }
    *given = true;
    return store(o, optarg, &expected) ? -1
                                       : sd_cli_usage(verb, "--%s: \"%s\"; expected %s", o->name, optarg, expected);
}

int sd_options_read(const char *verb, const sd_option *options, size_t n_options, int argc, char **argv,
                    const char **positional, int n_positional)
{
    struct option table[MAX_OPTIONS + 2];
    bool given[MAX_OPTIONS] = {false};
    memset(table, 0, sizeof table);
    for (size_t i = 0; i < n_options; i++) {
        table[i] = (struct option){options[i].name, options[i].argument ? required_argument : no_argument, NULL,
                                   FIRST_CODE + (int)i};
    }
    table[n_options] = (struct option){"help", no_argument, NULL, HELP_CODE};
    opterr = 0;
    optind = 1;
    const int most = n_positional < 0 ? -n_positional : n_positional;
    int n = 0, code = 0;
    const int output = find_output(options, n_options);
    for (;;) {
        int at = optind;
        if (code != -1) {
            /* "-": in order, whatever POSIXLY_CORRECT says */
            code = getopt_long(argc, argv, output >= 0 ? "-o:" : "-", table, NULL);
        }
        if (code == OUTPUT && strcmp(argv[at], "-o") == 0) {
            code = FIRST_CODE + output;
        } else if (code == OUTPUT) { /* -output is a slip, not a file called "utput" */
            code = '?';
            optopt = 0;
        }
        if (code == -1 && optind == argc) {
            break;
        }
        if (code == -1) { /* after "--" */
            optarg = argv[optind++];
        }
        if (code == HELP_CODE) {
            print_help(verb, options, n_options);
            return sd_cli_close_stdout(SD_EXIT_OK);
        }
        int exit_code = -1;
        if (code == '?') {
            exit_code = bad_option(verb, options, n_options, argv[at]);
        } else if (code >= FIRST_CODE) {
            exit_code = take_option(verb, &options[code - FIRST_CODE], &given[code - FIRST_CODE]);
        } else if (n == most) {
            exit_code = sd_cli_usage(verb, "unexpected argument \"%s\"", optarg);
        } else {
            positional[n++] = optarg;
        }
        if (exit_code >= 0) {
            return exit_code;
        }
    }
    return n == most || n_positional < 0 ? -1 : sd_cli_usage(verb, "expected a model directory");
}

static int parse_weights(const char *option, const char *text, sd_weight_type *type, sd_error *err)
{
    static const char *const names[] = {"auto", "f32", "bf16", "q8", "q4"}; /* in the order of sd_weight_type */
    *type = SD_WEIGHTS_AUTO;
    for (size_t i = 0; text && i < sizeof names / sizeof *names; i++) {
        if (strcmp(text, names[i]) == 0) {
            *type = (sd_weight_type)i;
            return SD_OK;
        }
    }
    return text ? sd_fail(err, SD_ERR_ARG, "--%s \"%s\"; expected auto, f32, bf16, q8 or q4", option, text) : SD_OK;
}

int sd_parse_kv(const char *text, sd_kv_type *type, sd_error *err)
{
    *type = SD_KV_AUTO;
    if (text && strcmp(text, "f32") == 0) {
        *type = SD_KV_F32;
    } else if (text && strcmp(text, "f16") == 0) {
        *type = SD_KV_F16;
    } else if (text && strcmp(text, "auto") != 0) {
        return sd_fail(err, SD_ERR_ARG, "--kv \"%s\"; expected auto, f32 or f16", text);
    }
    return SD_OK;
}

int sd_model_flags_resolve(const sd_model_flags *flags, sd_model_options *options, sd_error *err)
{
    sd_model_options_default(options);
    int rc = parse_weights("weights", flags->weights, &options->weights, err);
    rc = rc == SD_OK ? parse_weights("head", flags->head, &options->head, err) : rc;
    rc = rc == SD_OK ? sd_parse_kv(flags->kv, &options->kv, err) : rc;
    if (rc != SD_OK) {
        return rc;
    }
    if (flags->threads < 0 || flags->threads > 256) {
        return sd_fail(err, SD_ERR_ARG, "--threads %d; expected 1 .. 256, or 0 for the default", flags->threads);
    }
    options->threads = flags->threads;
    options->no_mmap = flags->no_mmap;
    return SD_OK;
}

int sd_schedule_flags_by_clock(const sd_schedule_flags *flags, bool by_default, bool *by_clock, sd_error *err)
{
    const char *measure = flags->measure;
    *by_clock = (measure ? strcmp(measure, "wall") == 0 : by_default) && flags->speedup > 1;
    if (measure && strcmp(measure, "wall") != 0 && strcmp(measure, "layers") != 0) {
        return sd_fail(err, SD_ERR_ARG, "--measure \"%s\"; expected wall or layers", measure);
    }
    if (measure && flags->speedup == 0) {
        return sd_fail(err, SD_ERR_ARG, "--measure says what --speedup is a ratio of; add --speedup S");
    }
    return SD_OK;
}

int sd_schedule_flags_resolve(const sd_schedule_flags *flags, int n_layers, bool by_clock,
                              sd_schedule_options *options, sd_error *err)
{
    bool skip = flags->speedup != 0 || flags->schedule;
    const char *policy = flags->policy && strcmp(flags->policy, "full") != 0 ? flags->policy : NULL;
    bool constant = false;
    if (policy && !sd_schedule_is_policy(policy, &constant)) {
        return sd_fail(err, SD_ERR_ARG, "--policy \"%s\"; expected full, skipdecode, early-exit, spread or unified",
                       policy);
    }
    if (flags->policy && !policy && skip) {
        return sd_fail(err, SD_ERR_ARG,
                       "--policy full runs all layers; it cannot be combined with --speedup or --schedule");
    }
    if (policy && !skip) {
        return sd_fail(err, SD_ERR_ARG, "--policy %s needs a budget: add --speedup S%s", policy,
                       strcmp(policy, "skipdecode") == 0 ? " or --schedule SPEC" : "");
    }
    if (policy && strcmp(policy, "skipdecode") != 0 && flags->schedule) {
        return sd_fail(err, SD_ERR_ARG, "--policy %s goes with --speedup; in --schedule, write its ranking out "
                       "(`skipdecode plan --policy %s --speedup S` prints it)", policy, policy);
    }
    if (constant && by_clock) {
        return sd_fail(err, SD_ERR_ARG, "--policy %s has a set of layers for each ratio of layers, not of seconds: add "
                       "--measure layers", policy);
    }
    if (flags->speedup != 0 && flags->schedule) {
        return sd_fail(err, SD_ERR_ARG, "--speedup and --schedule both set the budget; give one of them");
    }
    if (flags->speedup != 0 && (policy || !by_clock)) { /* by the clock the ranking stays, with other budgets */
        const int rc = sd_schedule_policy(options, policy ? policy : "skipdecode", n_layers, flags->speedup, err);
        if (rc != SD_OK || !by_clock) {
            return rc;
        }
    }
    options->full = !by_clock;
    return flags->schedule ? sd_schedule_parse(options, flags->schedule, err) : SD_OK;
}

int sd_parse_ids(const char *text, const char *option, bool allow_empty, int32_t **ids, int *n, sd_error *err)
{
    size_t cap = 1;
    for (const char *s = text; *s; s++) {
        cap += *s == ',';
    }
    *n = 0;
    *ids = sd_malloc(cap, sizeof **ids);
    if (!*ids) {
        return sd_fail_memory(err, cap * sizeof **ids, "token ids");
    }
    if (allow_empty && !*text) {
        return SD_OK;
    }
    for (const char *item = text;;) {
        char *end;
        errno = 0;
        long long id = strtoll(item, &end, 10);
        if (end == item || errno != 0 || (*end && *end != ',') || id < 0 || id > INT32_MAX) {
            sd_free(*ids);
            *ids = NULL;
            return sd_fail(err, SD_ERR_ARG,
                           "%s: value %d, \"%.*s\", is not a token id; expected integers of at least 0 separated "
                           "by commas",
                           option, *n + 1, (int)strcspn(item, ","), item);
        }
        (*ids)[(*n)++] = (int32_t)id;
        if (!*end) {
            return SD_OK;
        }
        item = end + 1;
    }
}

int sd_parse_list(const char *option, const char *text, bool whole, double most, int cap, double *values, int *n,
                  sd_error *err)
{
    *n = 0;
    for (const char *item = text;;) {
        char *end;
        errno = 0;
        const double value = strtod(item, &end);
        const bool ended = *end == '\0' || *end == ',';
        if (end == item || errno != 0 || !ended || !(value >= 1 && value <= most) || (whole && value != floor(value))) {
            return sd_fail(err, SD_ERR_ARG, "--%s: value %d, \"%.*s\"; expected %s of 1 .. %g, separated by commas",
                           option, *n + 1, (int)strcspn(item, ","), item, whole ? "whole numbers" : "numbers", most);
        }
        for (int i = 0; i < *n; i++) {
            if (values[i] == value) {
                return sd_fail(err, SD_ERR_ARG, "--%s: %g comes twice; expected different values", option, value);
            }
        }
        if (*n == cap) {
            return sd_fail(err, SD_ERR_ARG, "--%s: more than %d values; expected at most that many", option, cap);
        }
        values[(*n)++] = value;
        if (*end == '\0') {
            return SD_OK;
        }
        item = end + 1;
    }
}
