/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "src/base/file.h"
#include "src/base/rng.h"
#include "tests/unit/checkpoint/builders.h"

static char *dir, *path;

static int setup(void **state)
{
    (void)state;
    dir = sd_make_temp_dir();
    path = sd_path_join(dir, "model.safetensors");
    return path ? 0 : 1;
}

static int teardown(void **state)
{
    (void)state;
    sd_free(path);
    sd_remove_temp_dir(dir);
    return 0;
}

static int entries(void)
{
    int n = 0;
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    }
    closedir(d);
    return n;
}

static const float weights[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
static const uint16_t halves[3] = {0x3C00, 0x3F80, 0x0001};
static const sd_tensor_source sample[] = {
    {"w", SD_DTYPE_F32, 2, {3, 4}, weights},    {"scalar", SD_DTYPE_F32, 0, {0}, weights + 6},
    {"empty", SD_DTYPE_F64, 3, {2, 0, 2}, NULL}, {"h", SD_DTYPE_BF16, 1, {3}, halves},
    {"odd", SD_DTYPE_U8, 1, {5}, "abcde"},       {"q\"\\\n\x01\xC3\xA9", SD_DTYPE_F16, 1, {3}, halves},
};
enum { N_SAMPLE = sizeof sample / sizeof *sample };

static void assert_same(const sd_checkpoint *c, const sd_tensor_source *sources, size_t n)
{
    assert_int_equal(sd_checkpoint_count(c), n);
    for (size_t i = 0; i < n; i++) {
        const sd_tensor *t = sd_checkpoint_find(c, sources[i].name);
        assert_non_null(t);
        assert_int_equal(t->dtype, sources[i].dtype);
        assert_int_equal(t->rank, sources[i].rank);
        assert_memory_equal(t->shape, sources[i].shape, (size_t)t->rank * sizeof *t->shape);
        if (t->n_elements > 0) {
            assert_memory_equal(t->data, sources[i].data, (size_t)t->n_elements * sd_dtype_size(t->dtype));
        }
    }
}

static void what_is_written_is_read_back(void **state)
{
    (void)state;
    sd_error err = {0};
    sd_assert_ok(sd_safetensors_write(path, sample, N_SAMPLE, &err), &err);
    assert_int_equal(entries(), 1);
    for (int no_mmap = 0; no_mmap < 2; no_mmap++) {
        sd_checkpoint *c;
        sd_assert_ok(sd_checkpoint_open(&c, dir, no_mmap, &err), &err);
        assert_same(c, sample, N_SAMPLE);
        assert_string_equal(sd_checkpoint_format(c), "safetensors");
        sd_checkpoint_close(c);
    }
    sd_file file;
    sd_assert_ok(sd_file_open(&file, path, false, &err), &err);
    uint64_t length;
    memcpy(&length, file.data, sizeof length);
    assert_int_equal(length % 8, 0); /* so the data are aligned */
    assert_memory_equal(file.data + 8, "{\"__metadata__\":{\"format\":\"pt\"},", 32);
    sd_file_close(&file);
    sd_assert_ok(sd_safetensors_write(path, NULL, 0, &err), &err); /* over the old file */
    sd_checkpoint *c;
    sd_assert_ok(sd_checkpoint_open(&c, dir, false, &err), &err);
    assert_int_equal(sd_checkpoint_count(c), 0);
    sd_checkpoint_close(c);
}

static void random_tensors_survive(void **state)
{
    (void)state;
    enum { ROUNDS = 60, MOST = 40, BYTES = 4096 };
    sd_rng rng;
    sd_rng_seed(&rng, 1);
    static unsigned char data[BYTES];
    for (size_t i = 0; i < sizeof data; i++) {
        data[i] = (unsigned char)sd_rng_u64(&rng);
    }
    for (int round = 0; round < ROUNDS; round++) {
        sd_tensor_source sources[MOST] = {0};
        char names[MOST][24];
        size_t n = (size_t)sd_rng_below(&rng, MOST + 1);
        for (size_t i = 0; i < n; i++) {
            (void)snprintf(names[i], sizeof names[i], "%c%zu", (int)('a' + sd_rng_below(&rng, 26)), i);
            sources[i] = (sd_tensor_source){.name = names[i], .dtype = (sd_dtype)sd_rng_below(&rng, SD_DTYPES),
                                            .rank = (int)sd_rng_below(&rng, SD_MAX_RANK + 1), .data = data + i};
            for (int d = 0; d < sources[i].rank; d++) { /* at most 2^8 elements of at most 8 bytes */
                sources[i].shape[d] = (int64_t)sd_rng_below(&rng, 20) == 0 ? 0 : 1 + (int64_t)sd_rng_below(&rng, 2);
            }
        }
        sd_error err = {0};
        sd_checkpoint *c;
        sd_assert_ok(sd_safetensors_write(path, sources, n, &err), &err);
        sd_assert_ok(sd_checkpoint_open(&c, dir, round % 2, &err), &err);
        assert_same(c, sources, n);
        sd_checkpoint_close(c);
    }
}

static void refuses(const sd_tensor_source *sources, size_t n, const char *part)
{
    sd_error err = {0};
    int before = entries();
    sd_assert_fails(sd_safetensors_write(path, sources, n, &err), SD_ERR_ARG, &err, part);
    assert_int_equal(entries(), before);
}

static void refuses_what_no_file_can_hold(void **state)
{
    (void)state;
    refuses(&(sd_tensor_source){NULL, SD_DTYPE_U8, 1, {1}, "x"}, 1, "name");
    refuses(&(sd_tensor_source){"\xFF", SD_DTYPE_U8, 1, {1}, "x"}, 1, "name");
    refuses(&(sd_tensor_source){"__metadata__", SD_DTYPE_U8, 1, {1}, "x"}, 1, "name");
    refuses(&(sd_tensor_source){"w", SD_DTYPES, 1, {1}, "x"}, 1, "\"w\"");
    refuses(&(sd_tensor_source){"w", SD_DTYPE_U8, -1, {1}, "x"}, 1, "\"w\"");
    refuses(&(sd_tensor_source){"w", SD_DTYPE_U8, SD_MAX_RANK + 1, {1}, "x"}, 1, "\"w\"");
    refuses(&(sd_tensor_source){"w", SD_DTYPE_U8, 1, {-1}, "x"}, 1, "\"w\"");
    refuses(&(sd_tensor_source){"w", SD_DTYPE_U8, 1, {1}, NULL}, 1, "\"w\"");
    refuses(&(sd_tensor_source){"w", SD_DTYPE_U8, 2, {INT64_MAX, 2}, "x"}, 1, "\"w\"");
    refuses(&(sd_tensor_source){"w", SD_DTYPE_F32, 2, {INT64_C(1) << 53, 2}, "x"}, 1, "2^53");
    refuses((sd_tensor_source[]){sample[0], sample[3], sample[0]}, 3, "twice");
}

/* A name of 100 MB is the cheapest way to a header above the format's limit. */
static void refuses_a_header_that_no_reader_takes(void **state)
{
    (void)state;
    char *name = malloc(SD_SAFETENSORS_MAX_HEADER + 1);
    assert_non_null(name);
    memset(name, 'n', SD_SAFETENSORS_MAX_HEADER);
    name[SD_SAFETENSORS_MAX_HEADER] = '\0';
    sd_error err = {0};
    sd_assert_fails(sd_safetensors_write(path, &(sd_tensor_source){name, SD_DTYPE_U8, 1, {1}, "x"}, 1, &err),
                    SD_ERR_LIMIT, &err, "above the format's limit");
    assert_int_equal(entries(), 0);
    free(name);
}

static void assert_old_file_is_whole(void)
{
    sd_error err = {0};
    sd_checkpoint *c;
    sd_assert_ok(sd_checkpoint_open(&c, dir, false, &err), &err);
    assert_same(c, sample, N_SAMPLE);
    sd_checkpoint_close(c);
    assert_int_equal(entries(), 1);
}

/* A full disk is met by the last flush (a small file) or by a write (a large one). The temporary file's name is made to
 * lead to /dev/full. */
static void a_full_disk_is_an_error_and_leaves_nothing(void **state)
{
    (void)state;
    sd_error err = {0};
    sd_assert_ok(sd_safetensors_write(path, sample, N_SAMPLE, &err), &err);
    char temporary[4096];
    (void)snprintf(temporary, sizeof temporary, "%s.tmp.%ld", path, (long)getpid());
    enum { LARGE = 1 << 20 };
    static unsigned char data[LARGE];
    const sd_tensor_source large = {"w", SD_DTYPE_U8, 1, {LARGE}, data};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(symlink("/dev/full", temporary), 0);
        err = (sd_error){0};
        int rc = i ? sd_safetensors_write(path, &large, 1, &err) : sd_safetensors_write(path, sample, 1, &err);
        sd_assert_fails(rc, SD_ERR_IO, &err, strerror(ENOSPC));
        assert_old_file_is_whole();
    }
}

