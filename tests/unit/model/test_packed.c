/* SPDX-License-Identifier: MIT
 *
 * Packed weights: what quantize writes is what loading the checkpoint with the same types gives, bit for bit; every
 * field of the file that is not as it should be is refused by name; what fails leaves nothing behind. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/buf.h"
#include "src/base/file.h"
#include "src/model/packed.h"
#include "src/model/packed_file.h"
#include "tests/unit/model/logits.h"

static const char *const companions[] = {"config.json", "vocab.json", "skipdecode.json", NULL};

typedef struct rig { /* two directories inside a temporary one, in[...] a checkpoint and out[...] what is made of it */
    char *dir, in[512], out[512], file[600];
    sd_tiny_model tiny;
} rig;

static rig make_rig(const sd_tiny_options *options)
{
    rig r = {.dir = sd_make_temp_dir()};
    (void)snprintf(r.in, sizeof r.in, "%s/in", r.dir);
    (void)snprintf(r.out, sizeof r.out, "%s/out", r.dir);
    (void)snprintf(r.file, sizeof r.file, "%s/%s", r.out, SD_PACKED_FILE);
    assert_int_equal(mkdir(r.in, 0777), 0);
    sd_tiny_make(&r.tiny, options);
    sd_tiny_write(&r.tiny, r.in);
    return r;
}

static void clear_rig(rig *r)
{
    sd_tiny_clear(&r->tiny);
    sd_remove_temp_dir(r->dir);
}

static sd_quantize_options quick(sd_weight_type weights)
{
    return (sd_quantize_options){.weights = weights, .threads = 2, .overwrite = true, .companions = companions};
}

static sd_quantized quantize(const rig *r, sd_weight_type weights, sd_weight_type head)
{
    sd_quantize_options options = quick(weights);
    options.head = head;
    sd_quantized result;
    sd_error err = {0};
    sd_assert_ok(sd_quantize(r->in, r->out, &options, &result, &err), &err);
    return result;
}

static sd_model *load(const char *dir, const sd_model_options *options)
{
    sd_model *model;
    sd_error err = {0};
    sd_assert_ok(sd_model_load(&model, dir, options, &err), &err);
    return model;
}

static char *path_in(char path[600], const char *dir, const char *name)
{
    (void)snprintf(path, 600, "%s/%s", dir, name);
    return path;
}

static bool exists(const char *dir, const char *name)
{
    char path[600];
    struct stat st;
    return lstat(path_in(path, dir, name), &st) == 0;
}

/* ---- the same model ---- */

static void assert_same_model(const rig *r, sd_weight_type weights, sd_weight_type head)
{
    sd_model *direct = load(r->in, &(sd_model_options){.weights = weights, .head = head, .threads = 1});
    const logits expected = logits_of(direct);
    for (int threads = 1; threads <= 3; threads += 2) {
        sd_model *packed = load(r->out, &(sd_model_options){.threads = threads});
        const logits got = logits_of(packed);
        assert_same_logits(&got, &expected);
        assert_true(sd_model_fingerprint(packed) == sd_model_fingerprint(direct));
        sd_model_info a, b;
        sd_model_get_info(packed, &a);
        sd_model_get_info(direct, &b);
        assert_int_equal(a.weights, b.weights);
        assert_int_equal(a.head, b.head);
        assert_int_equal(a.kv, b.kv);
        assert_int_equal(a.n_params, b.n_params);
        assert_int_equal(a.weight_bytes, b.weight_bytes);
        sd_model_free(packed);
    }
    sd_model_free(direct);
}

static void a_packed_model_is_the_model_bit_for_bit(void **state)
{
    (void)state;
    const sd_tiny_options kinds[] = {
        {.seed = 20},
        {.seed = 21, .dtype = SD_DTYPE_BF16, .hidden = 64, .n_heads = 4, .ffn = 128},
        {.seed = 22, .hidden = 27, .embed = 11, .ffn = 31, .untied = true, .post_norm = true},
        {.seed = 23, .no_bias = true, .no_affine = true, .activation = "gelu", .prefix = ""},
    };
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        rig r = make_rig(&kinds[k]);
        for (int w = SD_WEIGHTS_F32; w <= SD_WEIGHTS_Q4; w++) {
            const sd_weight_type weights = (sd_weight_type)w;
            (void)quantize(&r, weights, SD_WEIGHTS_AUTO);
            assert_same_model(&r, weights, SD_WEIGHTS_AUTO);
        }
        (void)quantize(&r, SD_WEIGHTS_Q4, SD_WEIGHTS_BF16);
        assert_same_model(&r, SD_WEIGHTS_Q4, SD_WEIGHTS_BF16);
        clear_rig(&r);
    }
}

