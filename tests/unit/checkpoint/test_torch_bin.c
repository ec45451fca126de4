/* SPDX-License-Identifier: MIT */
#include <stdio.h>

#include "src/base/file.h"
#include "tests/unit/checkpoint/builders.h"

/* ---- files that torch wrote, against the same tensors as the safetensors library wrote them ---- */

static void open_expected(sd_file *file, sd_tensor_list *list, const char *fixture)
{
    char path[256];
    (void)snprintf(path, sizeof path, "tests/fixtures/%s/expected.safetensors", fixture);
    sd_error err = {0};
    sd_assert_ok(sd_file_open(file, path, false, &err), &err);
    sd_assert_ok(sd_safetensors_read(list, file->data, file->size, fixture, &err), &err);
    sd_assert_ok(sd_tensor_list_sort(list, &err), &err);
}

static void equals_expected(const char *fixture, const char *format)
{
    sd_file file;
    sd_tensor_list want = {0};
    open_expected(&file, &want, fixture);
    for (int no_mmap = 0; no_mmap < 2; no_mmap++) {
        char dir[256];
        (void)snprintf(dir, sizeof dir, "tests/fixtures/%s", fixture);
        sd_checkpoint *c;
        sd_error err = {0};
        sd_assert_ok(sd_checkpoint_open(&c, dir, no_mmap, &err), &err);
        assert_string_equal(sd_checkpoint_format(c), format);
        assert_int_equal(sd_checkpoint_count(c), want.n);
        for (size_t i = 0; i < want.n; i++) {
            const sd_tensor *a = sd_checkpoint_at(c, i), *b = &want.entries[i].tensor;
            assert_string_equal(a->name, b->name);
            assert_ptr_equal(sd_checkpoint_find(c, b->name), a);
            assert_int_equal(a->dtype, b->dtype);
            assert_int_equal(a->rank, b->rank);
            assert_memory_equal(a->shape, b->shape, (size_t)b->rank * sizeof *b->shape);
            assert_int_equal(a->n_elements, b->n_elements);
            if (memcmp(a->data, b->data, (size_t)b->n_elements * sd_dtype_size(b->dtype)) != 0) {
                fail_msg("%s: tensor \"%s\" has other bytes than expected", fixture, b->name);
            }
        }
        sd_checkpoint_close(c);
    }
    sd_tensor_list_free(&want);
    sd_file_close(&file);
}

static void reads_what_torch_writes(void **state)
{
    (void)state;
    equals_expected("bin-protocol2", "PyTorch .bin");
    equals_expected("bin-protocol4", "PyTorch .bin");
    equals_expected("bin-protocol5", "PyTorch .bin");
    equals_expected("bin-module", "PyTorch .bin");
    equals_expected("bin-sharded", "PyTorch .bin, 2 shards");
}

static void refuses_fixture(const char *fixture, const char *part)
{
    char dir[256];
    (void)snprintf(dir, sizeof dir, "tests/fixtures/%s", fixture);
    sd_checkpoint *c;
    sd_error err = {0};
    sd_assert_fails(sd_checkpoint_open(&c, dir, false, &err), SD_ERR_UNSUPPORTED, &err, part);
    assert_non_null(strstr(err.message, "pytorch_model.bin"));
    assert_null(c);
}

static void refuses_the_rest_with_advice(void **state)
{
    (void)state;
    refuses_fixture("bin-legacy", "save it as safetensors");
    refuses_fixture("bin-script", "convert the model to safetensors");
    refuses_fixture("bin-object", "\"torch.nn.modules.linear.Linear\"");
    refuses_fixture("bin-nested", "under \"model\"");
    refuses_fixture("bin-expanded", ".contiguous()");
}

/* ---- views of a storage of 24 bytes, 0, 1, 2, ... ---- */

