/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/file.h"
#include "tests/support/support.h"

static char *dir;

static int setup(void **state)
{
    (void)state;
    dir = sd_make_temp_dir();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sd_alloc_fail_at(0);
    sd_remove_temp_dir(dir);
    return 0;
}

/* In the test's directory; overwritten by the call after next. */
static const char *at(const char *name)
{
    static char paths[2][4096];
    static int turn;
    turn = !turn;
    (void)snprintf(paths[turn], sizeof paths[turn], "%s/%s", dir, name);
    return paths[turn];
}

static void expect_content(const char *path, const void *bytes, size_t n)
{
    for (int no_mmap = 0; no_mmap < 2; no_mmap++) {
        sd_file file;
        sd_error err = {0};
        sd_assert_ok(sd_file_open(&file, path, no_mmap, &err), &err);
        assert_int_equal(file.size, n);
        assert_non_null(file.data);
        assert_memory_equal(file.data, bytes, n);
        assert_int_equal(file.mapped, !no_mmap && n > 0);
        sd_file_close(&file);
        assert_null(file.data);
        sd_file_close(&file);
    }
}

/* Files in the directory. */
static int entries(void)
{
    char command[4200];
    (void)snprintf(command, sizeof command, "ls -A '%s' | wc -l", dir);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    int n = -1;
    assert_int_equal(fscanf(pipe, "%d", &n), 1);
    pclose(pipe);
    return n;
}

/* ---- reading ---- */

static void test_read(void **state)
{
    (void)state;
    static unsigned char large[300001];
    for (size_t i = 0; i < sizeof large; i++) {
        large[i] = (unsigned char)(i * 7 + i / 251);
    }
    sd_write_file(at("large"), large, sizeof large);
    expect_content(at("large"), large, sizeof large);
    sd_write_file(at("page"), large, 4096);
    expect_content(at("page"), large, 4096);
    sd_write_file(at("one"), "x", 1);
    expect_content(at("one"), "x", 1);
    sd_write_file(at("empty"), "", 0);
    expect_content(at("empty"), "", 0);
    assert_int_equal(symlink("one", at("link")), 0);
    expect_content(at("link"), "x", 1);
}

static void refuse(const char *path, const char *part)
{
    for (int no_mmap = 0; no_mmap < 2; no_mmap++) {
        sd_file file;
        sd_error err = {0};
        sd_assert_fails(sd_file_open(&file, path, no_mmap, &err), SD_ERR_IO, &err, part);
        assert_non_null(strstr(err.message, path));
        assert_null(file.data);
        sd_file_close(&file);
    }
}

static void test_what_cannot_be_read(void **state)
{
    (void)state;
    refuse(at("absent"), "No such file");
    refuse(dir, "not a regular file");
    refuse("/dev/null", "not a regular file");
    assert_int_equal(symlink("nowhere", at("dangling")), 0);
    refuse(at("dangling"), "No such file");
    assert_int_equal(mkfifo(at("pipe"), 0600), 0);
    alarm(20); /* opening a pipe without a writer must not wait for one */
    refuse(at("pipe"), "not a regular file");
    alarm(0);
}

static void test_read_without_memory(void **state)
{
    (void)state;
    sd_write_file(at("x"), "abc", 3);
    sd_file file;
    sd_error err = {0};
    sd_alloc_fail_at(1);
    sd_assert_fails(sd_file_open(&file, at("x"), true, &err), SD_ERR_MEMORY, &err, "3 bytes");
    assert_null(file.data);
}

static void test_exists(void **state)
{
    (void)state;
    sd_write_file(at("f"), "", 0);
    assert_int_equal(symlink("f", at("to-f")), 0);
    assert_int_equal(symlink(dir, at("to-dir")), 0);
    assert_true(sd_file_exists(at("f")) && sd_file_exists(at("to-f")));
    assert_false(sd_file_exists(dir) || sd_file_exists(at("absent")) || sd_file_exists(""));
    assert_false(sd_file_exists("/dev/null"));
    assert_true(sd_dir_exists(dir) && sd_dir_exists(at("to-dir")));
    assert_false(sd_dir_exists(at("f")) || sd_dir_exists(at("absent")) || sd_dir_exists(""));
}

/* ---- names ---- */

static void test_join(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"a", "b", "a/b"}, {"a/", "b", "a/b"}, {"/", "b", "/b"}, {"", "b", "b"}, {"a", "", "a/"},
        {"a/b", "c.d", "a/b/c.d"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *path = sd_path_join(cases[i][0], cases[i][1]);
        assert_string_equal(path, cases[i][2]);
        sd_free(path);
    }
    sd_alloc_fail_at(1);
    assert_null(sd_path_join("a", "b"));
}