static void q8_is_the_default_and_the_result_says_what_was_written(void **state)
{
    (void)state;
    rig r = make_rig(&(sd_tiny_options){.seed = 24, .hidden = 64, .n_heads = 4, .ffn = 128, .vocab = 192});
    sd_quantized result = quantize(&r, SD_WEIGHTS_AUTO, SD_WEIGHTS_AUTO);
    assert_int_equal(result.weights, SD_WEIGHTS_Q8);
    assert_int_equal(result.head, SD_WEIGHTS_Q8);
    assert_float_equal(result.bits, 8.5, 1e-6);
    assert_int_equal(result.bytes_before, 4 * result.n_params);
    sd_config config;
    sd_packed_info info;
    sd_error err = {0};
    sd_assert_ok(sd_config_load(&config, r.out, &err), &err);
    sd_assert_ok(sd_packed_describe(&info, r.out, &config, &err), &err);
    assert_int_equal(info.bytes, result.bytes_after);
    assert_int_equal(info.n_params, result.n_params);
    assert_int_equal(info.weights, SD_WEIGHTS_Q8);
    result = quantize(&r, SD_WEIGHTS_Q4, SD_WEIGHTS_AUTO);
    assert_int_equal(result.head, SD_WEIGHTS_Q8);
    clear_rig(&r);
}

static void a_resized_vocabulary_goes_along(void **state)
{
    (void)state;
    rig r = make_rig(&(sd_tiny_options){.seed = 25, .vocab = 90});
    char path[600];
    r.tiny.options.vocab = 70; /* what config.json says of 90 rows */
    char *config = sd_tiny_config(&r.tiny);
    sd_write_file(path_in(path, r.in, "config.json"), config, strlen(config));
    free(config);
    (void)quantize(&r, SD_WEIGHTS_Q8, SD_WEIGHTS_AUTO);
    assert_same_model(&r, SD_WEIGHTS_Q8, SD_WEIGHTS_AUTO);
    sd_model *model = load(r.out, NULL);
    sd_model_info info;
    sd_model_get_info(model, &info);
    assert_int_equal(info.vocab_size, 90);
    sd_model_free(model);
    clear_rig(&r);
}

/* ---- the file ---- */

static void matrices_are_aligned_in_the_file(void **state)
{
    (void)state;
    rig r = make_rig(&(sd_tiny_options){.seed = 26, .hidden = 27, .embed = 11, .ffn = 31, .untied = true});
    for (int w = SD_WEIGHTS_F32; w <= SD_WEIGHTS_Q4; w++) {
        (void)quantize(&r, (sd_weight_type)w, SD_WEIGHTS_AUTO);
        sd_config config;
        sd_packed packed;
        sd_safetensors_file file;
        sd_error err = {0};
        sd_assert_ok(sd_config_load(&config, r.out, &err), &err);
        sd_assert_ok(sd_packed_open(&packed, &file, r.out, &config, &err), &err);
        for (size_t i = 0; i < packed.n; i++) {
            if (packed.entries[i].held.row->is_matrix) {
                assert_int_equal((file.data_at + packed.entries[i].at) % SD_PACKED_ALIGNMENT, 0);
            }
        }
        sd_packed_clear(&packed);
        sd_safetensors_file_close(&file);
    }
    clear_rig(&r);
}

static void types_that_are_asked_for_must_be_those_of_the_file(void **state)
{
    (void)state;
    rig r = make_rig(&(sd_tiny_options){.seed = 27, .n_layers = 1});
    (void)quantize(&r, SD_WEIGHTS_Q8, SD_WEIGHTS_BF16);
    sd_model_free(load(r.out, &(sd_model_options){.weights = SD_WEIGHTS_Q8, .head = SD_WEIGHTS_BF16}));
    sd_model *model;
    sd_error err = {0};
    sd_assert_fails(sd_model_load(&model, r.out, &(sd_model_options){.weights = SD_WEIGHTS_F32}, &err), SD_ERR_ARG,
                    &err, "holds the weights as q8, not as the f32");
    sd_assert_fails(sd_model_load(&model, r.out, &(sd_model_options){.head = SD_WEIGHTS_Q8}, &err), SD_ERR_ARG, &err,
                    "holds the output head as bf16, not as the q8");
    model = load(r.out, &(sd_model_options){.kv = SD_KV_F32});
    sd_model_info info;
    sd_model_get_info(model, &info);
    assert_int_equal(info.kv, SD_KV_F32);
    sd_model_free(model);
    clear_rig(&r);
}

