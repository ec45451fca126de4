/* SPDX-License-Identifier: MIT
 *
 * Quantisation: every level makes what plain C makes, byte for byte, and touches no other output. */
#include <math.h>
#include <string.h>

#include "tests/kernels/check.h"

typedef struct quantise_case {
    sd_wtype type;
    int lane, rows, k;
    check_values values;
    bool spoiled; /* some values are no numbers */
} quantise_case;

static void check_case(const check_tables *tables, const quantise_case *c, sd_rng *rng)
{
    const size_t n = (size_t)c->rows * (size_t)c->k, floats = sd_matrix_bytes(c->type, 1, c->k) / sizeof(float);
    guard src = guard_new(n), want = guard_new(floats);
    check_fill(src.data, n, c->values, rng);
    for (size_t i = 0; i < n; i++) { /* blocks of unlike sizes, ties and values that nothing but zero holds */
        const uint64_t turn = sd_rng_below(rng, 40);
        src.data[i] *= turn == 0 ? 1e-7f : turn < 4 ? 0.0f : 1.0f;
        if (c->spoiled && sd_rng_below(rng, 70) == 0) {
            src.data[i] = turn % 3 == 0 ? NAN : turn % 3 == 1 ? -INFINITY : 3e38f;
        }
    }
    memset(want.data, 0, floats * sizeof(float));
    sd_kernels_get(SD_CPU_REF)->quantise[c->type](want.data, c->lane, c->rows, src.data, c->k);
    for (int l = 0; l < tables->n; l++) {
        guard got = guard_new(floats);
        memset(got.data, 0, floats * sizeof(float));
        tables->table[l]->quantise[c->type](got.data, c->lane, c->rows, src.data, c->k);
        if (!guard_intact(&got) || memcmp(got.data, want.data, floats * sizeof(float)) != 0) {
            check_fail("quantise", tables->table[l]->name,
                       "other bytes than plain C (%s, outputs %d .. %d, k %d, values %d)", sd_wtype_name(c->type),
                       c->lane, c->lane + c->rows - 1, c->k, c->values);
        }
        guard_free(&got);
    }
    guard_free(&src);
    guard_free(&want);
}

void check_quantise(const check_tables *tables)
{
    sd_rng rng;
    sd_rng_seed(&rng, 8);
    for (int type = SD_W_Q8; type <= SD_W_Q4; type++) {
        for (int k = 1; k <= 70; k++) {
            for (int rows = 1; rows <= SD_PANEL; rows += 1 + k % 7) {
                const int turn = k * 67 + rows;
                check_case(tables, &(quantise_case){(sd_wtype)type, turn % (SD_PANEL - rows + 1), rows, k,
                                                    (check_values)(turn % VALUES_KINDS), turn % 5 == 0}, &rng);
            }
        }
        static const int large[] = {128, 511, 2048, 2049};
        for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
            for (int v = 0; v < VALUES_KINDS; v++) {
                check_case(tables, &(quantise_case){(sd_wtype)type, 0, SD_PANEL, large[i], (check_values)v, v % 2},
                           &rng);
            }
        }
    }
}
