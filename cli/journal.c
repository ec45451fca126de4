/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "cli/journal.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "src/base/error.h"
#include "src/base/file.h"
#include "src/base/json.h"

static const double sync_seconds = 1.0; /* how much work a power failure may cost; kill -9 costs none */

/* The row number and key of a line of ours; false: not one. */
static bool read_line(const char *text, size_t len, size_t n_rows, size_t *row, uint64_t *key)
{
    json_t *o = json_loadb(text, len, JSON_ALLOW_NUL, NULL);
    int64_t index = -1;
    const char *hex = json_string_value(json_object_get(o, "key"));
    bool ok = hex && sd_json_as_int(json_object_get(o, "index"), &index) && index >= 0 && (uint64_t)index < n_rows;
    char *end = NULL;
    *key = ok ? strtoull(hex, &end, 16) : 0;
    ok = ok && end == hex + 16 && *end == '\0';
    *row = (size_t)index;
    json_decref(o);
    return ok;
}

/* Takes over the finished rows of a file. *whole: bytes up to the end of its last whole line. *complete: it holds all
 * rows in input order, and nothing else. */
static int take_over(sd_journal *j, const char *path, const uint64_t *keys, size_t *whole, bool *complete,
                     sd_error *err)
{
    sd_file file;
    *whole = 0;
    *complete = false;
    int rc = sd_file_open(&file, path, true, err);
    if (rc != SD_OK) {
        return rc;
    }
    const char *data = (const char *)file.data;
    size_t number = 1, in_order = 0;
    for (size_t at = 0; rc == SD_OK && at < file.size; number++) {
        const char *newline = memchr(data + at, '\n', file.size - at);
        if (!newline) {
            break; /* the process died while writing this line */
        }
        size_t len = (size_t)(newline - data) - at, row;
        uint64_t key;
        if (!read_line(data + at, len, j->n, &row, &key)) {
            rc = sd_fail(err, SD_ERR_ARG, "%s: line %zu is no row of this run (no index and key, or past the input's "
                         "%zu rows); give another --output, or --overwrite to start afresh", path, number, j->n);
        } else if (key != keys[row]) {
            rc = sd_fail(err, SD_ERR_ARG,
                         "%s: row %zu was made from another prompt, model, schedule or sampling options (its key says "
                         "so); give another --output, or --overwrite to start afresh",
                         path, row);
        } else if (!j->lines[row]) {
            j->lines[row] = sd_strndup(data + at, len);
            rc = j->lines[row] ? SD_OK : sd_fail_memory(err, len, "finished rows");
        }
        in_order += rc == SD_OK && row + 1 == number;
        at += len + 1;
        *whole = at;
    }
    *complete = rc == SD_OK && *whole == file.size && in_order == j->n && number == j->n + 1;
    sd_file_close(&file);
    return rc;
}

/* Opens and locks OUT.partial first, so that two processes never read the same state and both go on from it. Between
 * the two calls another process may have finished and removed the file: the lock counts only if the name still leads
 * to it. */