/* ---- damage ---- */

typedef struct file_bytes {
    unsigned char *data;
    size_t size, header; /* length of the header's text */
} file_bytes;

static file_bytes read_file(const char *path)
{
    sd_file file;
    sd_error err = {0};
    sd_assert_ok(sd_file_open(&file, path, true, &err), &err);
    file_bytes bytes = {.data = malloc(file.size), .size = file.size};
    assert_non_null(bytes.data);
    memcpy(bytes.data, file.data, file.size);
    uint64_t length;
    memcpy(&length, bytes.data, sizeof length);
    bytes.header = (size_t)length;
    sd_file_close(&file);
    return bytes;
}

/* The file with the first `from` of its header replaced. */
static void write_edited(const char *path, const file_bytes *whole, const char *from, const char *to)
{
    sd_buf out = {0};
    const char *text = (const char *)whole->data + 8;
    const char *at = memmem(text, whole->header, from, strlen(from));
    assert_non_null(at);
    const uint64_t length = whole->header - strlen(from) + strlen(to);
    sd_buf_add(&out, &length, sizeof length);
    sd_buf_add(&out, text, (size_t)(at - text));
    sd_buf_add_str(&out, to);
    sd_buf_add(&out, at + strlen(from), whole->size - 8 - (size_t)(at - text) - strlen(from));
    assert_false(out.failed);
    sd_write_file(path, out.data, out.len);
    sd_buf_free(&out);
}

static void assert_refused(const rig *r, int code, const char *part)
{
    sd_model *model;
    sd_error err = {0};
    const int rc = sd_model_load(&model, r->out, &(sd_model_options){.threads = 2}, &err);
    assert_null(model);
    sd_assert_fails(rc, code, &err, part);
    assert_non_null(strstr(err.message, r->file));
}

