/* SPDX-License-Identifier: MIT */
#include "tests/unit/checkpoint/builders.h"

/* ---- files that must load ---- */

static void reads_every_dtype_and_rank(void **state)
{
    (void)state;
    sd_buf file = {0};
    make_safetensors(&file,
                     "{\"__metadata__\":{\"format\":\"pt\",\"n\":\"1\"},"
                     "\"b\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[8,32]},"
                     "\"a\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[0,8]},"
                     "\"c\":{\"dtype\":\"F16\",\"shape\":[1,1,1,1,1,1,1,1],\"data_offsets\":[32,34]},"
                     "\"d\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[34,36]},"
                     "\"e\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[36,44]},"
                     "\"f\":{\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[44,48]},"
                     "\"g\":{\"dtype\":\"I16\",\"shape\":[1],\"data_offsets\":[48,50]},"
                     "\"h\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[50,51]},"
                     "\"i\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[51,52]},"
                     "\"j\":{\"dtype\":\"BOOL\",\"shape\":[1],\"data_offsets\":[52,53]},"
                     "\"k\":{\"dtype\":\"F32\",\"shape\":[3,0,7],\"data_offsets\":[53,53]}}   ",
                     53);
    sd_tensor_list list = {0};
    sd_error err = {0};
    sd_assert_ok(sd_safetensors_read(&list, (unsigned char *)file.data, file.len, "the file", &err), &err);
    assert_int_equal(list.n, 11);
    sd_assert_ok(sd_tensor_list_sort(&list, &err), &err);
    const sd_tensor *b = sd_tensor_list_find(&list, "b");
    assert_non_null(b);
    assert_int_equal(b->dtype, SD_DTYPE_F32);
    assert_int_equal(b->rank, 2);
    assert_int_equal(b->shape[0], 2);
    assert_int_equal(b->shape[1], 3);
    assert_int_equal(b->n_elements, 6);
    assert_int_equal(*(const unsigned char *)b->data, 8);
    assert_string_equal(b->file, "the file");
    const sd_tensor *scalar = sd_tensor_list_find(&list, "a");
    assert_int_equal(scalar->rank, 0);
    assert_int_equal(scalar->n_elements, 1);
    assert_int_equal(sd_tensor_list_find(&list, "c")->rank, 8);
    const sd_tensor *empty = sd_tensor_list_find(&list, "k");
    assert_int_equal(empty->n_elements, 0);
    assert_non_null(empty->data);
    assert_null(sd_tensor_list_find(&list, "z"));
    for (int i = 0; i < SD_DTYPES; i++) {
        sd_dtype dtype;
        assert_true(sd_dtype_from_name(sd_dtype_name((sd_dtype)i), &dtype));
        assert_int_equal(dtype, i);
    }
    sd_tensor_list_free(&list);
    assert_read(sd_safetensors_read, &file, "in an exact block");
    sd_buf_free(&file);
}

static void accepts(const char *what, const char *header, size_t data_size)
{
    sd_buf file = {0};
    make_safetensors(&file, header, data_size);
    assert_read(sd_safetensors_read, &file, what);
    sd_buf_free(&file);
}

