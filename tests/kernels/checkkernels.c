/* SPDX-License-Identifier: MIT
 *
 * checkkernels: every entry of the table of kernels, at every level that the machine has, against what is right. The
 * exit status is the verdict: 0 all sound, 1 something failed, 2 the question made no sense.
 *
 *     checkkernels [--level LEVEL] [--entry ENTRY]     check
 *     checkkernels --break FAULT [--level LEVEL]       check a table with a fault built in: must exit with 1
 *     checkkernels --self-test                         every fault must be found
 *     checkkernels --bench [--level] [--entry]         speeds instead of checks
 *     checkkernels --list                              levels, entries and faults
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tests/kernels/check.h"

static const struct {
    const char *name;
    void (*run)(const check_tables *tables);
} entries[] = {
    {"gemm_f32", check_gemm_f32}, {"gemm_bf16", check_gemm_bf16}, {"gemm_q8", check_gemm_q8},
    {"gemm_q4", check_gemm_q4}, {"pack_input", check_pack_input}, {"quantise", check_quantise},
    {"layernorm", check_layernorm}, {"gelu", check_gelu},
    {"gelu_tanh", check_gelu_tanh}, {"attention", check_attention}, {"attention_f16", check_attention_f16},
    {"to_f16", check_to_f16}, {"argmax", check_argmax},
};
enum { ENTRIES = sizeof entries / sizeof *entries, SHOWN_FAILURES = 5 };

static long failures[ENTRIES][SD_CPU_LEVELS];
static bool quiet;

void check_fail(const char *entry, const char *level, const char *format, ...)
{
    long *count = NULL;
    for (int e = 0; e < ENTRIES; e++) {
        for (int l = 0; l < SD_CPU_LEVELS; l++) {
            if (strcmp(entries[e].name, entry) == 0 && strcmp(sd_cpu_level_name((sd_cpu_level_id)l), level) == 0) {
                count = &failures[e][l];
            }
        }
    }
    if (count && ++*count <= SHOWN_FAILURES && !quiet) {
        va_list args;
        va_start(args, format);
        printf("FAILED %s at %s: ", entry, level);
        (void)vprintf(format, args);
        printf("\n");
        va_end(args);
    }
}

static long failures_of(int entry)
{
    long sum = 0;
    for (int l = 0; l < SD_CPU_LEVELS; l++) {
        sum += failures[entry][l];
    }
    return sum;
}

/* `only`: an entry, or NULL for all. */
static long check_all(const check_tables *tables, const char *only)
{
    long sum = 0;
    memset(failures, 0, sizeof failures);
    for (int e = 0; e < ENTRIES; e++) {
        if (only && strcmp(only, entries[e].name) != 0) {
            continue;
        }
        entries[e].run(tables);
        sum += failures_of(e);
        for (int l = 0; l < tables->n && !quiet; l++) {
            const char *level = tables->table[l]->name;
            long count = 0;
            for (int i = 0; i < SD_CPU_LEVELS; i++) {
                count += strcmp(level, sd_cpu_level_name((sd_cpu_level_id)i)) == 0 ? failures[e][i] : 0;
            }
            printf("%-13s %-11s %s", entries[e].name, level, count ? "FAILED" : "ok\n");
            if (count) {
                printf(" %ld times\n", count);
            }
        }
    }
    return sum;
}

/* The entry that a fault is in: its name up to the colon. */
static const char *entry_of(const char *fault)
{
    const size_t len = strcspn(fault, ":");
    for (int e = 0; e < ENTRIES; e++) {
        if (strlen(entries[e].name) == len && strncmp(entries[e].name, fault, len) == 0) {
            return entries[e].name;
        }
    }
    return NULL;
}

static int run_broken(const check_tables *tables, const char *fault)
{
    const sd_kernels *broken = check_break(tables->table[tables->n - 1], fault);
    if (!broken) {
        fprintf(stderr, "checkkernels: no fault is called \"%s\"; --list names them\n", fault);
        return 2;
    }
    return check_all(&(check_tables){{broken}, 1}, entry_of(fault)) > 0;
}

static int self_test(const check_tables *tables)
{
    int missed = 0;
    quiet = true;
    for (const char *const *fault = check_faults; *fault; fault++) {
        const bool found = entry_of(*fault) && run_broken(tables, *fault) == 1;
        printf("%-16s %s\n", *fault, found ? "found" : "NOT FOUND");
        missed += !found;
    }
    for (int e = 0; e < ENTRIES; e++) { /* a new entry comes with a fault */
        if (!check_break(tables->table[0], entries[e].name)) {
            printf("no fault for %s\n", entries[e].name);
            missed++;
        }
    }
    return missed > 0;
}

static void list(const check_tables *tables)
{
    for (int l = 0; l < tables->n; l++) {
        printf("level %s\n", tables->table[l]->name);
    }
    for (int e = 0; e < ENTRIES; e++) {
        printf("entry %s\n", entries[e].name);
    }
    for (const char *const *fault = check_faults; *fault; fault++) {
        printf("fault %s\n", *fault);
    }
}

static int usage(void)
{
    fprintf(stderr, "usage: checkkernels [--level LEVEL] [--entry ENTRY]\n"
                    "       checkkernels [--level LEVEL] --break FAULT | --self-test | --bench | --list\n");
    return 2;
}

int main(int argc, char **argv)
{
    const char *level = NULL, *entry = NULL, *fault = NULL, *verb = "";
    for (int i = 1; i < argc; i++) {
        const bool has_value = i + 1 < argc;
        if (strcmp(argv[i], "--level") == 0 && has_value) {
            level = argv[++i];
        } else if (strcmp(argv[i], "--entry") == 0 && has_value) {
            entry = argv[++i];
        } else if (strcmp(argv[i], "--break") == 0 && has_value) {
            fault = argv[++i];
        } else if (strcmp(argv[i], "--bench") == 0 || strcmp(argv[i], "--list") == 0 ||
                   strcmp(argv[i], "--self-test") == 0) {
            verb = argv[i];
        } else {
            return usage();
        }
    }
    check_tables tables = {.n = 0};
    for (int l = 0; l <= (int)sd_cpu_detect(); l++) {
        if (!level || strcmp(level, sd_cpu_level_name((sd_cpu_level_id)l)) == 0) {
            tables.table[tables.n++] = sd_kernels_get((sd_cpu_level_id)l);
        }
    }
    if (tables.n == 0 || (entry && !entry_of(entry))) {
        fprintf(stderr, "checkkernels: no level \"%s\" on this machine, or no entry \"%s\"\n", level ? level : "any",
                entry ? entry : "any");
        return usage();
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (strcmp(verb, "--list") == 0) {
        list(&tables);
        return 0;
    }
    if (strcmp(verb, "--bench") == 0) {
        bench_run(&tables, entry);
        return 0;
    }
    if (strcmp(verb, "--self-test") == 0) {
        return self_test(&tables);
    }
    return fault ? run_broken(&tables, fault) : check_all(&tables, entry) > 0;
}