static void every_field_is_checked(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to;
        int code;
        const char *says;
    } edits[] = {
        {"{\"__metadata__\"", "{\"__metadatb__\"", SD_ERR_FORMAT, "__metadatb__"},
        {"\"skipdecode-packed\"", "\"pt\"", SD_ERR_FORMAT, "metadata \"format\" is \"pt\""},
        {"\"format\"", "\"former\"", SD_ERR_FORMAT, "metadata \"format\" is missing"},
        {"\"version\":\"1\"", "\"version\":\"2\"", SD_ERR_UNSUPPORTED, "version 2 of the format"},
        {"\"version\":\"1\"", "\"version\":\"-1\"", SD_ERR_FORMAT, "metadata \"version\" is \"-1\""},
        {"\"version\":\"1\"", "\"version\":\"99999999999999999999\"", SD_ERR_FORMAT, "metadata \"version\""},
        {"\"version\":\"1\"", "\"version\":1", SD_ERR_FORMAT, "metadata \"version\" is missing"},
        {"\"weights\":\"q8\"", "\"weights\":\"q9\"", SD_ERR_FORMAT, "metadata \"weights\" is \"q9\""},
        {"\"weights\":\"q8\"", "\"weights\":\"auto\"", SD_ERR_FORMAT, "metadata \"weights\" is \"auto\""},
        {"\"weights\":\"q8\"", "\"weights\":\"q4\"", SD_ERR_FORMAT, "tensor \"layers.0.qkv.weight\" has"},
        {"\"head\":\"q8\"", "\"head\":\"\"", SD_ERR_FORMAT, "metadata \"head\""},
        {"\"panel\":\"64\"", "\"panel\":\"32\"", SD_ERR_UNSUPPORTED, "panel of 32"},
        {"\"block\":\"32\"", "\"block\":\"64\"", SD_ERR_UNSUPPORTED, "block of 64"},
        {"\"vocab\":\"70\"", "\"vocab\":\"71\"", SD_ERR_FORMAT, "metadata \"embed.weight\""},
        {"\"vocab\":\"70\"", "\"vocab\":\"0\"", SD_ERR_FORMAT, "metadata \"vocab\""},
        {"\"vocab\":\"70\"", "\"vocab\":\"16777217\"", SD_ERR_FORMAT, "metadata \"vocab\""},
        {"\"q8 72x24 ", "\"q8 72x25 ", SD_ERR_FORMAT, "metadata \"layers.0.qkv.weight\" is \"q8 72x25"},
        {"\"q8 72x24 ", "\"q8 72x24", SD_ERR_FORMAT, "metadata \"layers.0.qkv.weight\""},
        {"\"q8 72x24 ", "\"q8 72x24 0", SD_ERR_FORMAT, "metadata \"layers.0.qkv.weight\""},
        {"\"q8 72x24 ", "\"q8 72x24 G", SD_ERR_FORMAT, "metadata \"layers.0.qkv.weight\""},
        {"\"layers.1.out.bias\":\"f32", "\"layers.1.out.biaz\":\"f32", SD_ERR_FORMAT,
         "metadata \"layers.1.out.bias\" is missing"},
        {"\"layers.0.qkv.weight\":{", "\"layers.0.qkx.weight\":{", SD_ERR_FORMAT,
         "tensor \"layers.0.qkv.weight\" is missing"},
        {"\"layers.0.qkv.weight\":{\"dtype\":\"U8\"", "\"layers.0.qkv.weight\":{\"dtype\":\"I8\"", SD_ERR_FORMAT,
         "tensor \"layers.0.qkv.weight\" is of type I8; expected U8"},
        {"\"positions\":{\"dtype\":\"F32\"", "\"positions\":{\"dtype\":\"I32\"", SD_ERR_FORMAT,
         "tensor \"positions\" is of type I32; expected F32"},
        {"\"shape\":[2,2176]", "\"shape\":[1,4352]", SD_ERR_FORMAT, "tensor \"embed.weight\" has"},
        {"\"shape\":[2,2176]", "\"shape\":[4352]", SD_ERR_FORMAT, "tensor \"embed.weight\" has"},
        {"\"shape\":[2,2176]", "\"shape\":[2,2177]", SD_ERR_FORMAT, "tensor \"embed.weight\""},
        {"\"embed.weight\":{", "\"more\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},\"embed.weight\":{",
         SD_ERR_FORMAT, "tensor \"more\" has no place"},
    };
    rig r = make_rig(&(sd_tiny_options){.seed = 28, .n_layers = 2});
    (void)quantize(&r, SD_WEIGHTS_Q8, SD_WEIGHTS_AUTO);
    file_bytes whole = read_file(r.file);
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        write_edited(r.file, &whole, edits[i].from, edits[i].to);
        assert_refused(&r, edits[i].code, edits[i].says);
    }
    write_edited(r.file, &whole, "\"version\":\"1\"", "\"version\": \"1\", \"note\": \"none of ours\"");
    sd_model_free(load(r.out, NULL)); /* what does not matter does not */
    free(whole.data);
    clear_rig(&r);
}

static void a_byte_that_changed_is_noticed_and_its_tensor_named(void **state)
{
    (void)state;
    rig r = make_rig(&(sd_tiny_options){.seed = 29, .n_layers = 1});
    (void)quantize(&r, SD_WEIGHTS_Q4, SD_WEIGHTS_AUTO);
    sd_config config;
    sd_packed packed;
    sd_safetensors_file file;
    sd_error err = {0};
    sd_assert_ok(sd_config_load(&config, r.out, &err), &err);
    sd_assert_ok(sd_packed_open(&packed, &file, r.out, &config, &err), &err);
    file_bytes whole = read_file(r.file);
    for (size_t i = 0; i < packed.n; i++) {
        const sd_packed_entry *e = &packed.entries[i];
        const size_t offsets[] = {0, e->bytes / 2, e->bytes - 1};
        for (int o = 0; o < 3; o++) {
            unsigned char *byte = &whole.data[file.data_at + e->at + offsets[o]];
            *byte ^= (unsigned char)(1 << (o * 3 + (int)i % 2));
            sd_write_file(r.file, whole.data, whole.size);
            assert_refused(&r, SD_ERR_FORMAT, e->held.name);
            assert_refused(&r, SD_ERR_FORMAT, "its bytes are not those that were written");
            *byte ^= (unsigned char)(1 << (o * 3 + (int)i % 2));
        }
    }
    sd_packed_clear(&packed);
    sd_safetensors_file_close(&file);
    free(whole.data);
    clear_rig(&r);
}

