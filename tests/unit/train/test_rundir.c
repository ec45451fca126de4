/* SPDX-License-Identifier: MIT
 *
 * Checkpoints count when they are whole, the last one stays until the next is, and one process writes. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/file.h"
#include "src/train/rundir.h"
#include "tests/support/support.h"

static char *parent, *dir;

static int setup(void **state)
{
    (void)state;
    parent = sd_make_temp_dir();
    dir = sd_path_join(parent, "run");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sd_free(dir);
    sd_remove_temp_dir(parent);
    return 0;
}

static bool there(const char *name)
{
    char *path = sd_path_join(dir, name);
    struct stat st;
    const bool found = stat(path, &st) == 0;
    sd_free(path);
    return found;
}

static void put(const char *folder, const char *text)
{
    char *path = sd_path_join(folder, "state");
    sd_write_file(path, text, strlen(text));
    sd_free(path);
}

static void checkpoint(sd_run_dir *run, int64_t step)
{
    char *path;
    sd_error err;
    sd_assert_ok(sd_run_dir_begin(run, step, &path, &err), &err);
    put(path, "x");
    sd_assert_ok(sd_run_dir_commit(run, step, path, &err), &err);
    sd_free(path);
}

static void test_life(void **state)
{
    (void)state;
    sd_run_dir run;
    sd_error err;
    sd_assert_ok(sd_run_dir_enter(&run, dir, &err), &err);
    assert_int_equal(run.latest, -1);
    assert_null(sd_run_dir_latest_file(&run, "state"));
    checkpoint(&run, 10);
    assert_int_equal(run.latest, 10);
    char *path;
    sd_assert_ok(sd_run_dir_begin(&run, 200, &path, &err), &err); /* and the process dies: */
    put(path, "half");
    sd_free(path);
    assert_true(there("checkpoint-00000010") && there("checkpoint-00000200.tmp"));
    sd_run_dir_leave(&run, true);

    sd_assert_ok(sd_run_dir_enter(&run, dir, &err), &err);
    assert_int_equal(run.latest, 10);
    assert_true(there("checkpoint-00000010") && !there("checkpoint-00000200.tmp"));
    char *file = sd_run_dir_latest_file(&run, "state");
    assert_true(sd_file_exists(file));
    sd_free(file);
    sd_run_dir other;
    sd_assert_fails(sd_run_dir_enter(&other, dir, &err), SD_ERR_ARG, &err, "another process");
    sd_run_dir_leave(&other, true);
    checkpoint(&run, 200);
    assert_true(there("checkpoint-00000200") && !there("checkpoint-00000010"));
    sd_run_dir_remove_checkpoints(&run);
    assert_false(there("checkpoint-00000200"));
    assert_int_equal(run.latest, -1);
    sd_run_dir_leave(&run, true);
    assert_true(there(".")); /* this process found it: not its to remove */
}

/* Two whole ones, as after a crash between the new name and the removal of the old: the newer counts. */
static void test_newest(void **state)
{
    (void)state;
    static const char *const names[] = {"checkpoint-00000300", "checkpoint-00000040", "checkpoint-x",
                                        "checkpoint-00000999.old"};
    (void)mkdir(dir, 0777);
    for (int i = 0; i < 4; i++) {
        char *path = sd_path_join(dir, names[i]);
        assert_int_equal(mkdir(path, 0777), 0);
        sd_free(path);
    }
    sd_run_dir run;
    sd_error err;
    sd_assert_ok(sd_run_dir_enter(&run, dir, &err), &err);
    assert_int_equal(run.latest, 300);
    sd_run_dir_remove_checkpoints(&run);
    assert_true(there("checkpoint-x") && there("checkpoint-00000999.old")); /* not ours */
    assert_false(there("checkpoint-00000300") || there("checkpoint-00000040"));
    sd_run_dir_leave(&run, false);
}

static void test_refusals(void **state)
{
    (void)state;
    sd_run_dir run;
    sd_error err;
    sd_assert_fails(sd_run_dir_enter(&run, "", &err), SD_ERR_ARG, &err, "empty name");
    sd_run_dir_leave(&run, true);
    char *file = sd_path_join(parent, "file");
    sd_write_file(file, "x", 1);
    sd_assert_fails(sd_run_dir_enter(&run, file, &err), SD_ERR_ARG, &err, "is a file");
    sd_run_dir_leave(&run, true);
    sd_free(file);
    char *deep = sd_path_join(parent, "no/such");
    sd_assert_fails(sd_run_dir_enter(&run, deep, &err), SD_ERR_IO, &err, "cannot make");
    sd_run_dir_leave(&run, true);
    sd_free(deep);
    char *fresh = sd_path_join(parent, "fresh");
    sd_assert_ok(sd_run_dir_enter(&run, fresh, &err), &err);
    sd_run_dir_leave(&run, true);
    struct stat st;
    assert_int_not_equal(stat(fresh, &st), 0); /* made by us, and nothing in it */
    sd_free(fresh);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_life), cmocka_unit_test(test_newest),
                                       cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