static void test_contained(void **state)
{
    (void)state;
    static const char *const inside[] = {
        "a", "a/b", "a/b/", "..a", "a..", "...", "a/..b/c", ".", "./a", ".hidden", "a//b"};
    static const char *const outside[] = {
        "", "/", "/a", "..", "../a", "a/..", "a/../b", "a/b/../../../c", "a//..", "./.."};
    for (size_t i = 0; i < sizeof inside / sizeof *inside; i++) {
        assert_true(sd_path_is_contained(inside[i]));
    }
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) {
        assert_false(sd_path_is_contained(outside[i]));
    }
}

/* ---- writing ---- */

static void test_commit_replaces(void **state)
{
    (void)state;
    sd_write_file(at("out"), "old", 3);
    sd_atomic_file file;
    sd_error err = {0};
    sd_assert_ok(sd_atomic_open(&file, at("out"), &err), &err);
    assert_int_equal(fwrite("new content", 1, 11, file.stream), 11);
    assert_int_equal(fflush(file.stream), 0);
    expect_content(at("out"), "old", 3); /* until the commit */
    sd_assert_ok(sd_atomic_commit(&file, &err), &err);
    expect_content(at("out"), "new content", 11);
    assert_int_equal(entries(), 1);
    sd_atomic_discard(&file); /* of a committed file: nothing */
    expect_content(at("out"), "new content", 11);
}