static void a_file_of_another_length_is_refused(void **state)
{
    (void)state;
    rig r = make_rig(&(sd_tiny_options){.seed = 30, .n_layers = 1});
    (void)quantize(&r, SD_WEIGHTS_Q8, SD_WEIGHTS_AUTO);
    file_bytes whole = read_file(r.file);
    for (size_t size = 0; size < whole.size; size += size < 16 ? 1 : 499) {
        sd_write_file(r.file, whole.data, size);
        assert_refused(&r, SD_ERR_FORMAT, "");
    }
    sd_write_file(r.file, whole.data, whole.size - 1);
    assert_refused(&r, SD_ERR_FORMAT, "truncated");
    whole.data = realloc(whole.data, whole.size + 1);
    assert_non_null(whole.data);
    whole.data[whole.size] = 0;
    sd_write_file(r.file, whole.data, whole.size + 1);
    assert_refused(&r, SD_ERR_FORMAT, "belong to none");
    free(whole.data);
    clear_rig(&r);
}

static void another_configuration_is_refused(void **state)
{
    (void)state;
    rig r = make_rig(&(sd_tiny_options){.seed = 31});
    (void)quantize(&r, SD_WEIGHTS_Q8, SD_WEIGHTS_AUTO);
    const sd_tiny_options usual = r.tiny.options;
    sd_tiny_options others[7];
    for (int i = 0; i < 7; i++) {
        others[i] = usual;
    }
    others[0].n_layers = 4;
    others[1].n_layers = 6;
    others[2].ffn = 41;
    others[3].max_positions = 49;
    others[4].untied = true;
    others[5].no_bias = true;
    others[6].embed = 11;
    static const char *const says[] = {"layers.4.", "layers.5.", "layers.0.fc1.weight", "positions", "head.weight",
                                       "bias", "embed.weight"};
    for (int i = 0; i < 7; i++) {
        char path[600];
        r.tiny.options = others[i];
        char *config = sd_tiny_config(&r.tiny);
        sd_write_file(path_in(path, r.out, "config.json"), config, strlen(config));
        free(config);
        assert_refused(&r, SD_ERR_FORMAT, says[i]);
    }
    r.tiny.options = usual;
    clear_rig(&r);
}

/* ---- the directory ---- */

static void assert_not_written(const rig *r, const char *out, const sd_quantize_options *options, int code,
                               const char *part)
{
    sd_quantized result;
    sd_error err = {0};
    sd_assert_fails(sd_quantize(r->in, out, options, &result, &err), code, &err, part);
}