static int open_partial(sd_journal *j, sd_error *err)
{
    for (;;) {
        j->stream = fopen(j->partial, "abe");
        if (!j->stream) {
            return sd_fail_errno(err, "%s: cannot create it to write %s", j->partial, j->path);
        }
        if (flock(fileno(j->stream), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
            fclose(j->stream); /* it is the other's: closing the journal must not take it for an empty one of ours */
            j->stream = NULL;
            return sd_fail(err, SD_ERR_ARG, "%s: another process is writing it", j->partial);
        }
        struct stat locked, named;
        if (fstat(fileno(j->stream), &locked) == 0 && stat(j->partial, &named) == 0 && locked.st_ino == named.st_ino) {
            return SD_OK;
        }
        fclose(j->stream);
    }
}

static void forget_lines(sd_journal *j)
{
    for (size_t i = 0; i < j->n; i++) {
        sd_free(j->lines[i]);
        j->lines[i] = NULL;
    }
}

static int resume(sd_journal *j, const uint64_t *keys, bool overwrite, sd_error *err)
{
    size_t whole = 0, unused;
    bool complete;
    int rc = take_over(j, j->partial, keys, &whole, &complete, err);
    if (rc == SD_ERR_ARG && overwrite) { /* rows of another run; this run's own, had it been interrupted, are welcome */
        forget_lines(j);
        whole = 0;
        rc = SD_OK;
    } else if (rc == SD_OK && !overwrite && sd_file_exists(j->path)) {
        rc = take_over(j, j->path, keys, &unused, &j->complete, err);
    }
    if (rc == SD_OK && ftruncate(fileno(j->stream), (off_t)whole) != 0) {
        rc = sd_fail_errno(err, "%s: cannot cut its torn last line", j->partial);
    }
    return rc;
}

static int open_files(sd_journal *j, const char *path, const uint64_t *keys, bool overwrite, sd_error *err)
{
    size_t size = strlen(path) + sizeof ".partial";
    j->path = sd_strdup(path);
    j->partial = sd_malloc(size, 1);
    if (!j->path || !j->partial) {
        return sd_fail_memory(err, size, "a file name");
    }
    (void)snprintf(j->partial, size, "%s.partial", path);
    int rc = sd_check_output(path, err);
    if (rc == SD_OK) {
        rc = sd_check_output(j->partial, err);
    }
    if (rc != SD_OK) {
        return rc;
    }
    bool existed = sd_file_exists(j->partial);
    rc = open_partial(j, err);
    if (rc != SD_OK) {
        return rc;
    }
    rc = resume(j, keys, overwrite, err);
    if (rc != SD_OK && !existed) {
        (void)unlink(j->partial);
    }
    return rc;
}

int sd_journal_open(sd_journal *j, const char *path, const uint64_t *keys, size_t n, bool overwrite, sd_error *err)
{
    *j = (sd_journal){.n = n, .lines = sd_calloc(n, sizeof(char *))};
    int rc = SD_OK;
    if (!j->lines) {
        rc = sd_fail_memory(err, n * sizeof(char *), "finished rows");
    } else if (path) {
        rc = open_files(j, path, keys, overwrite, err);
    }
    if (rc != SD_OK) {
        sd_journal_close(j);
    }
    return rc;
}

bool sd_journal_has(const sd_journal *j, size_t row) { return j->lines[row] != NULL; }

const char *sd_journal_line(const sd_journal *j, size_t row) { return j->lines[row]; }

static int print_in_order(sd_journal *j, sd_error *err)
{
    while (j->next < j->n && j->lines[j->next]) {
        puts(j->lines[j->next++]);
    }
    return fflush(stdout) == 0 ? SD_OK : sd_fail_errno(err, "cannot write to standard output");
}

int sd_journal_add(sd_journal *j, size_t row, const char *line, sd_error *err)
{
    j->lines[row] = sd_strdup(line);
    if (!j->lines[row]) {
        return sd_fail_memory(err, strlen(line), "a finished row");
    }
    if (!j->stream) {
        return print_in_order(j, err);
    }
    if (fprintf(j->stream, "%s\n", line) < 0 || fflush(j->stream) != 0) {
        return sd_fail_errno(err, "%s: cannot write (the rows before are kept; start again to go on)", j->partial);
    }
    double now = sd_clock_seconds();
    if (now - j->synced >= sync_seconds) {
        (void)fdatasync(fileno(j->stream));
        j->synced = now;
    }
    return SD_OK;
}

int sd_journal_finish(sd_journal *j, sd_error *err)
{
    if (!j->stream) {
        return SD_OK;
    }
    if (j->complete) {
        (void)unlink(j->partial);
        return SD_OK;
    }
    sd_atomic_file file;
    int rc = sd_atomic_open_locked(&file, j->path, err);
    if (rc != SD_OK) {
        return rc;
    }
    for (size_t i = 0; i < j->n; i++) {
        (void)fprintf(file.stream, "%s\n", j->lines[i]); /* errors stay in the stream and come out at commit */
    }
    rc = sd_atomic_commit(&file, err);
    if (rc == SD_OK) {
        (void)unlink(j->partial);
    }
    return rc;
}

void sd_journal_close(sd_journal *j)
{
    if (j->stream) {
        struct stat st;
        if (fstat(fileno(j->stream), &st) == 0 && st.st_size == 0 && st.st_nlink > 0) {
            (void)unlink(j->partial); /* failed before the first row: nothing to go on from */
        }
        fclose(j->stream);
    }
    if (j->lines) {
        forget_lines(j);
    }
    sd_free(j->lines);
    sd_free(j->path);
    sd_free(j->partial);
    *j = (sd_journal){0};
}