static const struct {
    const char *what;
    view v;
    int code; /* SD_OK: it loads, in place or, if `part` says "copy", as a copy, and its first byte is `first` */
    unsigned char first;
    const char *part;
} views[] = {
    {"all of it", {"ByteStorage", "0", 24, 0, 2, {4, 6}, {6, 1}}, 0, 0, 0},
    {"the end of it", {"ByteStorage", "0", 24, 20, 1, {4}, {1}}, 0, 20, 0},
    {"a scalar", {"ByteStorage", "0", 24, 23, 0, {0}, {0}}, 0, 23, 0},
    {"a column", {"ByteStorage", "0", 24, 2, 1, {4}, {6}}, 0, 2, "copy"},
    {"transposed, with an offset", {"ByteStorage", "0", 24, 1, 2, {2, 3}, {1, 6}}, 0, 1, "copy"},
    {"eight dimensions",
     {"ByteStorage", "0", 24, 0, 8, {2, 1, 3, 1, 2, 1, 2, 1}, {1, 9, 8, 9, 4, 9, 2, 9}}, 0, 0, "copy"},
    {"absurd strides of single elements",
     {"ByteStorage", "0", 24, 3, 3, {1, 2, 1}, {INT64_MAX, 2, INT64_MAX}}, 0, 3, "copy"},
    {"less than the member holds", {"ByteStorage", "0", 5, 0, 1, {5}, {1}}, 0, 0, 0},
    {"nothing", {"ByteStorage", "0", 24, 24, 2, {0, 5}, {INT64_MAX, INT64_MAX}}, 0, 0, 0},
    {"a row whose one-row stride is odd", {"DoubleStorage", "0", 3, 0, 2, {1, 3}, {1, 1}}, 0, 0, 0},
    {"storage larger than the member", {"ByteStorage", "0", 25, 0, 1, {1}, {1}}, SD_ERR_FORMAT, 0, "has 24 bytes"},
    {"storage of wider elements", {"FloatStorage", "0", 7, 0, 1, {1}, {1}}, SD_ERR_FORMAT, 0, "7 elements of F32"},
    {"storage whose bytes wrap around",
     {"DoubleStorage", "0", INT64_C(1) << 61, 0, 1, {1}, {1}},
     SD_ERR_FORMAT,
     0,
     "has 24 bytes"},
    {"storage of 2^63-1", {"ByteStorage", "0", INT64_MAX, 0, 1, {1}, {1}}, SD_ERR_FORMAT, 0, "has 24 bytes"},
    {"no such storage", {"ByteStorage", "1", 24, 0, 1, {1}, {1}}, SD_ERR_FORMAT, 0, "storage \"1\" is not in the file"},
    {"storage without a key", {"ByteStorage", "", 24, 0, 1, {1}, {1}}, SD_ERR_FORMAT, 0, "is not in the file"},
    {"storage that is a way out",
     {"ByteStorage", "../data.pkl", 24, 0, 1, {1}, {1}},
     SD_ERR_FORMAT,
     0,
     "not in the file"},
    {"one too far", {"ByteStorage", "0", 24, 1, 1, {24}, {1}}, SD_ERR_FORMAT, 0, "reach beyond"},
    {"offset at the end", {"ByteStorage", "0", 24, 24, 1, {1}, {1}}, SD_ERR_FORMAT, 0, "reach beyond"},
    {"scalar at the end", {"ByteStorage", "0", 24, 24, 0, {0}, {0}}, SD_ERR_FORMAT, 0, "reach beyond"},
    {"nothing, beyond the end", {"ByteStorage", "0", 24, 25, 1, {0}, {1}}, SD_ERR_FORMAT, 0, "reach beyond"},
    {"offset of 2^63-1", {"ByteStorage", "0", 24, INT64_MAX, 1, {1}, {1}}, SD_ERR_FORMAT, 0, "reach beyond"},
    {"offset that wraps around", {"ByteStorage", "0", 24, INT64_MAX, 1, {3}, {1}}, SD_ERR_FORMAT, 0, "reach beyond"},
    {"stride too large", {"ByteStorage", "0", 24, 0, 2, {4, 6}, {7, 1}}, SD_ERR_FORMAT, 0, "reach beyond"},
    {"stride that wraps around", {"ByteStorage", "0", 24, 0, 1, {3}, {INT64_MAX}}, SD_ERR_FORMAT, 0, "reach beyond"},
    {"strides that wrap around together",
     {"ByteStorage", "0", 24, 0, 2, {2, 2}, {INT64_MAX, INT64_MAX}},
     SD_ERR_FORMAT,
     0,
     "reach beyond"},
    {"shape that wraps around", {"ByteStorage", "0", 24, 0, 2, {INT64_MAX, 3}, {0, 0}}, SD_ERR_FORMAT, 0, "63 bits"},
    {"expanded", {"ByteStorage", "0", 24, 0, 2, {1000, 1000}, {0, 0}}, SD_ERR_UNSUPPORTED, 0, ".contiguous()"},
    {"expanded to 2^62",
     {"ByteStorage", "0", 24, 0, 1, {INT64_C(1) << 62}, {0}},
     SD_ERR_UNSUPPORTED,
     0,
     ".contiguous()"},
    {"overlapping windows", {"ByteStorage", "0", 24, 0, 2, {20, 5}, {1, 1}}, SD_ERR_UNSUPPORTED, 0, ".contiguous()"},
};