static void what_stands_in_the_target_is_kept(void **state)
{
    (void)state;
    rig r = make_rig(&(sd_tiny_options){.seed = 32, .n_layers = 1});
    sd_quantize_options careful = quick(SD_WEIGHTS_Q8), rash = careful;
    careful.overwrite = false;
    char path[600];
    assert_not_written(&r, r.in, &rash, SD_ERR_ARG, "is the model itself");
    assert_not_written(&r, "", &rash, SD_ERR_ARG, "empty name");
    assert_not_written(&r, path_in(path, r.in, "config.json"), &rash, SD_ERR_ARG, "is a file");
    assert_not_written(&r, path_in(path, r.dir, "a/b"), &rash, SD_ERR_IO, "cannot make the directory");
    (void)quantize(&r, SD_WEIGHTS_Q8, SD_WEIGHTS_AUTO);
    assert_not_written(&r, r.out, &careful, SD_ERR_ARG, "holds config.json already; --overwrite");
    sd_write_file(path_in(path, r.out, "vocab.json"), "{}", 2); /* not of this model */
    (void)quantize(&r, SD_WEIGHTS_Q4, SD_WEIGHTS_AUTO);
    assert_false(exists(r.out, "vocab.json"));
    assert_same_model(&r, SD_WEIGHTS_Q4, SD_WEIGHTS_AUTO);

    assert_int_equal(mkdir(path_in(path, r.dir, "other"), 0777), 0);
    char inside[700];
    (void)snprintf(inside, sizeof inside, "%s/pytorch_model.bin", path);
    sd_write_file(inside, "x", 1);
    assert_not_written(&r, path, &rash, SD_ERR_ARG, "a checkpoint of its own (pytorch_model.bin)");

    const int lock = open(r.out, O_RDONLY | O_DIRECTORY);
    assert_true(lock >= 0);
    assert_int_equal(flock(lock, LOCK_EX | LOCK_NB), 0);
    assert_not_written(&r, r.out, &rash, SD_ERR_STATE, "another process");
    close(lock);

    sd_quantized result;
    sd_error err = {0};
    path_in(path, r.dir, "again");
    sd_assert_fails(sd_quantize(r.out, path, &rash, &result, &err), SD_ERR_ARG, &err, "holds packed weights already");
    assert_false(exists(r.dir, "again"));
    clear_rig(&r);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    rig r = make_rig(&(sd_tiny_options){.seed = 33, .n_layers = 1, .embed = 10, .untied = true});
    char path[600];
    sd_write_file(path_in(path, r.in, "vocab.json"), "{}", 2);
    const sd_quantize_options options = quick(SD_WEIGHTS_Q8);
    long n = 0, tried;
    for (int rc = SD_ERR_MEMORY; rc != SD_OK;) {
        sd_quantized result;
        sd_error err = {0};
        sd_alloc_fail_at(++n);
        rc = sd_quantize(r.in, r.out, &options, &result, &err);
        tried = sd_alloc_count();
        sd_alloc_fail_at(0);
        if (rc != SD_OK) {
            sd_assert_fails(rc, SD_ERR_MEMORY, &err, "memory");
            assert_false(exists(r.out, SD_PACKED_FILE));
            assert_false(exists(r.out, SD_PACKED_FILE ".tmp"));
        } else if (tried >= n) { /* the one that is for syncing a directory, which is done without */
            rc = SD_ERR_MEMORY;
            sd_model_free(load(r.out, NULL));
            assert_int_equal(remove(r.file), 0);
        }
    }
    assert_true(n > 60);
    n = 0;
    for (int rc = SD_ERR_MEMORY; rc != SD_OK;) {
        sd_model *model;
        sd_error err = {0};
        sd_alloc_fail_at(++n);
        rc = sd_model_load(&model, r.out, &(sd_model_options){.threads = 2}, &err);
        sd_alloc_fail_at(0);
        if (rc == SD_OK) {
            sd_model_free(model);
        } else {
            sd_assert_fails(rc, SD_ERR_MEMORY, &err, "out of memory");
            assert_null(model);
        }
    }
    assert_true(n > 40);
    clear_rig(&r);
}

/* ---- the sum ---- */

static void any_word_changes_the_wide_hash(void **state)
{
    (void)state;
    unsigned char data[200] = {0};
    sd_hash_wide h = SD_HASH_WIDE_START;
    sd_hash_wide_add(&h, data, 128);
    sd_hash_wide_add(&h, data + 128, 72);
    const uint64_t in_two = sd_hash_wide_end(&h);
    h = SD_HASH_WIDE_START;
    sd_hash_wide_add(&h, data, 200);
    assert_true(sd_hash_wide_end(&h) == in_two);
    for (size_t i = 0; i < sizeof data; i++) {
        data[i] = 0x80;
        h = SD_HASH_WIDE_START;
        sd_hash_wide_add(&h, data, 200);
        assert_true(sd_hash_wide_end(&h) != in_two);
        data[(i + 64) % 200] ^= 0x80; /* and two of one lane do not undo each other */
        h = SD_HASH_WIDE_START;
        sd_hash_wide_add(&h, data, 200);
        assert_true(sd_hash_wide_end(&h) != in_two);
        memset(data, 0, sizeof data);
    }
    h = SD_HASH_WIDE_START;
    sd_hash_wide_add(&h, data, 199); /* the missing byte counts, though the line is filled up with zeros */
    assert_true(sd_hash_wide_end(&h) != in_two);
}

int main(void)
{
    sd_skip_unless_level();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_packed_model_is_the_model_bit_for_bit),
        cmocka_unit_test(q8_is_the_default_and_the_result_says_what_was_written),
        cmocka_unit_test(a_resized_vocabulary_goes_along),
        cmocka_unit_test(matrices_are_aligned_in_the_file),
        cmocka_unit_test(types_that_are_asked_for_must_be_those_of_the_file),
        cmocka_unit_test(every_field_is_checked),
        cmocka_unit_test(a_byte_that_changed_is_noticed_and_its_tensor_named),
        cmocka_unit_test(a_file_of_another_length_is_refused),
        cmocka_unit_test(another_configuration_is_refused),
        cmocka_unit_test(what_stands_in_the_target_is_kept),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(any_word_changes_the_wide_hash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
