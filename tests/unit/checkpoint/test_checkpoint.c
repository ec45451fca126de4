/* SPDX-License-Identifier: MIT
 *
 * Directories: which files are read, and that shards and their index agree. */
#include <stdio.h>
#include <sys/stat.h>

#include "src/base/file.h"
#include "tests/unit/checkpoint/builders.h"

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
    sd_remove_temp_dir(dir);
    return 0;
}

static void put_file(const char *name, const char *text)
{
    char *path = sd_path_join(dir, name);
    assert_non_null(path);
    sd_write_file(path, text, strlen(text));
    sd_free(path);
}

/* A safetensors file of U8 vectors with the given names (up to NULL), filled with `fill`. */
static void put_tensors(const char *name, const char *const *names, char fill)
{
    char data[4];
    memset(data, fill, sizeof data);
    sd_tensor_source sources[8];
    size_t n = 0;
    for (; names[n]; n++) {
        assert_true(n < 8);
        sources[n] = (sd_tensor_source){names[n], SD_DTYPE_U8, 1, {4}, data};
    }
    char *path = sd_path_join(dir, name);
    sd_error err = {0};
    assert_non_null(path);
    sd_assert_ok(sd_safetensors_write(path, sources, n, &err), &err);
    sd_free(path);
}

static void put_bin(const char *name, const char *tensor)
{
    sd_buf pickle = {0};
    zip_builder zip = {0};
    make_pickle(&pickle, tensor, &(view){"ByteStorage", "0", 4, 0, 1, {4}, {1}});
    make_bin(&zip, &pickle, 4);
    char *path = sd_path_join(dir, name);
    assert_non_null(path);
    sd_write_file(path, zip.bytes.data, zip.bytes.len);
    sd_free(path);
    zip_free(&zip);
    sd_buf_free(&pickle);
}

#define NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})

static sd_checkpoint *open_dir(void)
{
    sd_checkpoint *c;
    sd_error err = {0};
    sd_assert_ok(sd_checkpoint_open(&c, dir, false, &err), &err);
    return c;
}

static void refuses(int code, const char *part)
{
    sd_checkpoint *c = (sd_checkpoint *)dir;
    sd_error err = {0};
    sd_assert_fails(sd_checkpoint_open(&c, dir, false, &err), code, &err, part);
    assert_null(c);
}

/* ---- which files ---- */

static void prefers_safetensors_and_single_files(void **state)
{
    (void)state;
    put_bin("pytorch_model-1.bin", "shard");
    put_file("pytorch_model.bin.index.json", "{\"weight_map\":{\"shard\":\"pytorch_model-1.bin\"}}");
    static const struct {
        const char *file, *tensor, *format;
    } steps[] = {
        {NULL, "shard", "PyTorch .bin, 1 shard"},
        {"pytorch_model.bin", "bin", "PyTorch .bin"},
        {"model.safetensors.index.json", "st-shard", "safetensors, 1 shard"},
        {"model.safetensors", "st", "safetensors"},
    };
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) { /* each is preferred to the ones before */
        if (i == 1) {
            put_bin(steps[i].file, steps[i].tensor);
        } else if (i == 2) {
            put_tensors("model-1.safetensors", NAMES("st-shard"), 1);
            put_file(steps[i].file, "{\"weight_map\":{\"st-shard\":\"model-1.safetensors\"}}");
        } else if (i == 3) {
            put_tensors(steps[i].file, NAMES("st"), 1);
        }
        sd_checkpoint *c = open_dir();
        assert_int_equal(sd_checkpoint_count(c), 1);
        assert_string_equal(sd_checkpoint_at(c, 0)->name, steps[i].tensor);
        assert_string_equal(sd_checkpoint_format(c), steps[i].format);
        sd_checkpoint_close(c);
    }
}