/* Element by element, from the definition of a strided view. */
static void check_elements(const sd_tensor *t, const view *v)
{
    size_t size = sd_dtype_size(t->dtype);
    for (int64_t i = 0; i < t->n_elements; i++) {
        int64_t at = v->offset, rest = i;
        for (int d = v->rank; d-- > 0;) {
            int64_t index = rest % v->shape[d];
            rest /= v->shape[d];
            at += index ? index * v->stride[d] : 0;
        }
        const unsigned char *element = (const unsigned char *)t->data + (size_t)i * size;
        for (size_t b = 0; b < size; b++) {
            assert_int_equal(element[b], (size_t)at * size + b);
        }
    }
}

static void views_lie_inside_their_storages(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof views / sizeof *views; i++) {
        sd_buf pickle = {0};
        zip_builder zip = {0};
        make_pickle(&pickle, "w", &views[i].v);
        make_bin(&zip, &pickle, 24);
        if (views[i].code != SD_OK) {
            assert_refused(sd_torch_bin_read, &zip.bytes, views[i].what, views[i].code, views[i].part);
            sd_error err;
            (void)run_reader(sd_torch_bin_read, zip.bytes.data, zip.bytes.len, &err);
            assert_non_null(strstr(err.message, "tensor \"w\""));
        } else {
            assert_read(sd_torch_bin_read, &zip.bytes, views[i].what);
            sd_tensor_list list = {0};
            sd_error err = {0};
            sd_assert_ok(sd_torch_bin_read(&list, (unsigned char *)zip.bytes.data, zip.bytes.len, "the file", &err),
                         &err);
            const sd_tensor *t = &list.entries[0].tensor;
            assert_true((list.entries[0].copy != NULL) == (views[i].part != NULL)); /* weights stay in the map */
            assert_true(t->n_elements == 0 || *(const unsigned char *)t->data == views[i].first);
            check_elements(t, &views[i].v);
            sd_tensor_list_free(&list);
        }
        zip_free(&zip);
        sd_buf_free(&pickle);
    }
}