static void test_commit_creates(void **state)
{
    (void)state;
    sd_atomic_file file;
    sd_error err = {0};
    sd_assert_ok(sd_atomic_open(&file, at("fresh"), &err), &err);
    assert_false(sd_file_exists(at("fresh")));
    sd_assert_ok(sd_atomic_commit(&file, &err), &err);
    expect_content(at("fresh"), "", 0);
    /* readable by whom the umask lets, like any file */
    struct stat st;
    const mode_t mask = umask(0);
    (void)umask(mask);
    assert_int_equal(stat(at("fresh"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0666 & ~mask);
}

/* The file that a link names is replaced, and the link stays. */
static void test_commit_through_a_link(void **state)
{
    (void)state;
    sd_write_file(at("target"), "old", 3);
    assert_int_equal(symlink("target", at("link")), 0);
    sd_atomic_file file;
    sd_error err = {0};
    sd_assert_ok(sd_atomic_open(&file, at("link"), &err), &err);
    fputs("new", file.stream);
    sd_assert_ok(sd_atomic_commit(&file, &err), &err);
    struct stat st;
    assert_int_equal(lstat(at("link"), &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    expect_content(at("target"), "new", 3);
}

static void test_discard_leaves_the_old_file(void **state)
{
    (void)state;
    sd_write_file(at("out"), "old", 3);
    sd_atomic_file file;
    sd_error err = {0};
    sd_assert_ok(sd_atomic_open(&file, at("out"), &err), &err);
    fputs("half", file.stream);
    assert_int_equal(entries(), 2);
    sd_atomic_discard(&file);
    assert_int_equal(entries(), 1);
    expect_content(at("out"), "old", 3);
    sd_atomic_discard(&file);
    sd_atomic_discard(&(sd_atomic_file){0});
}

static void test_what_cannot_be_written(void **state)
{
    (void)state;
    sd_atomic_file file;
    sd_error err = {0};
    sd_assert_fails(sd_atomic_open(&file, at("no/such/dir"), &err), SD_ERR_IO, &err, "No such file or directory");
    assert_null(file.stream);
    sd_atomic_discard(&file);
    sd_assert_fails(sd_atomic_open(&file, dir, &err), SD_ERR_ARG, &err, "is a directory");
    sd_assert_fails(sd_atomic_open(&file, "/dev/null", &err), SD_ERR_ARG, &err, "a device");
    sd_assert_ok(sd_check_output(at("new"), &err), &err);
    assert_int_equal(entries(), 0);
    for (long n = 1; n <= 2; n++) {
        sd_alloc_fail_at(n);
        sd_assert_fails(sd_atomic_open(&file, at("x"), &err), SD_ERR_MEMORY, &err, "a file name");
        assert_null(file.stream);
    }
    sd_alloc_fail_at(0);
    assert_int_equal(entries(), 0);

    /* a directory that takes the name while the file is written */
    sd_assert_ok(sd_atomic_open(&file, at("late"), &err), &err);
    assert_int_equal(mkdir(at("late"), 0700), 0);
    sd_assert_fails(sd_atomic_commit(&file, &err), SD_ERR_IO, &err, "cannot rename");
    assert_int_equal(entries(), 1);
}

/* Writes `bytes` in one or many pieces to `path`, which holds "old"; the write must fail for `reason` and leave
 * nothing. Returns the number of things that were not so. */
static int faults_of_full_disk(const char *path, size_t bytes, size_t piece, int reason)
{
    static const char block[1 << 20];
    sd_atomic_file file;
    sd_error err = {0};
    if (sd_atomic_open(&file, path, &err) != SD_OK) {
        return 1;
    }
    for (size_t done = 0; done < bytes; done += piece) {
        (void)fwrite(block, 1, piece, file.stream);
    }
    char *temporary = strdup(file.temporary);
    int faults = sd_atomic_commit(&file, &err) != SD_ERR_IO;
    faults += !strstr(err.message, strerror(reason)) || !strstr(err.message, "cannot write");
    faults += temporary && access(temporary, F_OK) == 0;
    free(temporary);
    sd_file old;
    faults += sd_file_open(&old, path, true, &err) != SD_OK || old.size != 3 || memcmp(old.data, "old", 3) != 0;
    sd_file_close(&old);
    if (faults) {
        fprintf(stderr, "%zu bytes by %zu: %s\n", bytes, piece, err.message);
    }
    return faults;
}

/* A write that the system stops half way, in one large piece or many small ones (which stdio collects). */
static void test_write_that_fails(void **state)
{
    (void)state;
    sd_write_file(at("out"), "old", 3);
    struct rlimit old, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = (struct rlimit){50000, old.rlim_max};
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    int faults = 0;
    faults += faults_of_full_disk(at("out"), 1 << 20, 1 << 20, EFBIG);
    faults += faults_of_full_disk(at("out"), 1 << 20, 100, EFBIG);
    faults += faults_of_full_disk(at("out"), 50001, 50001, EFBIG);
    faults += faults_of_full_disk(at("out"), 50100, 100, EFBIG);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, handler);
    assert_int_equal(faults, 0);
    assert_int_equal(entries(), 1);
}

/* The same after errno was used for other things: the message must not name an unrelated reason. */
static void test_stale_errno(void **state)
{
    (void)state;
    struct rlimit old, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = (struct rlimit){1, old.rlim_max};
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    sd_atomic_file file;
    sd_error err = {0};
    const int opened = sd_atomic_open(&file, at("out"), &err);
    setvbuf(file.stream, NULL, _IONBF, 0); /* nothing is left for the flush, which succeeds */
    fputs("too long", file.stream);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, handler);
    assert_int_equal(opened, SD_OK);
    errno = ENOENT;
    sd_assert_fails(sd_atomic_commit(&file, &err), SD_ERR_IO, &err, "an earlier write failed");
    assert_int_equal(entries(), 0);
}

enum { CHILD_OK = 0, CHILD_CANNOT_MOUNT = 77 };

/* In a child with a mount table of its own: a real file system of 64 KiB on the test's directory. */
static int fill_a_small_disk(void)
{
    if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) {
        return CHILD_CANNOT_MOUNT;
    }
    if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 || mount("tmpfs", dir, "tmpfs", 0, "size=64k") != 0) {
        return CHILD_CANNOT_MOUNT;
    }
    FILE *f = fopen(at("out"), "w");
    if (!f || fputs("old", f) < 0 || fclose(f) != 0) {
        return 1;
    }
    return faults_of_full_disk(at("out"), 1 << 20, 1 << 20, ENOSPC) +
           faults_of_full_disk(at("out"), 1 << 20, 64, ENOSPC);
}

static void test_full_disk(void **state)
{
    (void)state;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        _exit(fill_a_small_disk());
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == CHILD_CANNOT_MOUNT) {
        print_message("no rights to mount a small file system here\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), CHILD_OK);
}

#define WITH_DIR(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_DIR(test_read), WITH_DIR(test_what_cannot_be_read), WITH_DIR(test_read_without_memory),
        WITH_DIR(test_exists), WITH_DIR(test_join), WITH_DIR(test_contained), WITH_DIR(test_commit_replaces),
        WITH_DIR(test_commit_creates), WITH_DIR(test_commit_through_a_link), WITH_DIR(test_discard_leaves_the_old_file),
        WITH_DIR(test_what_cannot_be_written), WITH_DIR(test_write_that_fails), WITH_DIR(test_stale_errno),
        WITH_DIR(test_full_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
