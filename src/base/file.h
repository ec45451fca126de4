/* SPDX-License-Identifier: MIT */
#ifndef SD_BASE_FILE_H
#define SD_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "src/base/error.h"

/* A whole file, read-only: mapped, or read into memory where mapping is refused or not wanted. */
typedef struct sd_file {
    const unsigned char *data; /* [size]; not NULL for an open file, even an empty one */
    size_t size;
    bool mapped;
} sd_file;

int sd_file_open(sd_file *file, const char *path, bool no_mmap, sd_error *err);
void sd_file_close(sd_file *file); /* tolerates {0} */

/* The pages of bytes at .. at+size-1 of a mapped file leave this process's memory, until they are read again; nothing
 * for a file that was read. */
void sd_file_release(const sd_file *file, size_t at, size_t size);

/* True for an existing regular file (links followed). */
bool sd_file_exists(const char *path);
bool sd_dir_exists(const char *path);

/* Exactly `size` bytes from byte `at` of an open file. May run on several threads. */
int sd_read_at(int fd, void *dst, size_t size, size_t at, sd_error *err);

/* "dir/name"; the caller owns it. NULL when memory is out. */
char *sd_path_join(const char *dir, const char *name);

/* True if `name` stays inside its directory: relative, no ".." part, not empty. For names that a file gives us. */
bool sd_path_is_contained(const char *name);

/* Fails if `path` is empty, or exists and is no regular file: renaming a file over a directory, a device or a pipe
 * would fail at the end of the work, or destroy it. */
int sd_check_output(const char *path, sd_error *err);

/* Writing that never leaves half a file: bytes go to "path.tmp.<pid>", which commit syncs and renames over path (over
 * the target, where path is a link); the directory is synced. Errors of stdio (a full disk) are kept and come out at
 * commit. */
typedef struct sd_atomic_file {
    FILE *stream; /* write here */
    char *path, *temporary;
} sd_atomic_file;

int sd_atomic_open(sd_atomic_file *file, const char *path, sd_error *err);

/* The same through "path.tmp", for a caller that keeps other writers of `path` out: if it is killed, the next one uses
 * the name again and nothing stays behind for ever. */
int sd_atomic_open_locked(sd_atomic_file *file, const char *path, sd_error *err);
int sd_atomic_commit(sd_atomic_file *file, sd_error *err); /* on failure the temporary file is removed */
void sd_atomic_discard(sd_atomic_file *file);               /* tolerates {0} and a committed file */

/* Copies a regular file, atomically. */
int sd_copy_file(const char *from, const char *to, sd_error *err);

#endif
