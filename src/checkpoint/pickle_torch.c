/* SPDX-License-Identifier: MIT
 *
 * What the few allowed names mean. Applying one builds a description from arguments that are checked one by one; there
 * is no table of functions that a file could reach. */
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/utf8.h"
#include "src/checkpoint/pickle_machine.h"
#include "src/checkpoint/tensor_list.h"

static const sd_pickle_global globals[] = {
    {"collections", "OrderedDict", SD_MEANS_ORDERED_DICT, SD_DTYPES},
    {"torch._utils", "_rebuild_tensor_v2", SD_MEANS_REBUILD_TENSOR, SD_DTYPES},
    {"torch._utils", "_rebuild_parameter", SD_MEANS_REBUILD_PARAMETER, SD_DTYPES},
    {"torch", "FloatStorage", SD_MEANS_STORAGE, SD_DTYPE_F32},
    {"torch", "HalfStorage", SD_MEANS_STORAGE, SD_DTYPE_F16},
    {"torch", "BFloat16Storage", SD_MEANS_STORAGE, SD_DTYPE_BF16},
    {"torch", "DoubleStorage", SD_MEANS_STORAGE, SD_DTYPE_F64},
    {"torch", "LongStorage", SD_MEANS_STORAGE, SD_DTYPE_I64},
    {"torch", "IntStorage", SD_MEANS_STORAGE, SD_DTYPE_I32},
    {"torch", "ShortStorage", SD_MEANS_STORAGE, SD_DTYPE_I16},
    {"torch", "CharStorage", SD_MEANS_STORAGE, SD_DTYPE_I8},
    {"torch", "ByteStorage", SD_MEANS_STORAGE, SD_DTYPE_U8},
    {"torch", "BoolStorage", SD_MEANS_STORAGE, SD_DTYPE_BOOL},
};

static bool equals(const char *text, size_t len, const char *literal)
{
    return len == strlen(literal) && memcmp(text, literal, len) == 0;
}

int sd_pickle_resolve(const sd_pickle_machine *m, const char *module, size_t module_len, const char *name,
                      size_t name_len, sd_pickle_value *result)
{
    for (size_t i = 0; i < sizeof globals / sizeof *globals; i++) {
        if (equals(module, module_len, globals[i].module) && equals(name, name_len, globals[i].name)) {
            *result = (sd_pickle_value){.kind = SD_PICKLE_GLOBAL, .as.global = &globals[i]};
            return SD_OK;
        }
    }
    return sd_pickle_fail(
        m, SD_ERR_UNSUPPORTED,
        "asks for \"%s.%s\", which a state dict of plain tensors does not need and which is therefore not "
        "allowed: save the model as safetensors",
        sd_show(module, module_len).text, sd_show(name, name_len).text);
}

static const sd_pickle_value *items_of(const sd_pickle_value *tuple)
{
    return tuple->as.object ? tuple->as.object->items : NULL;
}

static size_t length_of(const sd_pickle_value *tuple) { return tuple->as.object ? tuple->as.object->n : 0; }

static int expect(const sd_pickle_machine *m, const sd_pickle_value *value, sd_pickle_kind kind, const char *what)
{
    if (value->kind != kind) {
        return sd_pickle_fail(m, SD_ERR_FORMAT, "%s: expected %s, found %s", what, sd_pickle_kind_name(kind),
                              sd_pickle_kind_name(value->kind));
    }
    return SD_OK;
}

static int expect_size(const sd_pickle_machine *m, const sd_pickle_value *value, const char *what, int64_t *size)
{
    int rc = expect(m, value, SD_PICKLE_INT, what);
    if (rc == SD_OK && value->as.integer < 0) {
        return sd_pickle_fail(m, SD_ERR_FORMAT, "%s: %lld is negative", what, (long long)value->as.integer);
    }
    *size = value->as.integer;
    return rc;
}

/* Shape or stride: a tuple of at most SD_MAX_RANK sizes. */
static int expect_sizes(const sd_pickle_machine *m, const sd_pickle_value *value, const char *what,
                        int64_t sizes[SD_MAX_RANK], int *rank)
{
    int rc = expect(m, value, SD_PICKLE_TUPLE, what);
    if (rc != SD_OK) {
        return rc;
    }
    size_t n = length_of(value);
    if (n > SD_MAX_RANK) {
        return sd_pickle_fail(m, SD_ERR_UNSUPPORTED, "%s: %zu dimensions, at most %d are read", what, n, SD_MAX_RANK);
    }
    *rank = (int)n;
    for (size_t i = 0; i < n && rc == SD_OK; i++) {
        rc = expect_size(m, &items_of(value)[i], what, &sizes[i]);
    }
    return rc;
}

static int expect_length(const sd_pickle_machine *m, const sd_pickle_value *tuple, const char *what, size_t n)
{
    if (length_of(tuple) != n) {
        return sd_pickle_fail(m, SD_ERR_FORMAT, "%s: expected %zu arguments, found %zu", what, n, length_of(tuple));
    }
    return SD_OK;
}

