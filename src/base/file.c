/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "src/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/alloc.h"

static int read_all(int fd, unsigned char *dst, size_t size, const char *path, sd_error *err)
{
    size_t done = 0;
    while (done < size) {
        ssize_t n = read(fd, dst + done, size - done);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return sd_fail_errno(err, "%s: cannot read at byte %zu", path, done);
        }
        if (n == 0) {
            return sd_fail(err, SD_ERR_IO,
                           "%s: ended at byte %zu while being read, %zu expected (was it truncated just now?)", path,
                           done, size);
        }
        done += (size_t)n;
    }
    return SD_OK;
}

static int load(sd_file *file, int fd, const char *path, bool no_mmap, sd_error *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0) {
        return sd_fail_errno(err, "%s: cannot stat", path);
    }
    if (!S_ISREG(st.st_mode)) {
        return sd_fail(err, SD_ERR_IO, "%s: not a regular file", path);
    }
    if (st.st_size < 0 || (unsigned long long)st.st_size > SIZE_MAX / 2) {
        return sd_fail(err, SD_ERR_IO, "%s: size %lld does not fit in memory", path, (long long)st.st_size);
    }
    size_t size = (size_t)st.st_size;
    if (!no_mmap && size > 0) {
        void *map = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (map != MAP_FAILED) {
            *file = (sd_file){map, size, true};
            return SD_OK;
        }
        /* Some network and FUSE file systems refuse mmap (ENODEV): read instead. */
    }
    unsigned char *data = sd_malloc_aligned(size ? size : 1, 1);
    if (!data) {
        return sd_fail(err, SD_ERR_MEMORY, "%s: out of memory: %zu bytes to read it", path, size);
    }
    int rc = read_all(fd, data, size, path, err);
    if (rc != SD_OK) {
        sd_free_aligned(data);
        return rc;
    }
    *file = (sd_file){data, size, false};
    return SD_OK;
}

int sd_file_open(sd_file *file, const char *path, bool no_mmap, sd_error *err)
{
    *file = (sd_file){0};
    /* O_NONBLOCK: opening a pipe that nobody writes to must fail as "not a regular file", not wait for ever. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        return sd_fail_errno(err, "%s: cannot open", path);
    }
    int rc = load(file, fd, path, no_mmap, err);
    close(fd);
    return rc;
}

void sd_file_close(sd_file *file)
{
    if (file->data && file->mapped) {
        munmap((void *)(uintptr_t)file->data, file->size);
    } else if (file->data) {
        sd_free_aligned((void *)(uintptr_t)file->data);
    }
    *file = (sd_file){0};
}

void sd_file_release(const sd_file *file, size_t at, size_t size)
{
    if (!file->mapped || size == 0) {
        return;
    }
    /* whole pages; a neighbour's bytes in them come back from the page cache when they are read */
    const size_t page = (size_t)sysconf(_SC_PAGE_SIZE), first = at / page * page;
    (void)madvise((void *)(uintptr_t)(file->data + first), at + size - first, MADV_DONTNEED);
}

bool sd_file_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

bool sd_dir_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

int sd_read_at(int fd, void *dst, size_t size, size_t at, sd_error *err)
{
    for (size_t done = 0; done < size;) {
        ssize_t n = pread(fd, (char *)dst + done, size - done, (off_t)(at + done));
        if (n < 0 && errno != EINTR) {
            return sd_fail_errno(err, "cannot read at byte %zu", at + done);
        }
        if (n == 0) {
            return sd_fail(err, SD_ERR_IO, "ended at byte %zu while being read (was it truncated just now?)",
                           at + done);
        }
        done += n > 0 ? (size_t)n : 0;
    }
    return SD_OK;
}

char *sd_path_join(const char *dir, const char *name)
{
    size_t a = strlen(dir), b = strlen(name);
    char *path = sd_malloc(a + b + 2, 1);
    if (!path) {
        return NULL;
    }
    memcpy(path, dir, a);
    if (a > 0 && dir[a - 1] != '/') {
        path[a++] = '/';
    }
    memcpy(path + a, name, b + 1);
    return path;
}

bool sd_path_is_contained(const char *name)
{
    if (name[0] == '\0' || name[0] == '/') {
        return false;
    }
    for (const char *part = name; part; part = strchr(part, '/')) {
        part += *part == '/';
        if (part[0] == '.' && part[1] == '.' && (part[2] == '/' || part[2] == '\0')) {
            return false;
        }
    }
    return true;
}

/* Where the new file goes: a link is followed, so that its target is replaced and not the link. NULL when memory is
 * out. */
static char *resolve(const char *path)
{
    struct stat st;
    char *target = lstat(path, &st) == 0 && S_ISLNK(st.st_mode) ? realpath(path, NULL) : NULL;
    char *copy = sd_strdup(target ? target : path);
    free(target);
    return copy;
}

