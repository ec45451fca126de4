/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "src/train/rundir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/file.h"

static const char prefix[] = "checkpoint-", unfinished[] = ".tmp";

/* The step of a checkpoint's name; -1: it is none. *whole: not an unfinished one. */
static int64_t step_of(const char *name, bool *whole)
{
    if (strncmp(name, prefix, sizeof prefix - 1) != 0) {
        return -1;
    }
    const char *digits = name + sizeof prefix - 1;
    const size_t n = strspn(digits, "0123456789");
    *whole = digits[n] == '\0';
    return n > 0 && n <= 15 && (*whole || strcmp(digits + n, unfinished) == 0) ? strtoll(digits, NULL, 10) : -1;
}

static char *name_of(const sd_run_dir *run, int64_t step, const char *suffix)
{
    char name[64];
    (void)snprintf(name, sizeof name, "%s%08lld%s", prefix, (long long)step, suffix);
    return sd_path_join(run->dir, name);
}

/* Removes a directory with the files in it. */
static bool remove_dir(const char *path)
{
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            (void)unlinkat(dirfd(dir), entry->d_name, 0);
        }
    }
    if (dir) {
        closedir(dir);
    }
    return rmdir(path) == 0;
}

/* A whole checkpoint loses its name first: one that is half removed must not count. */
static int remove_checkpoint(const sd_run_dir *run, int64_t step, bool whole, sd_error *err)
{
    char *name = name_of(run, step, ""), *doomed = name_of(run, step, unfinished);
    int rc = name && doomed ? SD_OK : sd_fail_memory(err, strlen(run->dir) + 64, "a file name");
    if (rc == SD_OK) {
        (void)remove_dir(doomed);
        if (whole && rename(name, doomed) == 0) {
            (void)remove_dir(doomed);
        }
    }
    sd_free(name);
    sd_free(doomed);
    return rc;
}

/* Removes checkpoints other than `keep`; unfinished ones in any case. Finds the newest that stays. */
static int tidy(sd_run_dir *run, bool all, int64_t keep, sd_error *err)
{
    DIR *dir = opendir(run->dir);
    if (!dir) {
        return sd_fail_errno(err, "%s: cannot list the directory", run->dir);
    }
    int rc = SD_OK;
    run->latest = -1;
    for (struct dirent *entry; rc == SD_OK && (entry = readdir(dir));) {
        bool whole;
        const int64_t step = step_of(entry->d_name, &whole);
        if (step < 0) {
            continue;
        }
        if (whole && !all && (keep < 0 || step == keep)) {
            run->latest = step > run->latest ? step : run->latest;
            continue;
        }
        rc = remove_checkpoint(run, step, whole, err);
    }
    closedir(dir);
    return rc;
}

int sd_run_dir_enter(sd_run_dir *run, const char *dir, sd_error *err)
{
    *run = (sd_run_dir){.lock = -1, .latest = -1};
    struct stat st;
    if (!*dir) {
        return sd_fail(err, SD_ERR_ARG, "an empty name for what is to be written; expected the name of a directory");
    }
    run->dir = sd_strdup(dir);
    if (!run->dir) {
        return sd_fail_memory(err, strlen(dir), "a file name");
    }
    if (stat(dir, &st) == 0 && !S_ISDIR(st.st_mode)) {
        return sd_fail(err, SD_ERR_ARG, "%s: is a file; expected the name of a directory", dir);
    }
    run->made = mkdir(dir, 0777) == 0;
    if (!run->made && errno != EEXIST) {
        return sd_fail_errno(err, "%s: cannot make the directory", dir);
    }
    run->lock = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (run->lock >= 0 && flock(run->lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        return sd_fail(err, SD_ERR_ARG, "%s: another process is training a model there", dir);
    }
    /* where directories cannot be locked, two runs are the user's affair */
    return tidy(run, false, -1, err);
}

void sd_run_dir_leave(sd_run_dir *run, bool remove_if_empty)
{
    if (run->made && remove_if_empty && run->dir) {
        (void)rmdir(run->dir);
    }
    if (run->lock > 0) {
        close(run->lock);
    }
    sd_free(run->dir);
    *run = (sd_run_dir){.lock = -1, .latest = -1};
}

char *sd_run_dir_latest_file(const sd_run_dir *run, const char *name)
{
    char *dir = run->latest >= 0 ? name_of(run, run->latest, "") : NULL;
    char *path = dir ? sd_path_join(dir, name) : NULL;
    sd_free(dir);
    return path;
}

int sd_run_dir_begin(sd_run_dir *run, int64_t step, char **path, sd_error *err)
{
    *path = name_of(run, step, unfinished);
    if (!*path) {
        return sd_fail_memory(err, strlen(run->dir) + 64, "a file name");
    }
    struct stat st;
    if (lstat(*path, &st) == 0) {
        (void)remove_dir(*path);
    }
    if (mkdir(*path, 0777) != 0) {
        int rc = sd_fail_errno(err, "%s: cannot make the directory", *path);
        sd_free(*path);
        *path = NULL;
        return rc;
    }
    return SD_OK;
}

static int sync_path(const char *path, sd_error *err)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return sd_fail_errno(err, "%s: cannot open", path);
    }
    int rc = fsync(fd) == 0 || errno == EINVAL || errno == EROFS ? SD_OK
                                                                 : sd_fail_errno(err, "%s: cannot sync to disk", path);
    close(fd);
    return rc;
}

/* Files that are hard links were synced when they were written; once more costs nothing. */
static int sync_files(const char *path, sd_error *err)
{
    DIR *dir = opendir(path);
    if (!dir) {
        return sd_fail_errno(err, "%s: cannot list the directory", path);
    }
    int rc = SD_OK;
    for (struct dirent *entry; rc == SD_OK && (entry = readdir(dir));) {
        char *file = entry->d_name[0] == '.' ? NULL : sd_path_join(path, entry->d_name);
        if (file) {
            rc = sync_path(file, err);
        }
        sd_free(file);
    }
    closedir(dir);
    return rc == SD_OK ? sync_path(path, err) : rc;
}

/* Over a checkpoint of the same step, too: the two change places, and tidy removes the old one. */
static bool give_name(const char *path, const char *name)
{
    if (rename(path, name) == 0 || renameat2(AT_FDCWD, path, AT_FDCWD, name, RENAME_EXCHANGE) == 0) {
        return true;
    }
    struct stat st; /* a file system that cannot: the older checkpoint goes first */
    return lstat(name, &st) == 0 && remove_dir(name) && rename(path, name) == 0;
}

int sd_run_dir_commit(sd_run_dir *run, int64_t step, const char *path, sd_error *err)
{
    char *name = name_of(run, step, "");
    int rc = name ? sync_files(path, err) : sd_fail_memory(err, strlen(path), "a file name");
    if (rc == SD_OK && !give_name(path, name)) {
        rc = sd_fail_errno(err, "%s: cannot rename it to %s", path, name);
    }
    sd_free(name);
    rc = rc == SD_OK ? sync_path(run->dir, err) : rc;
    return rc == SD_OK ? tidy(run, false, step, err) : rc;
}

void sd_run_dir_abandon(const char *path) { (void)remove_dir(path); }

void sd_run_dir_remove_checkpoints(sd_run_dir *run)
{
    sd_error ignored;
    (void)tidy(run, true, -1, &ignored);
}