/* Many transposed views of one storage must not multiply it. */
static void copies_never_outgrow_the_file(void **state)
{
    (void)state;
    enum { N = 200, SIDE = 60 };
    const view transposed = {"ByteStorage", "0", SIDE * SIDE, 0, 2, {SIDE, SIDE}, {1, SIDE}};
    sd_buf pickle = {0};
    zip_builder zip = {0};
    sd_buf_add(&pickle, "\x80\2}(", 4);
    op_string(&pickle, "w");
    op_tensor(&pickle, &transposed);
    sd_buf_add(&pickle, "q\0", 2);
    for (int i = 0; i < N; i++) {
        char name[24];
        (void)snprintf(name, sizeof name, "w%d", i);
        op_string(&pickle, name);
        sd_buf_add(&pickle, "h\0", 2);
    }
    sd_buf_add(&pickle, "u.", 2);
    make_bin(&zip, &pickle, SIDE * SIDE);
    assert_refused(sd_torch_bin_read, &zip.bytes, "200 views", SD_ERR_UNSUPPORTED, ".contiguous()");
    zip_free(&zip);
    sd_buf_free(&pickle);
}

/* ---- the archive around the pickle ---- */

typedef struct member {
    const char *name, *text; /* text NULL: the good pickle */
    size_t len;
} member;

static const view plain = {"ByteStorage", "0", 4, 0, 1, {4}, {1}};

static const struct {
    const char *what;
    member members[5];
    int code;
    const char *part;
} archives[] = {
    {"the least", {{"m/data.pkl", 0, 0}, {"m/data/0", "abcd", 4}}, 0, 0},
    {"any top folder", {{"a b\xC3\xA9.bin/data.pkl", 0, 0}, {"a b\xC3\xA9.bin/data/0", "abcd", 4}}, 0, 0},
    {"an empty top folder", {{"/data.pkl", 0, 0}, {"/data/0", "abcd", 4}}, 0, 0},
    {"storage before the pickle", {{"m/data/0", "abcd", 4}, {"m/data.pkl", 0, 0}}, 0, 0},
    {"members that newer versions add",
     {{"m/data.pkl", 0, 0},
      {"m/data/0", "abcd", 4},
      {"m/byteorder", "little", 6},
      {"m/version", "3\n", 2},
      {"m/.data/serialization_id", "1", 1}},
     0,
     0},
    {"a deeper data.pkl", {{"m/data.pkl", 0, 0}, {"m/data/0", "abcd", 4}, {"m/x/data.pkl", "", 0}}, 0, 0},
    {"no data.pkl", {{"m/data/0", "abcd", 4}}, SD_ERR_FORMAT, "data.pkl"},
    {"no top folder", {{"data.pkl", 0, 0}, {"data/0", "abcd", 4}}, SD_ERR_FORMAT, "data.pkl"},
    {"only a deeper data.pkl", {{"m/x/data.pkl", 0, 0}, {"m/x/data/0", "abcd", 4}}, SD_ERR_FORMAT, "data.pkl"},
    {"two top folders", {{"m/data.pkl", 0, 0}, {"n/data.pkl", 0, 0}}, SD_ERR_FORMAT, "two data.pkl"},
    {"storage in another folder", {{"m/data.pkl", 0, 0}, {"n/data/0", "abcd", 4}}, SD_ERR_FORMAT, "not in the file"},
    {"big-endian",
     {{"m/data.pkl", 0, 0}, {"m/data/0", "abcd", 4}, {"m/byteorder", "big", 3}},
     SD_ERR_UNSUPPORTED,
     "\"big\""},
    {"no byte order in byteorder",
     {{"m/data.pkl", 0, 0}, {"m/data/0", "abcd", 4}, {"m/byteorder", "", 0}},
     SD_ERR_UNSUPPORTED,
     "byte order"},
    {"TorchScript", {{"m/data.pkl", 0, 0}, {"m/constants.pkl", "", 0}}, SD_ERR_UNSUPPORTED, "TorchScript"},
    {"an empty pickle", {{"m/data.pkl", "", 0}}, SD_ERR_UNSUPPORTED, "pickle"},
    {"JSON instead of a pickle", {{"m/data.pkl", "{}", 2}}, SD_ERR_UNSUPPORTED, "pickle"},
    {"nothing", {{0}}, SD_ERR_FORMAT, "does not begin like a ZIP"},
};