/* ---- applying a name ---- */

static int ordered_dict(sd_pickle_machine *m, const sd_pickle_value *args, sd_pickle_value *result)
{
    int rc = expect_length(m, args, "OrderedDict", 0);
    if (rc != SD_OK) {
        return rc;
    }
    sd_pickle_object *object = sd_pickle_new_object(m, false);
    if (!object) {
        return SD_ERR_MEMORY;
    }
    *result = (sd_pickle_value){.kind = SD_PICKLE_DICT, .as.object = object};
    return SD_OK;
}

/* (storage, offset, shape, stride, requires_grad, hooks[, metadata]) */
static int rebuild_tensor(sd_pickle_machine *m, const sd_pickle_value *args, sd_pickle_value *result)
{
    const sd_pickle_value *arg = items_of(args);
    size_t n = length_of(args);
    if (n != 6 && n != 7) {
        return sd_pickle_fail(m, SD_ERR_FORMAT, "_rebuild_tensor_v2: expected 6 or 7 arguments, found %zu", n);
    }
    sd_pickle_tensor t;
    int stride_rank = 0;
    int rc = expect(m, &arg[0], SD_PICKLE_STORAGE, "tensor's storage");
    if (rc == SD_OK) {
        t = *arg[0].as.object->tensor;
        rc = expect_size(m, &arg[1], "tensor's offset", &t.offset);
    }
    if (rc == SD_OK) {
        rc = expect_sizes(m, &arg[2], "tensor's shape", t.shape, &t.rank);
    }
    if (rc == SD_OK) {
        rc = expect_sizes(m, &arg[3], "tensor's stride", t.stride, &stride_rank);
    }
    if (rc == SD_OK) {
        rc = expect(m, &arg[4], SD_PICKLE_BOOL, "tensor's requires_grad");
    }
    if (rc == SD_OK) {
        rc = expect(m, &arg[5], SD_PICKLE_DICT, "tensor's hooks");
    }
    if (rc != SD_OK) {
        return rc;
    }
    if (stride_rank != t.rank) {
        return sd_pickle_fail(m, SD_ERR_FORMAT, "tensor has %d dimensions but %d strides", t.rank, stride_rank);
    }
    /* Metadata says that the numbers are meant conjugated or negated. */
    if (n == 7 && arg[6].kind != SD_PICKLE_NONE && (arg[6].kind != SD_PICKLE_DICT || arg[6].as.object->n > 0)) {
        return sd_pickle_fail(m, SD_ERR_UNSUPPORTED, "tensor with metadata (a conjugated or negated view)");
    }
    sd_pickle_object *object = sd_pickle_new_object(m, true);
    if (!object) {
        return SD_ERR_MEMORY;
    }
    *object->tensor = t;
    *result = (sd_pickle_value){.kind = SD_PICKLE_TENSOR, .as.object = object};
    return SD_OK;
}

/* (tensor, requires_grad, hooks): a parameter is its tensor. */
static int rebuild_parameter(sd_pickle_machine *m, const sd_pickle_value *args, sd_pickle_value *result)
{
    const sd_pickle_value *arg = items_of(args);
    int rc = expect_length(m, args, "_rebuild_parameter", 3);
    if (rc == SD_OK) {
        rc = expect(m, &arg[0], SD_PICKLE_TENSOR, "parameter's data");
    }
    if (rc == SD_OK) {
        rc = expect(m, &arg[1], SD_PICKLE_BOOL, "parameter's requires_grad");
    }
    if (rc == SD_OK) {
        rc = expect(m, &arg[2], SD_PICKLE_DICT, "parameter's hooks");
    }
    if (rc == SD_OK) {
        *result = arg[0];
    }
    return rc;
}

int sd_pickle_reduce(sd_pickle_machine *m, const sd_pickle_value *callee, const sd_pickle_value *args,
                     sd_pickle_value *result)
{
    int rc = expect(m, callee, SD_PICKLE_GLOBAL, "what is to be applied");
    if (rc == SD_OK) {
        rc = expect(m, args, SD_PICKLE_TUPLE, "arguments");
    }
    if (rc != SD_OK) {
        return rc;
    }
    switch (callee->as.global->meaning) {
    case SD_MEANS_ORDERED_DICT: return ordered_dict(m, args, result);
    case SD_MEANS_REBUILD_TENSOR: return rebuild_tensor(m, args, result);
    case SD_MEANS_REBUILD_PARAMETER: return rebuild_parameter(m, args, result);
    case SD_MEANS_STORAGE: break;
    }
    return sd_pickle_fail(m, SD_ERR_UNSUPPORTED,
                          "%s.%s is a storage class and is not applied to anything in a state dict",
                          callee->as.global->module, callee->as.global->name);
}