static void says_what_it_looked_for(void **state)
{
    (void)state;
    refuses(SD_ERR_IO,
            "model.safetensors, model.safetensors.index.json, pytorch_model.bin and pytorch_model.bin.index.json");
    put_file("config.json", "{}");
    put_file("model.safetensors.tmp.1", "{}");
    refuses(SD_ERR_IO, "holds no checkpoint");
    char *path = sd_path_join(dir, "model.safetensors");
    assert_int_equal(mkdir(path, 0700), 0); /* a directory of that name is no file */
    sd_free(path);
    refuses(SD_ERR_IO, "holds no checkpoint");
}

static void refuses_paths_that_are_no_directory(void **state)
{
    (void)state;
    put_tensors("model.safetensors", NAMES("w"), 1);
    char *path = sd_path_join(dir, "model.safetensors"), *missing = sd_path_join(dir, "missing");
    sd_checkpoint *c;
    sd_error err = {0};
    sd_assert_fails(sd_checkpoint_open(&c, path, false, &err), SD_ERR_ARG, &err, "name the directory");
    sd_assert_fails(sd_checkpoint_open(&c, missing, false, &err), SD_ERR_IO, &err, "no such directory");
    sd_assert_fails(sd_checkpoint_open(&c, "", false, &err), SD_ERR_IO, &err, "no such directory");
    sd_free(path);
    sd_free(missing);
    assert_int_equal(sd_checkpoint_open(&c, dir, true, NULL), SD_OK); /* err may be NULL */
    sd_checkpoint_close(c);
    sd_checkpoint_close(NULL);
}

static void tells_a_git_lfs_pointer(void **state)
{
    (void)state;
    put_file("model.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n");
    refuses(SD_ERR_FORMAT, "git lfs pull");
}

static void messages_name_the_file(void **state)
{
    (void)state;
    put_file("model.safetensors", "12345678");
    refuses(SD_ERR_FORMAT, "model.safetensors");
    put_file("model.safetensors", "");
    refuses(SD_ERR_FORMAT, "empty or truncated");
}

/* ---- shards ---- */

static const char INDEX[] = "model.safetensors.index.json";

/* Shards one ("a", "c") and two ("b"), and the index of both. */
static void put_good_shards(void)
{
    put_tensors("one.safetensors", NAMES("a", "c"), 1);
    put_tensors("two.safetensors", NAMES("b"), 2);
    put_file(INDEX, "{\"metadata\":{\"total_size\":-7},\"weight_map\":{\"a\":\"one.safetensors\","
                    "\"b\":\"two.safetensors\",\"c\":\"one.safetensors\"}}");
}

static void reads_shards_as_one(void **state)
{
    (void)state;
    put_good_shards();
    for (int no_mmap = 0; no_mmap < 2; no_mmap++) {
        sd_checkpoint *c;
        sd_error err = {0};
        sd_assert_ok(sd_checkpoint_open(&c, dir, no_mmap, &err), &err);
        assert_string_equal(sd_checkpoint_format(c), "safetensors, 2 shards");
        assert_int_equal(sd_checkpoint_count(c), 3);
        static const char *const names[] = {"a", "b", "c"};
        for (size_t i = 0; i < 3; i++) {
            const sd_tensor *t = sd_checkpoint_at(c, i);
            assert_string_equal(t->name, names[i]);
            assert_ptr_equal(sd_checkpoint_find(c, names[i]), t);
            assert_int_equal(*(const char *)t->data, i == 1 ? 2 : 1);
            assert_non_null(strstr(t->file, i == 1 ? "two.safetensors" : "one.safetensors"));
        }
        assert_null(sd_checkpoint_find(c, "d"));
        assert_null(sd_checkpoint_find(c, ""));
        sd_checkpoint_close(c);
    }
}