static void archives_are_what_torch_makes(void **state)
{
    (void)state;
    sd_buf pickle = {0};
    make_pickle(&pickle, "w", &plain);
    for (size_t i = 0; i < sizeof archives / sizeof *archives; i++) {
        zip_builder zip = {0};
        for (const member *m = archives[i].members; m->name; m++) {
            zip_add(&zip, m->name, m->text ? m->text : pickle.data, m->text ? m->len : pickle.len, 0);
        }
        zip_finish(&zip, false);
        if (archives[i].code == SD_OK) {
            assert_read(sd_torch_bin_read, &zip.bytes, archives[i].what);
        } else {
            assert_refused(sd_torch_bin_read, &zip.bytes, archives[i].what, archives[i].code, archives[i].part);
        }
        zip_free(&zip);
    }
    sd_buf_free(&pickle);
}

static void refuses_compressed_members(void **state)
{
    (void)state;
    sd_buf pickle = {0};
    make_pickle(&pickle, "w", &plain);
    for (int which = 0; which < 2; which++) {
        zip_builder zip = {0};
        zip_add(&zip, "m/data.pkl", pickle.data, pickle.len, 0);
        size_t first = zip.last_entry;
        zip_add(&zip, "m/data/0", "abcd", 4, 0);
        patch_number(&zip.directory, (which ? zip.last_entry : first) + 10, 8, 2);
        zip_finish(&zip, false);
        assert_refused(sd_torch_bin_read, &zip.bytes, "compressed", SD_ERR_UNSUPPORTED,
                       which ? "\"m/data/0\" is compressed" : "\"m/data.pkl\" is compressed");
        zip_free(&zip);
    }
    sd_buf_free(&pickle);
}

static void refuses_what_is_no_archive(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int code;
        const char *part;
    } files[] = {
        {"", SD_ERR_FORMAT, "is empty"},
        {"P", SD_ERR_FORMAT, "does not begin like a ZIP"},
        {"<!DOCTYPE html>", SD_ERR_FORMAT, "does not begin like a ZIP"},
        {"PK\3\4", SD_ERR_FORMAT, "truncated"},
        {"\x80\2\x8A\x0A\x6C\xFC\x9C\x46\xF9\x20\x6A\xA8\x50\x19.", SD_ERR_UNSUPPORTED, "before 1.6"},
        {"\x80\2}q", SD_ERR_FORMAT, "does not begin like a ZIP"},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        sd_buf file = {0};
        sd_buf_add_str(&file, files[i].text);
        assert_refused(sd_torch_bin_read, &file, files[i].text, files[i].code, files[i].part);
        sd_buf_free(&file);
    }
}

static void names_a_tensor_that_is_there_twice(void **state)
{
    (void)state;
    sd_buf pickle = {0};
    zip_builder zip = {0};
    sd_buf_add(&pickle, "\x80\2}(", 4);
    for (int i = 0; i < 2; i++) {
        op_string(&pickle, "w");
        op_tensor(&pickle, &plain);
    }
    sd_buf_add(&pickle, "u.", 2);
    make_bin(&zip, &pickle, 4);
    assert_refused(sd_torch_bin_read, &zip.bytes, "twice", SD_ERR_FORMAT, "tensor \"w\" is there twice");
    zip_free(&zip);
    sd_buf_free(&pickle);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_torch_writes),
        cmocka_unit_test(refuses_the_rest_with_advice),
        cmocka_unit_test(views_lie_inside_their_storages),
        cmocka_unit_test(copies_never_outgrow_the_file),
        cmocka_unit_test(archives_are_what_torch_makes),
        cmocka_unit_test(refuses_compressed_members),
        cmocka_unit_test(refuses_what_is_no_archive),
        cmocka_unit_test(names_a_tensor_that_is_there_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