int sd_pickle_persistent(sd_pickle_machine *m, const sd_pickle_value *id, sd_pickle_value *result)
{
    int rc = expect(m, id, SD_PICKLE_TUPLE, "storage");
    if (rc == SD_OK) {
        rc = expect_length(m, id, "storage", 5);
    }
    const sd_pickle_value *part = rc == SD_OK ? items_of(id) : NULL;
    if (rc == SD_OK && !(part[0].kind == SD_PICKLE_STRING && equals(part[0].as.text, part[0].len, "storage"))) {
        return sd_pickle_fail(m, SD_ERR_UNSUPPORTED, "refers to something outside that is not a storage");
    }
    if (rc == SD_OK && !(part[1].kind == SD_PICKLE_GLOBAL && part[1].as.global->meaning == SD_MEANS_STORAGE)) {
        return sd_pickle_fail(m, SD_ERR_FORMAT, "storage's class: expected one of torch's storage classes");
    }
    int64_t elements = 0;
    if (rc == SD_OK) {
        rc = expect(m, &part[2], SD_PICKLE_STRING, "storage's key");
    }
    if (rc == SD_OK) {
        rc = expect(m, &part[3], SD_PICKLE_STRING, "storage's device");
    }
    if (rc == SD_OK) {
        rc = expect_size(m, &part[4], "storage's number of elements", &elements);
    }
    if (rc != SD_OK) {
        return rc;
    }
    sd_pickle_object *object = sd_pickle_new_object(m, true);
    if (!object) {
        return SD_ERR_MEMORY;
    }
    *object->tensor = (sd_pickle_tensor){.key = part[2].as.text, .key_len = part[2].len,
                                         .dtype = part[1].as.global->dtype, .storage_elements = elements};
    *result = (sd_pickle_value){.kind = SD_PICKLE_STORAGE, .as.object = object};
    return SD_OK;
}

/* ---- the result ---- */

static bool holds_tensor(const sd_pickle_object *dict)
{
    for (size_t i = 1; i < dict->n; i += 2) {
        if (dict->items[i].kind == SD_PICKLE_TENSOR) {
            return true;
        }
    }
    return false;
}

static int check_name(const sd_pickle_value *key, sd_error *err)
{
    if (key->kind != SD_PICKLE_STRING) {
        return sd_fail(err, SD_ERR_FORMAT, "pickle: a tensor's name is %s; expected a string",
                       sd_pickle_kind_name(key->kind));
    }
    if (memchr(key->as.text, '\0', key->len) || !sd_utf8_valid(key->as.text, key->len)) {
        return sd_fail(err, SD_ERR_FORMAT, "pickle: the tensor name \"%s\" is not UTF-8 text",
                       sd_show(key->as.text, key->len).text);
    }
    return SD_OK;
}

/* Weights are often saved together with an optimizer, one level down: say so instead of loading half of it. */
static int fail_nested(const sd_pickle_value *key, sd_error *err)
{
    const char *name = key->kind == SD_PICKLE_STRING ? key->as.text : "(not a string)";
    return sd_fail(
        err, SD_ERR_UNSUPPORTED,
        "pickle: the tensors are one level down, in the dict under \"%s\": load the file with torch and save that "
        "dict alone",
        sd_show(name, key->kind == SD_PICKLE_STRING ? key->len : strlen(name)).text);
}

int sd_pickle_collect(const sd_pickle_machine *m, const sd_pickle_value *top, sd_state_dict *dict)
{
    if (top->kind != SD_PICKLE_DICT) {
        return sd_fail(m->err, SD_ERR_UNSUPPORTED,
                       "pickle: holds %s; expected a state dict, a dict of names and tensors",
                       sd_pickle_kind_name(top->kind));
    }
    const sd_pickle_object *object = top->as.object;
    dict->tensors = sd_malloc(object->n / 2, sizeof *dict->tensors);
    if (!dict->tensors) {
        return sd_fail_memory(m->err, object->n / 2 * sizeof *dict->tensors, "the state dict");
    }
    for (size_t i = 0; i < object->n; i += 2) {
        const sd_pickle_value *key = &object->items[i], *value = &object->items[i + 1];
        if (value->kind == SD_PICKLE_DICT && holds_tensor(value->as.object)) {
            return fail_nested(key, m->err);
        }
        if (value->kind != SD_PICKLE_TENSOR) {
            continue;
        }
        int rc = check_name(key, m->err);
        if (rc != SD_OK) {
            return rc;
        }
        sd_pickle_tensor *t = &dict->tensors[dict->n++];
        *t = *value->as.object->tensor;
        t->name = key->as.text;
        t->name_len = key->len;
    }
    if (dict->n == 0) {
        return sd_fail(m->err, SD_ERR_FORMAT, "pickle: the dict holds no tensor, only %zu other values", object->n / 2);
    }
    return SD_OK;
}
