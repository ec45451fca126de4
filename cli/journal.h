/* SPDX-License-Identifier: MIT
 *
 * An output file that survives kill -9. Finished rows go to "OUT.partial" as they end, in any order; when all are there
 * they are written in input order to OUT, atomically, and the partial file goes. Starting again takes over the rows
 * that either file holds. A row is known by its key, a hash of everything that determines its result. */
#ifndef SD_CLI_JOURNAL_H
#define SD_CLI_JOURNAL_H

#include <stdio.h>

#include "include/skipdecode/skipdecode.h"

typedef struct sd_journal {
    char *path, *partial;
    FILE *stream;   /* OUT.partial, locked; NULL: rows go to standard output in order */
    char **lines;   /* [n] finished rows, NULL: not done */
    size_t n, next; /* next: the first row not yet printed to standard output */
    bool complete;  /* OUT held all rows already: it stays as it is */
    double synced;
} sd_journal;

/* path NULL: standard output. keys: [n]. Rows with other keys in OUT or OUT.partial are an error, unless
 * overwrite is set: then OUT is not read, and OUT.partial counts only if all its rows have these keys. */
int sd_journal_open(sd_journal *journal, const char *path, const uint64_t *keys, size_t n, bool overwrite,
                    sd_error *err);
bool sd_journal_has(const sd_journal *journal, size_t row);
const char *sd_journal_line(const sd_journal *journal, size_t row); /* borrowed; NULL: not done */

/* line: one JSON object without the newline; copied. */
int sd_journal_add(sd_journal *journal, size_t row, const char *line, sd_error *err);
int sd_journal_finish(sd_journal *journal, sd_error *err); /* all rows must be there */
void sd_journal_close(sd_journal *journal);                /* keeps OUT.partial if it holds rows; tolerates {0} */

#endif