/* The same with a file that ends somewhere inside: a limit on the file's size. */
static void a_write_that_stops_half_way_is_an_error(void **state)
{
    (void)state;
    sd_error err = {0};
    sd_assert_ok(sd_safetensors_write(path, sample, N_SAMPLE, &err), &err);
    enum { SIZE = 64 << 10 };
    static unsigned char data[SIZE];
    const sd_tensor_source source = {"w", SD_DTYPE_U8, 1, {SIZE}, data};
    struct rlimit old, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    for (rlim_t limit = 0; limit < SIZE; limit += 5000) {
        small = old;
        small.rlim_cur = limit;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        err = (sd_error){0};
        int rc = sd_safetensors_write(path, &source, 1, &err);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
        sd_assert_fails(rc, SD_ERR_IO, &err, strerror(EFBIG));
        assert_old_file_is_whole();
    }
    (void)signal(SIGXFSZ, handler);
}

static void names_the_place_that_cannot_be_written(void **state)
{
    (void)state;
    sd_error err = {0};
    sd_assert_fails(sd_safetensors_write("/nonexistent/m.safetensors", sample, N_SAMPLE, &err), SD_ERR_IO, &err,
                    "/nonexistent/m.safetensors");
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    sd_error err;
    long n = 0, tried;
    do {
        err = (sd_error){0};
        sd_alloc_fail_at(++n);
        int rc = sd_safetensors_write(path, sample, N_SAMPLE, &err);
        tried = sd_alloc_count();
        sd_alloc_fail_at(0);
        if (tried > n) { /* the last allocation is for syncing the directory, when the file is already in place */
            sd_assert_fails(rc, SD_ERR_MEMORY, &err, "memory");
            assert_int_equal(entries(), 0);
        } else if (rc == SD_OK) {
            assert_old_file_is_whole();
            assert_int_equal(unlink(path), 0);
        }
    } while (tried >= n);
    assert_true(n > 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_written_is_read_back, setup, teardown),
        cmocka_unit_test_setup_teardown(random_tensors_survive, setup, teardown),
        cmocka_unit_test_setup_teardown(refuses_what_no_file_can_hold, setup, teardown),
        cmocka_unit_test_setup_teardown(refuses_a_header_that_no_reader_takes, setup, teardown),
        cmocka_unit_test_setup_teardown(a_full_disk_is_an_error_and_leaves_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(a_write_that_stops_half_way_is_an_error, setup, teardown),
        cmocka_unit_test(names_the_place_that_cannot_be_written),
        cmocka_unit_test_setup_teardown(every_allocation_may_fail, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
