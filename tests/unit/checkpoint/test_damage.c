/* SPDX-License-Identifier: MIT
 *
 * Good files, damaged: cut at every length, every bit flipped, random bytes changed. Whatever comes of it, the reader
 * answers with a checkpoint that can be read to the last byte or with an error; under AddressSanitizer a step outside
 * shows. */
#include <stdio.h>

#include "src/base/file.h"
#include "src/base/rng.h"
#include "tests/unit/checkpoint/builders.h"

static int read_index(sd_tensor_list *list, const unsigned char *bytes, size_t size, const char *path, sd_error *err)
{
    (void)list;
    sd_shard_index index;
    int rc = sd_shard_index_parse(&index, (const char *)bytes, size, path, err);
    if (rc == SD_OK) {
        for (size_t i = 0; i < index.n_shards; i++) {
            assert_true(sd_path_is_contained(index.shards[i]));
        }
        sd_shard_index_clear(&index);
    }
    return rc;
}

static void make_sample_safetensors(sd_buf *out)
{
    make_safetensors(out,
                     "{\"__metadata__\":{\"format\":\"pt\"},"
                     "\"a\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]},"
                     "\"b\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[16,22]}} ",
                     22);
}

static void make_sample_bin(sd_buf *out)
{
    sd_buf pickle = {0};
    zip_builder zip = {.wide = true};
    sd_buf_add(&pickle, "\x80\2}(", 4);
    op_string(&pickle, "flat");
    op_tensor(&pickle, &(view){"FloatStorage", "0", 6, 2, 2, {2, 2}, {2, 1}});
    op_string(&pickle, "transposed");
    op_tensor(&pickle, &(view){"FloatStorage", "0", 6, 0, 2, {3, 2}, {1, 3}});
    sd_buf_add(&pickle, "u.", 2);
    make_bin(&zip, &pickle, 24);
    sd_buf_add(out, zip.bytes.data, zip.bytes.len);
    zip_free(&zip);
    sd_buf_free(&pickle);
}

static void make_sample_index(sd_buf *out)
{
    sd_buf_add_str(
        out,
        "{\"metadata\":{\"total_size\":12},\"weight_map\":{\"a\":\"m-1.bin\",\"b\":\"m-2.bin\",\"c\":\"m-1.bin\"}}");
}

static void read_fixture(sd_buf *out)
{
    sd_file file;
    sd_error err = {0};
    sd_assert_ok(sd_file_open(&file, "tests/fixtures/bin-module/pytorch_model.bin", false, &err), &err);
    sd_buf_add(out, file.data, file.size);
    sd_file_close(&file);
}

static const struct form {
    const char *name;
    sd_reader *read;
    void (*make)(sd_buf *out);
} forms[] = {
    {"safetensors", sd_safetensors_read, make_sample_safetensors},
    {"bin", sd_torch_bin_read, make_sample_bin},
    {"bin by torch", sd_torch_bin_read, read_fixture},
    {"index", read_index, make_sample_index},
};
enum { N_FORMS = sizeof forms / sizeof *forms };

/* Runs the reader; its answer must make sense. */
static int answer(const struct form *form, const sd_buf *file, size_t n)
{
    sd_error err;
    int rc = run_reader(form->read, file->data, n, &err);
    if (rc == SD_OK) {
        assert_int_equal(err.code, SD_OK);
    } else {
        assert_int_equal(rc, err.code);
        assert_true(rc == SD_ERR_FORMAT || rc == SD_ERR_UNSUPPORTED || rc == SD_ERR_LIMIT);
        assert_non_null(strstr(err.message, "the file"));
    }
    return rc;
}

static void cut_at_every_length(void **state)
{
    (void)state;
    for (size_t f = 0; f < N_FORMS; f++) {
        sd_buf file = {0};
        forms[f].make(&file);
        assert_int_equal(answer(&forms[f], &file, file.len), SD_OK);
        for (size_t n = 0; n < file.len; n++) {
            if (answer(&forms[f], &file, n) == SD_OK) {
                fail_msg("%s: cut from %zu to %zu bytes and still accepted", forms[f].name, file.len, n);
            }
        }
        sd_buf_free(&file);
    }
}

static void every_bit_flipped(void **state)
{
    (void)state;
    for (size_t f = 0; f < N_FORMS; f++) {
        sd_buf file = {0};
        forms[f].make(&file);
        size_t refused = 0;
        for (size_t bit = 0; bit < 8 * file.len; bit++) {
            file.data[bit / 8] = (char)(file.data[bit / 8] ^ 1 << bit % 8);
            refused += answer(&forms[f], &file, file.len) != SD_OK;
            file.data[bit / 8] = (char)(file.data[bit / 8] ^ 1 << bit % 8);
        }
        print_message("%s: %zu of %zu flipped bits are refused\n", forms[f].name, refused, 8 * file.len);
        assert_true(refused > file.len); /* well over an eighth; flips in data, padding and checksums are not seen */
        assert_int_equal(answer(&forms[f], &file, file.len), SD_OK);
        sd_buf_free(&file);
    }
}

static void random_damage(void **state)
{
    (void)state;
    enum { ROUNDS = 4000, MOST = 6 };
    static const uint64_t favourites[] = {0,      1,         0x7F,       0x80,      0xFF,      0x7FFF,
                                          0xFFFF, INT32_MAX, UINT32_MAX, INT64_MAX, UINT64_MAX};
    sd_rng rng;
    sd_rng_seed(&rng, 2);
    for (size_t f = 0; f < N_FORMS; f++) {
        for (int round = 0; round < ROUNDS; round++) {
            sd_buf file = {0};
            forms[f].make(&file);
            for (uint64_t i = sd_rng_below(&rng, MOST); i-- > 0;) {
                size_t width = (size_t)1 << sd_rng_below(&rng, 4);
                uint64_t value = sd_rng_below(&rng, 2) ? sd_rng_u64(&rng)
                                                       : favourites[sd_rng_below(&rng, sizeof favourites / 8)];
                patch_number(&file, (size_t)sd_rng_below(&rng, file.len - width + 1), value, width);
            }
            (void)answer(&forms[f], &file, file.len);
            sd_buf_free(&file);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cut_at_every_length),
        cmocka_unit_test(every_bit_flipped),
        cmocka_unit_test(random_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
