/* SPDX-License-Identifier: MIT
 *
 * What the tests share. */
#ifndef SD_TESTS_SUPPORT_H
#define SD_TESTS_SUPPORT_H

/* cmocka wants these first, in this order */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "include/skipdecode/skipdecode.h"

/* Exit status that CTest counts as a skip. */
enum { SD_TEST_SKIP = 77 };

/* The one comparison of arrays. Fails the test, naming the worst element, unless |got - want| <= absolute +
 * relative * |want| for all; NaN or infinity on either side fails. */
void sd_assert_close(const float *got, const float *want, size_t n, double absolute, double relative, const char *what);

/* Largest |got - want|; NaN if either holds one. */
double sd_max_difference(const float *got, const float *want, size_t n);

/* Fails the test with the error's message unless rc is SD_OK. */
#define sd_assert_ok(rc, err) sd_assert_ok_at((rc), (err), __FILE__, __LINE__)
void sd_assert_ok_at(int rc, const sd_error *err, const char *file, int line);

/* Fails the test unless rc == code and the message contains `part`. */
#define sd_assert_fails(rc, code, err, part) sd_assert_fails_at((rc), (code), (err), (part), __FILE__, __LINE__)
void sd_assert_fails_at(int rc, int code, const sd_error *err, const char *part, const char *file, int line);

/* A fresh directory, removed by sd_remove_temp_dir. The caller frees the name. */
char *sd_make_temp_dir(void);
void sd_remove_temp_dir(char *dir);

/* Writes a whole file; asserts on failure. */
void sd_write_file(const char *path, const void *bytes, size_t n);

/* Skips the whole program, saying why, if SKIPDECODE_CPU asks for more than the machine has. Call first in main. */
void sd_skip_unless_level(void);

#endif
