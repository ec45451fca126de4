/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "tests/support/support.h"

#include <ftw.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/cpu.h"

double sd_max_difference(const float *got, const float *want, size_t n)
{
    double worst = 0;
    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)got[i] - (double)want[i]);
        if (!(d <= worst)) {
            worst = d;
            if (isnan(d)) {
                return d;
            }
        }
    }
    return worst;
}

void sd_assert_close(const float *got, const float *want, size_t n, double absolute, double relative, const char *what)
{
    for (size_t i = 0; i < n; i++) {
        double g = (double)got[i], w = (double)want[i];
        /* written so that NaN fails */
        if (!(fabs(g - w) <= absolute + relative * fabs(w)) || !isfinite(g) || !isfinite(w)) {
            fail_msg("%s: element %zu of %zu is %.9g, expected %.9g (difference %.3g, allowed %.3g)", what, i, n, g, w,
                     fabs(g - w), absolute + relative * fabs(w));
        }
    }
}

void sd_assert_ok_at(int rc, const sd_error *err, const char *file, int line)
{
    if (rc != SD_OK) {
        print_error("%s:%d: failed with %d: %s\n", file, line, rc, err ? err->message : "");
        _fail(file, line);
    }
}

void sd_assert_fails_at(int rc, int code, const sd_error *err, const char *part, const char *file, int line)
{
    if (rc != code || err->code != code || !strstr(err->message, part)) {
        print_error("%s:%d: returned %d with \"%s\"; expected %d with a message holding \"%s\"\n", file, line, rc,
                    err->message, code, part);
        _fail(file, line);
    }
}

char *sd_make_temp_dir(void)
{
    const char *base = getenv("TMPDIR");
    char *dir = NULL;
    assert_true(asprintf(&dir, "%s/skipdecode-test-XXXXXX", base ? base : "/tmp") > 0);
    assert_non_null(mkdtemp(dir));
    return dir;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

void sd_remove_temp_dir(char *dir)
{
    (void)nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    free(dir);
}

void sd_write_file(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

void sd_skip_unless_level(void)
{
    sd_cpu_level_id level;
    sd_error err = {0};
    if (sd_cpu_select(&level, &err) != SD_OK) {
        printf("skipped: %s\n", err.message);
        exit(SD_TEST_SKIP);
    }
}
