/* SPDX-License-Identifier: MIT
 *
 * What the parts of checkkernels share. Plain exit statuses and no test framework, because the program also has to show
 * that a broken kernel turns it red. */
#ifndef SD_TESTS_KERNELS_CHECK_H
#define SD_TESTS_KERNELS_CHECK_H

#include <stdbool.h>
#include <stddef.h>

#include "src/base/rng.h"
#include "src/kernels/kernels.h"

/* The tables under test: one for each level that the machine has and the command line allows. */
typedef struct check_tables {
    const sd_kernels *table[SD_CPU_LEVELS];
    int n;
} check_tables;

/* Counts a failure of `entry` at `level` and prints it, unless that pair has failed often already. */
void check_fail(const char *entry, const char *level, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* An array of floats that ends where an inaccessible page begins and has a guard band in front: reading or writing past
 * the end crashes, writing before the start is found by guard_intact. Filled with NaN of a known pattern. Its alignment
 * follows from its length, so that lengths of every remainder are arrays of every alignment. */
typedef struct guard {
    float *data;
    size_t n;
    void *map;
    size_t map_bytes;
} guard;

guard guard_new(size_t n); /* exits with a message when memory is out */
bool guard_intact(const guard *g);
bool guard_is_blank(float x); /* the pattern of a float that nobody wrote */
void guard_free(guard *g);

/* Kinds of values. */
typedef enum check_values {
    VALUES_NORMAL,   /* about -1 .. 1 */
    VALUES_ZERO,
    VALUES_LARGE,    /* about +-1e15 */
    VALUES_DENORMAL, /* below 1e-38 */
    VALUES_MIXED,    /* magnitudes from 1e-6 to 1e6 */
    VALUES_OFFSET,   /* 1000 and a little */
    VALUES_KINDS
} check_values;

void check_fill(float *x, size_t n, check_values kind, sd_rng *rng);

/* One check per entry of the table. */
void check_gemm_f32(const check_tables *tables);
void check_gemm_bf16(const check_tables *tables);
void check_gemm_q8(const check_tables *tables);
void check_gemm_q4(const check_tables *tables);
void check_pack_input(const check_tables *tables);
void check_quantise(const check_tables *tables);
void check_layernorm(const check_tables *tables);
void check_gelu(const check_tables *tables);
void check_gelu_tanh(const check_tables *tables);
void check_attention(const check_tables *tables);
void check_attention_f16(const check_tables *tables);
void check_to_f16(const check_tables *tables);
void check_argmax(const check_tables *tables);

/* A copy of `table` with a fault built in; NULL when there is none of that name. Faults: the name of an entry (one
 * output is off by a thousandth), "ENTRY:write" (a float in front of the output is overwritten), "gemm_*:rows" (the
 * last bit of an output depends on the number of rows). The copy lasts as long as the program. */
const sd_kernels *check_break(const sd_kernels *table, const char *fault);
extern const char *const check_faults[]; /* all names, NULL at the end */

/* Speeds of the products (of one, if `entry` is not NULL) and of what bounds them, on stdout. */
void bench_run(const check_tables *tables, const char *entry);

#endif
