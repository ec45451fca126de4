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

enum { MAX_OPTIONS = 48, HELP_COLUMN = 30 };

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
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "skipdecode: cannot write to standard output: %s\n", strerror(errno));
        return exit_code == SD_EXIT_OK ? SD_EXIT_FAILURE : exit_code;
    }
    return exit_code;
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
        *expected = "an integer";
        if (!parse_int64(text, &integer) || integer < INT_MIN || integer > INT_MAX) {
            return false;
        }
        *(int *)o->value = (int)integer;
        return true;
    case SD_OPTION_UINT64:
        *expected = "an integer of at least 0";
        errno = 0;
        *(uint64_t *)o->value = strtoull(text, &end, 10);
        return errno == 0 && end != text && *end == '\0' && text[strspn(text, " \t")] != '-';
    case SD_OPTION_DOUBLE:
        *expected = "a number";
        *(double *)o->value = strtod(text, &end);
        return end != text && *end == '\0' && isfinite(*(double *)o->value);
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

static int bad_option(const char *verb, const struct option *table, char **argv, int at)
{
    const char *given = argv[at];
    if (optopt != 0 && optopt < MAX_OPTIONS + 1) { /* a known option, used wrongly */
        const struct option *o = &table[optopt - 1];
        return o->has_arg ? sd_cli_usage(verb, "--%s needs a value", o->name)
                          : sd_cli_usage(verb, "--%s takes no value", o->name);
    }
    return sd_cli_usage(verb, "unknown option %s", given);
}

int sd_options_read(const char *verb, const sd_option *options, size_t n_options, int argc, char **argv,
                    const char **positional, int n_positional)
{
    struct option table[MAX_OPTIONS + 2];
    memset(table, 0, sizeof table);
    for (size_t i = 0; i < n_options; i++) {
        table[i] = (struct option){options[i].name, options[i].argument ? required_argument : no_argument, NULL, (int)i + 1};
    }
    table[n_options] = (struct option){"help", no_argument, NULL, MAX_OPTIONS + 1};
    opterr = 0;
    optind = 1;
    for (;;) {
        int at = optind;
        int code = getopt_long(argc, argv, "", table, NULL);
        if (code == -1) {
            break;
        }
        if (code == MAX_OPTIONS + 1) {
            print_help(verb, options, n_options);
            return sd_cli_close_stdout(SD_EXIT_OK);
        }
        if (code == '?') {
            return bad_option(verb, table, argv, optind > at + 1 || optind > argc - 1 ? optind - 1 : at);
        }
        const char *expected = "";
        const sd_option *o = &options[code - 1];
        if (!store(o, optarg, &expected)) {
            return sd_cli_usage(verb, "--%s: \"%s\"; expected %s", o->name, optarg, expected);
        }
    }
    if (argc - optind != n_positional) {
        return argc - optind < n_positional ? sd_cli_usage(verb, "expected a model directory")
                                            : sd_cli_usage(verb, "unexpected argument \"%s\"", argv[optind + n_positional]);
    }
    for (int i = 0; i < n_positional; i++) {
        positional[i] = argv[optind + i];
    }
    return -1;
}

int sd_model_flags_resolve(const sd_model_flags *flags, sd_model_options *options, sd_error *err)
{
    sd_model_options_default(options);
    const char *w = flags->weights ? flags->weights : "auto";
    if (strcmp(w, "f32") == 0) {
        options->weights = SD_WEIGHTS_F32;
    } else if (strcmp(w, "bf16") == 0) {
        options->weights = SD_WEIGHTS_BF16;
    } else if (strcmp(w, "auto") != 0) {
        return sd_fail(err, SD_ERR_ARG, "--weights \"%s\"; expected auto, f32 or bf16", w);
    }
    if (flags->threads < 0 || flags->threads > 256) {
        return sd_fail(err, SD_ERR_ARG, "--threads %d; expected 1 .. 256, or 0 for the default", flags->threads);
    }
    options->threads = flags->threads;
    options->no_mmap = flags->no_mmap;
    return SD_OK;
}

int sd_schedule_flags_resolve(const sd_schedule_flags *flags, int n_layers, sd_schedule_options *options, sd_error *err)
{
    bool skip = flags->speedup != 0 || flags->schedule;
    if (flags->policy && strcmp(flags->policy, "full") != 0 && strcmp(flags->policy, "skipdecode") != 0) {
        return sd_fail(err, SD_ERR_ARG, "--policy \"%s\"; expected full or skipdecode", flags->policy);
    }
    if (flags->policy && strcmp(flags->policy, "full") == 0 && skip) {
        return sd_fail(err, SD_ERR_ARG, "--policy full runs all layers; it cannot be combined with --speedup or --schedule");
    }
    if (flags->policy && strcmp(flags->policy, "skipdecode") == 0 && !skip) {
        return sd_fail(err, SD_ERR_ARG, "--policy skipdecode needs a budget: add --speedup S or --schedule SPEC");
    }
    if (flags->speedup != 0 && flags->schedule) {
        return sd_fail(err, SD_ERR_ARG, "--speedup and --schedule both set the budget; give one of them");
    }
    options->full = true;
    if (flags->speedup != 0) {
        return sd_schedule_preset(options, n_layers, flags->speedup, err);
    }
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
            return sd_fail(err, SD_ERR_ARG, "%s: value %d, \"%.*s\", is not a token id; expected integers of at least 0 separated "
                           "by commas", option, *n + 1, (int)strcspn(item, ","), item);
        }
        (*ids)[(*n)++] = (int32_t)id;
        if (!*end) {
            return SD_OK;
        }
        item = end + 1;
    }
}