int sd_check_output(const char *path, sd_error *err)
{
    struct stat st;
    if (!*path) {
        return sd_fail(err, SD_ERR_ARG, "an empty file name for what is to be written; expected the name of a file");
    }
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
        return sd_fail(err, SD_ERR_ARG, "%s: %s; expected the name of a file", path,
                       S_ISDIR(st.st_mode) ? "is a directory" : "is a device or a pipe, not to be replaced by a file");
    }
    const char *slash = strrchr(path, '/');
    char *dir = slash ? sd_strndup(path, slash == path ? 1 : (size_t)(slash - path)) : sd_strdup(".");
    int rc = SD_OK;
    if (!dir) {
        rc = sd_fail_memory(err, strlen(path), "a file name");
    } else if (stat(dir, &st) != 0 || (!S_ISDIR(st.st_mode) && (errno = ENOTDIR) != 0)) {
        rc = sd_fail_errno(err, "%s: cannot be written: the directory %s", path, dir);
    }
    sd_free(dir);
    return rc;
}

static int open_temporary(sd_atomic_file *file, const char *path, const char *suffix, sd_error *err)
{
    *file = (sd_atomic_file){0};
    int refused = sd_check_output(path, err);
    if (refused != SD_OK) {
        return refused;
    }
    char *copy = resolve(path);
    path = copy ? copy : path;
    size_t size = strlen(path) + strlen(suffix) + 1;
    char *temporary = sd_malloc(size, 1);
    if (!temporary || !copy) {
        sd_free(temporary);
        sd_free(copy);
        return sd_fail_memory(err, size, "a file name");
    }
    (void)snprintf(temporary, size, "%s%s", path, suffix);
    FILE *stream = fopen(temporary, "wbe");
    if (!stream) {
        int rc = sd_fail_errno(err, "%s: cannot create it to write %s", temporary, path);
        sd_free(temporary);
        sd_free(copy);
        return rc;
    }
    *file = (sd_atomic_file){stream, copy, temporary};
    return SD_OK;
}

int sd_atomic_open(sd_atomic_file *file, const char *path, sd_error *err)
{
    char suffix[32];
    (void)snprintf(suffix, sizeof suffix, ".tmp.%ld", (long)getpid());
    return open_temporary(file, path, suffix, err);
}

int sd_atomic_open_locked(sd_atomic_file *file, const char *path, sd_error *err)
{
    return open_temporary(file, path, ".tmp", err);
}

/* A rename is durable only once the directory that holds the name is on disk. */
static void sync_parent(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *dir = slash ? sd_strndup(path, slash == path ? 1 : (size_t)(slash - path)) : sd_strdup(".");
    if (!dir) {
        return;
    }
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        (void)fsync(fd);
        close(fd);
    }
    sd_free(dir);
}

/* stdio remembers that a write failed, but not why: errno may be of anything since. It counts where it is one that
 * writing gives. */
static int fail_write(const sd_atomic_file *file, int reason, sd_error *err)
{
    if (reason == ENOSPC || reason == EDQUOT || reason == EFBIG || reason == EIO) {
        errno = reason;
        return sd_fail_errno(err, "%s: cannot write", file->temporary);
    }
    return sd_fail(err, SD_ERR_IO, "%s: cannot write: an earlier write failed; is the disk full?", file->temporary);
}

int sd_atomic_commit(sd_atomic_file *file, sd_error *err)
{
    int rc = SD_OK;
    const int reason = errno;
    if (fflush(file->stream) != 0) {
        rc = sd_fail_errno(err, "%s: cannot write", file->temporary);
    } else if (ferror(file->stream)) {
        rc = fail_write(file, reason, err);
    } else if (fsync(fileno(file->stream)) != 0 && errno != EINVAL && errno != EROFS) {
        rc = sd_fail_errno(err, "%s: cannot sync to disk", file->temporary);
    }
    if (fclose(file->stream) != 0 && rc == SD_OK) {
        rc = sd_fail_errno(err, "%s: cannot close", file->temporary);
    }
    file->stream = NULL;
    if (rc == SD_OK && rename(file->temporary, file->path) != 0) {
        rc = sd_fail_errno(err, "%s: cannot rename it to %s", file->temporary, file->path);
    }
    if (rc == SD_OK) {
        sync_parent(file->path);
        sd_free(file->temporary);
        file->temporary = NULL;
    }
    sd_atomic_discard(file);
    return rc;
}

void sd_atomic_discard(sd_atomic_file *file)
{
    if (file->stream) {
        fclose(file->stream);
    }
    if (file->temporary) {
        (void)unlink(file->temporary);
    }
    sd_free(file->temporary);
    sd_free(file->path);
    *file = (sd_atomic_file){0};
}

int sd_copy_file(const char *from, const char *to, sd_error *err)
{
    sd_file source;
    sd_atomic_file copy;
    int rc = sd_file_open(&source, from, false, err);
    if (rc != SD_OK) {
        return rc;
    }
    rc = sd_atomic_open(&copy, to, err);
    if (rc == SD_OK) {
        (void)fwrite(source.data, 1, source.size, copy.stream); /* errors stay in the stream and come out at commit */
        rc = sd_atomic_commit(&copy, err);
    }
    sd_file_close(&source);
    return rc;
}