static void accepts_what_the_format_allows(void **state)
{
    (void)state;
    accepts("no tensor at all", "{}", 0);
    accepts("only metadata", "{\"__metadata__\":{}}", 0);
    accepts("an empty tensor between two others",
            "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
            "\"b\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[2,2]},"
            "\"c\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,4]}}",
            4);
    accepts("a name in several scripts",
            "{\"\xC3\xA9\xE4\xB8\xAD\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1);
    accepts("an escaped name", "{\"\\u00e9\\n\\\"\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1);
    accepts("a key that a later version may add",
            "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"note\":null}}", 1);
}

/* ---- files that must be refused: one bad thing each ---- */

#define ONE(dtype, shape, offsets) "{\"w\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

static const struct hostile {
    const char *what, *header;
    size_t data_size;
    int code;
    const char *part; /* of the message */
} hostile[] = {
    {"header is an array", "[]", 0, SD_ERR_FORMAT, "\"{\""},
    {"header is a number", "1", 0, SD_ERR_FORMAT, "\"{\""},
    {"header begins with a space", " {}", 0, SD_ERR_FORMAT, "\"{\""},
    {"header is empty", "", 0, SD_ERR_FORMAT, "\"{\""},
    {"header is cut", "{\"w\":{\"dtype\":\"F32\"", 0, SD_ERR_FORMAT, "not valid JSON"},
    {"two values", "{}{}", 0, SD_ERR_FORMAT, "not valid JSON"},
    {"single quotes", "{'w':1}", 0, SD_ERR_FORMAT, "not valid JSON"},
    {"NaN", "{\"w\":NaN}", 0, SD_ERR_FORMAT, "not valid JSON"},
    {"a number beyond a double", "{\"w\":1e999}", 0, SD_ERR_FORMAT, "not valid JSON"},
    {"name that is not UTF-8", "{\"\xFF\":{}}", 0, SD_ERR_FORMAT, "not valid JSON"},
    {"lone surrogate in a name", "{\"\\ud800\":{}}", 0, SD_ERR_FORMAT, "not valid JSON"},
    {"NUL in a name", "{\"a\\u0000b\":{}}", 0, SD_ERR_FORMAT, "not valid JSON"},
    {"same name twice",
     "{\"w\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
     "\"w\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
     2, SD_ERR_FORMAT, "duplicate"},
    {"same name twice, spelt differently",
     "{\"w\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
     "\"\\u0077\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
     2, SD_ERR_FORMAT, "duplicate"},
    {"metadata twice", "{\"__metadata__\":{},\"__metadata__\":{}}", 0, SD_ERR_FORMAT, "duplicate"},
    {"metadata is a string", "{\"__metadata__\":\"x\"}", 0, SD_ERR_FORMAT, "__metadata__"},
    {"metadata is null", "{\"__metadata__\":null}", 0, SD_ERR_FORMAT, "__metadata__"},
    {"tensor is an array", "{\"w\":[]}", 0, SD_ERR_FORMAT, "\"w\": expected an object with dtype"},
    {"tensor is empty", "{\"w\":{}}", 0, SD_ERR_FORMAT, "\"dtype\" is missing"},
    {"no dtype", "{\"w\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1, SD_ERR_FORMAT, "\"dtype\""},
    {"no shape", "{\"w\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, SD_ERR_FORMAT, "\"shape\""},
    {"no offsets", "{\"w\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, SD_ERR_FORMAT, "\"data_offsets\""},
    {"dtype is a number", ONE("32", "[1]", "[0,4]"), 4, SD_ERR_FORMAT, "\"dtype\""},
    {"dtype of another version", ONE("\"F8_E4M3\"", "[1]", "[0,1]"), 1, SD_ERR_UNSUPPORTED, "F8_E4M3"},
    {"dtype in lower case", ONE("\"f32\"", "[1]", "[0,4]"), 4, SD_ERR_UNSUPPORTED, "\"f32\""},
    {"dtype is empty", ONE("\"\"", "[1]", "[0,4]"), 4, SD_ERR_UNSUPPORTED, "\"w\""},
    {"dtype begins like another", ONE("\"F32X\"", "[1]", "[0,4]"), 4, SD_ERR_UNSUPPORTED, "F32X"},
    {"shape is a number", ONE("\"F32\"", "1", "[0,4]"), 4, SD_ERR_FORMAT, "\"shape\""},
    {"shape holds a string", ONE("\"F32\"", "[\"1\"]", "[0,4]"), 4, SD_ERR_FORMAT, "\"shape\""},
    {"shape holds null", ONE("\"F32\"", "[null]", "[0,4]"), 4, SD_ERR_FORMAT, "dimension 0 is null"},
    {"negative dimension", ONE("\"F32\"", "[-1]", "[0,4]"), 4, SD_ERR_FORMAT, "dimension 0"},
    {"two negative dimensions", ONE("\"F32\"", "[-1,-1]", "[0,4]"), 4, SD_ERR_FORMAT, "dimension 0"},
    {"fractional dimension", ONE("\"F32\"", "[1,0.5]", "[0,4]"), 4, SD_ERR_FORMAT, "dimension 1"},
    {"dimension beyond 2^53", ONE("\"F32\"", "[9007199254740994]", "[0,4]"), 4, SD_ERR_FORMAT, "dimension 0"},
    {"dimension beyond 64 bits", ONE("\"F32\"", "[18446744073709551617]", "[0,4]"), 4, SD_ERR_FORMAT, "dimension 0"},
    {"product wraps around to 1", ONE("\"F32\"", "[4294967296,4294967296,1]", "[0,4]"), 4, SD_ERR_FORMAT, "63 bits"},
    {"product wraps around behind a zero", ONE("\"F32\"", "[0,4294967296,4294967296]", "[0,0]"), 0, SD_ERR_FORMAT,
     "63 bits"},
    {"bytes wrap around to 0", ONE("\"F64\"", "[4503599627370496,512]", "[0,0]"), 0, SD_ERR_FORMAT, "\"w\""},
    {"nine dimensions", ONE("\"U8\"", "[1,1,1,1,1,1,1,1,1]", "[0,1]"), 1, SD_ERR_UNSUPPORTED, "9 dimensions"},
    {"shape too large for the bytes", ONE("\"F32\"", "[2]", "[0,4]"), 4, SD_ERR_FORMAT, "2 elements of F32"},
    {"shape too small for the bytes", ONE("\"F32\"", "[1]", "[0,8]"), 8, SD_ERR_FORMAT, "1 elements of F32"},
    {"zero dimension with bytes", ONE("\"F32\"", "[0]", "[0,4]"), 4, SD_ERR_FORMAT, "0 elements"},
    {"offsets are an object", ONE("\"F32\"", "[1]", "{}"), 4, SD_ERR_FORMAT, "\"data_offsets\""},
    {"one offset", ONE("\"F32\"", "[1]", "[4]"), 4, SD_ERR_FORMAT, "\"data_offsets\""},
    {"three offsets", ONE("\"F32\"", "[1]", "[0,4,4]"), 4, SD_ERR_FORMAT, "\"data_offsets\""},
    {"offsets reversed", ONE("\"F32\"", "[1]", "[4,0]"), 4, SD_ERR_FORMAT, "\"data_offsets\""},
    {"negative offset", ONE("\"F32\"", "[1]", "[-4,0]"), 4, SD_ERR_FORMAT, "\"data_offsets\""},
    {"fractional offset", ONE("\"F32\"", "[1]", "[0,4.5]"), 8, SD_ERR_FORMAT, "\"data_offsets\""},
    {"offset beyond 64 bits", ONE("\"F32\"", "[1]", "[0,18446744073709551620]"), 4, SD_ERR_FORMAT, "\"data_offsets\""},
    {"offset is a string", ONE("\"F32\"", "[1]", "[\"0\",4]"), 4, SD_ERR_FORMAT, "\"data_offsets\""},
    {"data cut short", ONE("\"F32\"", "[2]", "[0,8]"), 7, SD_ERR_FORMAT, "tensor \"w\": its data ends at byte 8"},
    {"no data", ONE("\"F32\"", "[2]", "[0,8]"), 0, SD_ERR_FORMAT, "truncated"},
    {"offsets far outside", ONE("\"F32\"", "[1]", "[9007199254740988,9007199254740992]"), 4, SD_ERR_FORMAT,
     "truncated"},
    {"bytes behind the last tensor", ONE("\"F32\"", "[1]", "[0,4]"), 5, SD_ERR_FORMAT, "1 bytes after the last tensor"},
    {"data without a tensor", "{}", 1, SD_ERR_FORMAT, "1 bytes after the last tensor"},
    {"hole at the start", ONE("\"F32\"", "[1]", "[4,8]"), 8, SD_ERR_FORMAT, "leaving a hole"},
    {"hole in the middle",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
     "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[2,3]}}",
     3, SD_ERR_FORMAT, "tensor \"b\""},
    {"overlap",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
     "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}",
     3, SD_ERR_FORMAT, "inside another tensor"},
    {"two tensors in the same place",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
     "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}",
     2, SD_ERR_FORMAT, "inside another tensor"},
    {"empty tensor inside another",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
     "\"b\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[1,1]}}",
     2, SD_ERR_FORMAT, "tensor \"b\""},
    {"a name that would move a terminal's cursor",
     "{\"\\u001b[2J\":{\"dtype\":\"X\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, SD_ERR_UNSUPPORTED, "\"?[2J\""},
};
enum { N_HOSTILE = sizeof hostile / sizeof *hostile };

static void refuses_hostile_headers(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_HOSTILE; i++) {
        sd_buf file = {0};
        make_safetensors(&file, hostile[i].header, hostile[i].data_size);
        assert_refused(sd_safetensors_read, &file, hostile[i].what, hostile[i].code, hostile[i].part);
        sd_buf_free(&file);
    }
}

static void refuses_lengths_that_do_not_fit(void **state)
{
    (void)state;
    static const struct {
        uint64_t length;
        const char *part;
    } lengths[] = {
        {0, "\"{\""},          {1, "not valid JSON"}, {3, "only 2 follow"},        {100000000, "only 2 follow"},
        {100000001, "limit"},  {INT32_MAX, "limit"},  {UINT32_MAX, "limit"},       {UINT64_MAX - 7, "limit"},
        {UINT64_MAX, "limit"}, {INT64_MAX, "limit"},  {UINT64_C(1) << 63, "limit"},
    };
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        sd_buf file = {0};
        put_number(&file, lengths[i].length, 8);
        sd_buf_add_str(&file, "{}");
        assert_refused(sd_safetensors_read, &file, "length", SD_ERR_FORMAT, lengths[i].part);
        sd_buf_free(&file);
    }
    sd_buf file = {0};
    for (size_t n = 0; n < 8; n++) {
        assert_refused(sd_safetensors_read, &file, "a file of less than 8 bytes", SD_ERR_FORMAT, "too few");
        put_number(&file, 0, 1);
    }
    assert_refused(sd_safetensors_read, &file, "8 zero bytes", SD_ERR_FORMAT, "\"{\"");
    sd_buf_free(&file);
}