static void shards_may_lie_in_a_folder(void **state)
{
    (void)state;
    char *path = sd_path_join(dir, "sub");
    assert_int_equal(mkdir(path, 0700), 0);
    sd_free(path);
    put_tensors("sub/one.safetensors", NAMES("a"), 1);
    put_file(INDEX, "{\"weight_map\":{\"a\":\"sub/one.safetensors\"}}");
    sd_checkpoint_close(open_dir());
}

static void refuses_shards_that_disagree_with_the_index(void **state)
{
    (void)state;
    static const struct {
        const char *map;
        int code;
        const char *part;
    } cases[] = {
        {"\"a\":\"one.safetensors\",\"b\":\"two.safetensors\",\"c\":\"one.safetensors\",\"d\":\"three.safetensors\"",
         SD_ERR_IO, "no \"three.safetensors\", one of the 3 shards that model.safetensors.index.json names"},
        {"\"a\":\"one.safetensors\",\"b\":\"two.safetensor\",\"c\":\"one.safetensors\"", SD_ERR_IO,
         "\"two.safetensor\""},
        {"\"a\":\"one.safetensors\",\"b\":\"one.safetensors\",\"c\":\"one.safetensors\"", SD_ERR_FORMAT,
         "puts tensor \"b\" into \"one.safetensors\", which does not hold it"},
        {"\"a\":\"one.safetensors\",\"b\":\"two.safetensors\",\"c\":\"two.safetensors\"", SD_ERR_FORMAT,
         "holds tensor \"c\", which model.safetensors.index.json puts into \"two.safetensors\""},
        {"\"a\":\"one.safetensors\",\"b\":\"two.safetensors\"", SD_ERR_FORMAT,
         "holds tensor \"c\", which model.safetensors.index.json does not list"},
        {"\"a\":\"one.safetensors\",\"b\":\"two.safetensors\",\"c\":\"one.safetensors\",\"d\":\"two.safetensors\"",
         SD_ERR_FORMAT, "puts tensor \"d\" into \"two.safetensors\", which does not hold it"},
        {"\"a\":\"../one.safetensors\"", SD_ERR_FORMAT, "\"../one.safetensors\", which is not inside"},
        {"\"a\":\"sub/../../one.safetensors\"", SD_ERR_FORMAT, "not inside"},
        {"\"a\":\"/etc/passwd\"", SD_ERR_FORMAT, "not inside"},
        {"\"a\":\"\"", SD_ERR_FORMAT, "not inside"},
        {"\"a\":\"..\"", SD_ERR_FORMAT, "not inside"},
        {"\"a\":null", SD_ERR_FORMAT, "tensor \"a\" null"},
        {"\"a\":[\"one.safetensors\"]", SD_ERR_FORMAT, "an array"},
        {"\"a\":\"one.safetensors\",\"a\":\"two.safetensors\"", SD_ERR_FORMAT, "duplicate"},
        {"\"a\":\".\"", SD_ERR_IO, "no \".\""}, /* a directory is no shard */
        {"", SD_ERR_FORMAT, "names no tensor"},
    };
    put_good_shards();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sd_buf index = {0};
        sd_buf_printf(&index, "{\"weight_map\":{%s}}", cases[i].map);
        put_file(INDEX, index.data);
        sd_buf_free(&index);
        refuses(cases[i].code, cases[i].part);
    }
}

static void refuses_what_is_no_index(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"", "not valid JSON"},
        {"{", "not valid JSON"},
        {"[]", "\"weight_map\", found nothing"},
        {"{}", "found nothing"},
        {"null", "found nothing"},
        {"{\"weight_map\":[]}", "found an array"},
        {"{\"weight_map\":{}} x", "not valid JSON"},
        {"{\"weight_map\":\"one.safetensors\"}", "found a string"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put_file(INDEX, cases[i].text);
        refuses(SD_ERR_FORMAT, cases[i].part);
        refuses(SD_ERR_FORMAT, INDEX);
    }
}

static void refuses_a_tensor_in_two_shards(void **state)
{
    (void)state;
    put_good_shards();
    put_tensors("two.safetensors", NAMES("b", "a"), 2);
    refuses(SD_ERR_FORMAT, "holds tensor \"a\", which model.safetensors.index.json puts into \"one.safetensors\"");
}

static void refuses_one_bad_shard_of_many(void **state)
{
    (void)state;
    put_good_shards();
    put_file("two.safetensors", "bad");
    refuses(SD_ERR_FORMAT, "two.safetensors");
    put_file("two.safetensors", "version https://git-lfs.github.com/spec/v1\n");
    refuses(SD_ERR_FORMAT, "git lfs pull");
}

/* ---- memory ---- */

static void *json_malloc(size_t n) { return sd_malloc(n, 1); }

/* Our own allocations: every one that fails is reported as that. With jansson's among them, an error may say something
 * else, because jansson drops a byte of a string that it cannot grow; but nothing may crash or leak. */
static void fail_every_allocation_of(bool jansson)
{
    if (jansson) {
        json_set_alloc_funcs(json_malloc, sd_free);
    }
    long n = 0, tried;
    do {
        n++;
        sd_checkpoint *c;
        sd_error err = {0};
        sd_alloc_fail_at(n);
        int rc = sd_checkpoint_open(&c, dir, n % 2, &err);
        tried = sd_alloc_count();
        sd_alloc_fail_at(0);
        if (rc != SD_OK) {
            assert_null(c);
            assert_int_equal(err.code, rc);
            assert_true(strlen(err.message) > 0);
        }
        sd_checkpoint_close(c);
        assert_true(jansson || rc == (tried >= n ? SD_ERR_MEMORY : SD_OK));
    } while (tried >= n);
    json_set_alloc_funcs(malloc, free);
    assert_true(n > 6);
}

static void fail_every_allocation(void)
{
    fail_every_allocation_of(false);
    fail_every_allocation_of(true);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    put_bin("pytorch_model-1.bin", "a");
    put_bin("pytorch_model-2.bin", "b");
    put_file("pytorch_model.bin.index.json",
             "{\"weight_map\":{\"a\":\"pytorch_model-1.bin\",\"b\":\"pytorch_model-2.bin\"}}");
    fail_every_allocation();
    put_bin("pytorch_model.bin", "a");
    fail_every_allocation();
    put_good_shards();
    fail_every_allocation();
    put_tensors("model.safetensors", NAMES("a", "b", "c"), 1);
    fail_every_allocation();
}

/* Copies of views are allocations too. */
static void every_allocation_for_views_may_fail(void **state)
{
    (void)state;
    dir = (char *)(uintptr_t) "tests/fixtures/bin-protocol4";
    fail_every_allocation();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(prefers_safetensors_and_single_files, setup, teardown),
        cmocka_unit_test_setup_teardown(says_what_it_looked_for, setup, teardown),
        cmocka_unit_test_setup_teardown(refuses_paths_that_are_no_directory, setup, teardown),
        cmocka_unit_test_setup_teardown(tells_a_git_lfs_pointer, setup, teardown),
        cmocka_unit_test_setup_teardown(messages_name_the_file, setup, teardown),
        cmocka_unit_test_setup_teardown(reads_shards_as_one, setup, teardown),
        cmocka_unit_test_setup_teardown(shards_may_lie_in_a_folder, setup, teardown),
        cmocka_unit_test_setup_teardown(refuses_shards_that_disagree_with_the_index, setup, teardown),
        cmocka_unit_test_setup_teardown(refuses_what_is_no_index, setup, teardown),
        cmocka_unit_test_setup_teardown(refuses_a_tensor_in_two_shards, setup, teardown),
        cmocka_unit_test_setup_teardown(refuses_one_bad_shard_of_many, setup, teardown),
        cmocka_unit_test_setup_teardown(every_allocation_may_fail, setup, teardown),
        cmocka_unit_test(every_allocation_for_views_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