/* Nesting is limited by the parser, not by the stack. */
static void refuses_deep_nesting(void **state)
{
    (void)state;
    enum { DEPTH = 100000 };
    sd_buf header = {0}, file = {0};
    sd_buf_add_str(&header, "{\"w\":");
    for (int i = 0; i < DEPTH; i++) {
        sd_buf_add_str(&header, "[");
    }
    make_safetensors(&file, header.data, 0);
    assert_refused(sd_safetensors_read, &file, "nesting", SD_ERR_FORMAT, "not valid JSON");
    sd_buf_free(&header);
    sd_buf_free(&file);
}

/* What stands at the message's end must not be pushed out by what stands before it. */
static void shortens_long_names(void **state)
{
    (void)state;
    sd_buf header = {0}, file = {0};
    sd_buf_add_str(&header, "{\"");
    for (int i = 0; i < 2000; i++) {
        sd_buf_add_str(&header, "\xC3\xA9");
    }
    sd_buf_add_str(&header, "\":{\"dtype\":\"Q4\",\"shape\":[],\"data_offsets\":[0,1]}}");
    make_safetensors(&file, header.data, 1);
    assert_refused(sd_safetensors_read, &file, "long name", SD_ERR_UNSUPPORTED, "...\": dtype \"Q4\"");
    sd_buf_free(&header);
    sd_buf_free(&file);
}

int main(void)
{
    _Static_assert(N_HOSTILE >= 40, "the list of hostile headers only grows");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_every_dtype_and_rank),
        cmocka_unit_test(accepts_what_the_format_allows),
        cmocka_unit_test(refuses_hostile_headers),
        cmocka_unit_test(refuses_lengths_that_do_not_fit),
        cmocka_unit_test(refuses_deep_nesting),
        cmocka_unit_test(shortens_long_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
