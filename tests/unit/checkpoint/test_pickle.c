/* SPDX-License-Identifier: MIT */
#include "src/checkpoint/pickle.h"
#include "tests/unit/checkpoint/builders.h"

static int run(const void *bytes, size_t n, sd_error *err)
{
    unsigned char *copy = malloc(n ? n : 1); /* of exactly n bytes, for AddressSanitizer */
    assert_non_null(copy);
    memcpy(copy, n ? bytes : "", n);
    sd_state_dict dict;
    *err = (sd_error){0};
    int rc = sd_pickle_read(&dict, copy, n, err);
    volatile unsigned char sum = 0;
    for (size_t i = 0; i < dict.n; i++) {
        const sd_pickle_tensor *t = &dict.tensors[i];
        assert_in_range(t->rank, 0, SD_MAX_RANK);
        for (size_t j = 0; j < t->name_len; j++) {
            sum = (unsigned char)(sum + (unsigned char)t->name[j]);
        }
        for (size_t j = 0; j < t->key_len; j++) {
            sum = (unsigned char)(sum + (unsigned char)t->key[j]);
        }
    }
    sd_state_dict_free(&dict);
    free(copy);
    return rc;
}

static const view plain = {"FloatStorage", "0", 6, 1, 2, {2, 2}, {2, 1}};

static void describes_a_tensor(void **state)
{
    (void)state;
    sd_buf pickle = {0};
    make_pickle(&pickle, "w", &plain);
    sd_state_dict dict;
    sd_error err = {0};
    sd_assert_ok(sd_pickle_read(&dict, (unsigned char *)pickle.data, pickle.len, &err), &err);
    assert_int_equal(dict.n, 1);
    const sd_pickle_tensor *t = &dict.tensors[0];
    assert_int_equal(t->name_len, 1);
    assert_memory_equal(t->name, "w", 1);
    assert_memory_equal(t->key, "0", 1);
    assert_int_equal(t->dtype, SD_DTYPE_F32);
    assert_int_equal(t->storage_elements, 6);
    assert_int_equal(t->offset, 1);
    assert_int_equal(t->rank, 2);
    assert_int_equal(t->shape[1], 2);
    assert_int_equal(t->stride[0], 2);
    sd_state_dict_free(&dict);
    sd_buf_free(&pickle);
}

static void knows_every_storage_class(void **state)
{
    (void)state;
    static const char *const classes[SD_DTYPES] = {
        [SD_DTYPE_F32] = "FloatStorage", [SD_DTYPE_F16] = "HalfStorage", [SD_DTYPE_BF16] = "BFloat16Storage",
        [SD_DTYPE_F64] = "DoubleStorage", [SD_DTYPE_I64] = "LongStorage", [SD_DTYPE_I32] = "IntStorage",
        [SD_DTYPE_I16] = "ShortStorage",  [SD_DTYPE_I8] = "CharStorage",  [SD_DTYPE_U8] = "ByteStorage",
        [SD_DTYPE_BOOL] = "BoolStorage",
    };
    for (int i = 0; i < SD_DTYPES; i++) {
        sd_buf pickle = {0};
        view v = plain;
        v.class = classes[i];
        make_pickle(&pickle, "w", &v);
        sd_state_dict dict;
        sd_error err = {0};
        sd_assert_ok(sd_pickle_read(&dict, (unsigned char *)pickle.data, pickle.len, &err), &err);
        assert_int_equal(dict.tensors[0].dtype, i);
        sd_state_dict_free(&dict);
        sd_buf_free(&pickle);
    }
}

/* ---- raw programs: what stands between PROTO 2 and the end ---- */

#define GLOBAL(module, name) "c" module "\n" name "\n"
#define ORDERED_DICT GLOBAL("collections", "OrderedDict") ")R"
#define STORAGE "(X\7\0\0\0storage" GLOBAL("torch", "FloatStorage") "X\1\0\0\0" "0X\3\0\0\0cpuK\6tQ"
#define REBUILD GLOBAL("torch._utils", "_rebuild_tensor_v2")
#define TENSOR REBUILD "(" STORAGE "K\0K\1\x85K\1\x85\x89" ORDERED_DICT "tR"
#define ITEM(program) "}X\1\0\0\0w" program "s."
#define P(text) text, sizeof text - 1

static const struct program {
    const char *what, *text;
    size_t len;
    int code;
    const char *part; /* of the message */
} good[] = {
    {"a dict", P(ITEM(TENSOR)), 0, 0},
    {"an OrderedDict", P(ORDERED_DICT "X\1\0\0\0w" TENSOR "s."), 0, 0},
    {"SETITEMS", P("}(X\1\0\0\0w" TENSOR "X\1\0\0\0v" TENSOR "u."), 0, 0},
    {"an attribute dict", P("}X\1\0\0\0w" TENSOR "s}b."), 0, 0},
    {"a parameter", P(ITEM(GLOBAL("torch._utils", "_rebuild_parameter") TENSOR "\x88" ORDERED_DICT "\x87R")), 0, 0},
    {"a seventh argument, None", P(ITEM(REBUILD "(" STORAGE "K\0)" ")\x89}NtR")), 0, 0},
    {"a seventh argument, empty", P(ITEM(REBUILD "(" STORAGE "K\0)" ")\x89}}tR")), 0, 0},
    {"STACK_GLOBAL and MEMOIZE", P("}\x8C\1w\x8C\014torch._utils\x8C\022_rebuild_tensor_v2\x93\x94(" STORAGE
                                   "K\0))\x89}t\x94R\x94s."), 0, 0},
    {"both kinds of memo", P("}q\0X\1\0\0\0w" TENSOR "r\1\0\0\0sX\1\0\0\0vj\1\0\0\0s0h\0."), 0, 0},
    {"values that are passed over", P("}(X\1\0\0\0aNX\1\0\0\0b\x88X\1\0\0\0cK\1X\1\0\0\0dG\0\0\0\0\0\0\0\0"
                                      "X\1\0\0\0eC\1xX\1\0\0\0f](K\1NeX\1\0\0\0g)X\1\0\0\0w" TENSOR "u."), 0, 0},
    {"a name that is not a string, without a tensor", P("}(K\1NX\1\0\0\0w" TENSOR "u."), 0, 0},
    {"POP and POP_MARK", P("N0((NN1" "1" ITEM(TENSOR)), 0, 0},
    {"a frame", P("\x95\1\0\0\0\0\0\0\0" ITEM(TENSOR)), 0, 0},
};

static const struct program hostile[] = {
    /* names: nothing is looked up outside the list */
    {"os.system", P(GLOBAL("os", "system") "X\2\0\0\0id\x85R."), SD_ERR_UNSUPPORTED, "\"os.system\""},
    {"posix.system by STACK_GLOBAL", P("\x8C\5posix\x8C\6system\x93."), SD_ERR_UNSUPPORTED, "\"posix.system\""},
    {"builtins.eval", P(GLOBAL("builtins", "eval") "."), SD_ERR_UNSUPPORTED, "\"builtins.eval\""},
    {"an allowed module's other name", P(GLOBAL("torch._utils", "_rebuild_tensor") "."), SD_ERR_UNSUPPORTED,
     "_rebuild_tensor\""},
    {"an allowed name in another module", P(GLOBAL("os", "OrderedDict") "."), SD_ERR_UNSUPPORTED, "\"os.OrderedDict\""},
    {"a longer name", P(GLOBAL("torch", "FloatStorageX") "."), SD_ERR_UNSUPPORTED, "FloatStorageX"},
    {"a dotted name", P(GLOBAL("collections", "OrderedDict.fromkeys") "."), SD_ERR_UNSUPPORTED, "fromkeys"},
    {"a storage of another type", P(GLOBAL("torch", "ComplexFloatStorage") "."), SD_ERR_UNSUPPORTED,
     "ComplexFloatStorage"},
    {"a name with an escape sequence", P(GLOBAL("os\x1B[2J", "x") "."), SD_ERR_UNSUPPORTED, "\"os?[2J.x\""},
    {"a name without an end", P("cos\nsystem"), SD_ERR_FORMAT, "truncated"},
    {"a module without an end", P("cos"), SD_ERR_FORMAT, "truncated"},
    {"STACK_GLOBAL of integers", P("K\1K\2\x93."), SD_ERR_FORMAT, "two strings"},
    {"STACK_GLOBAL of an integer and a string", P("K\1\x8C\1x\x93."), SD_ERR_FORMAT, "found an integer and a string"},
    {"STACK_GLOBAL of a string and None", P("\x8C\2osN\x93."), SD_ERR_FORMAT, "found a string and None"},
    {"STACK_GLOBAL of nothing", P("\x93."), SD_ERR_FORMAT, "found nothing"},
    /* opcodes that build or call by other ways */
    {"INST", P("(ios\nsystem\n."), SD_ERR_UNSUPPORTED, "0x69"},
    {"OBJ", P("(" GLOBAL("collections", "OrderedDict") "o."), SD_ERR_UNSUPPORTED, "0x6F"},
    {"NEWOBJ", P(GLOBAL("collections", "OrderedDict") ")\x81."), SD_ERR_UNSUPPORTED, "0x81"},
    {"NEWOBJ_EX", P("\x92."), SD_ERR_UNSUPPORTED, "0x92"},
    {"EXT1", P("\x82\1."), SD_ERR_UNSUPPORTED, "0x82"},
    {"PERSID", P("P0\n."), SD_ERR_UNSUPPORTED, "0x50"},
    {"NEXT_BUFFER", P("\x97."), SD_ERR_UNSUPPORTED, "0x97"},
    {"INT as text", P("I1\n."), SD_ERR_UNSUPPORTED, "0x49"},
    {"byte 0", P("\0."), SD_ERR_UNSUPPORTED, "0x00"},
    {"byte 255", P("\xFF."), SD_ERR_UNSUPPORTED, "0xFF"},
    /* containers of the wrong type (CVE-2026-24747) */
    {"SETITEM on a tensor", P(TENSOR "X\1\0\0\0wNs."), SD_ERR_FORMAT, "expected a dict to add to, found a tensor"},
    {"SETITEM on a list", P("]NNs."), SD_ERR_FORMAT, "found a list"},
    {"SETITEM on a tuple", P(")NNs."), SD_ERR_FORMAT, "found a tuple"},
    {"SETITEM on nothing", P("NNs."), SD_ERR_FORMAT, "found nothing"},
    {"SETITEMS on a storage", P(STORAGE "(NNu."), SD_ERR_FORMAT, "found a storage"},
    {"SETITEMS on a name", P(GLOBAL("torch", "FloatStorage") "(NNu."), SD_ERR_FORMAT, "found a name"},
    {"SETITEMS of three", P("}(NNNu."), SD_ERR_FORMAT, "no pairs"},
    {"SETITEMS without a mark", P("}NNu."), SD_ERR_FORMAT, "no mark"},
    {"a list as key", P("}]Ns."), SD_ERR_FORMAT, "cannot be a key"},
    {"a dict as key", P("}(}Nu."), SD_ERR_FORMAT, "cannot be a key"},
    {"APPEND to a dict", P("}Na."), SD_ERR_FORMAT, "expected a list"},
    {"APPENDS to a tuple", P(")(Ne."), SD_ERR_FORMAT, "expected a list"},
    {"BUILD on a tensor", P(TENSOR "}b."), SD_ERR_FORMAT, "found a tensor"},
    {"BUILD with a tuple", P("})b."), SD_ERR_FORMAT, "dict of attributes"},
    /* the stack and the memo */
    {"POP on an empty stack", P("0."), SD_ERR_FORMAT, "empty"},
    {"POP_MARK without a mark", P("N1."), SD_ERR_FORMAT, "no mark"},
    {"TUPLE without a mark", P("Nt."), SD_ERR_FORMAT, "no mark"},
    {"TUPLE3 of two", P("NN\x87."), SD_ERR_FORMAT, "found 2"},
    {"TUPLE1 of a mark", P("(\x85."), SD_ERR_FORMAT, "found 0"},
    {"a mark as value", P("}N(s."), SD_ERR_FORMAT, "found a mark"},
    {"a mark at the end", P("(."), SD_ERR_FORMAT, "found a mark"},
    {"BINPUT of nothing", P("q\0."), SD_ERR_FORMAT, "found nothing"},
    {"BINPUT of a mark", P("(q\0."), SD_ERR_FORMAT, "found a mark"},
    {"BINGET of an unfilled slot", P("Nq\0h\1."), SD_ERR_FORMAT, "never filled"},
    {"BINGET of a gap", P("Nq\4h\2."), SD_ERR_FORMAT, "never filled"},
    {"LONG_BINPUT at 2^32-1", P("Nr\xFF\xFF\xFF\xFF."), SD_ERR_FORMAT, "memo slot 4294967295"},
    {"LONG_BINGET at 2^32-1", P("j\xFF\xFF\xFF\xFF."), SD_ERR_FORMAT, "never filled"},
    {"two values at the end", P("NN."), SD_ERR_FORMAT, "found 2"},
    {"no value at the end", P("."), SD_ERR_FORMAT, "found 0"},
    {"bytes behind the end", P(ITEM(TENSOR) "N"), SD_ERR_FORMAT, "1 bytes follow"},
    {"no end", P("N"), SD_ERR_FORMAT, "without STOP"},
    /* lengths */
    {"a string of 2^32-1 bytes", P("X\xFF\xFF\xFF\xFFw."), SD_ERR_FORMAT, "truncated"},
    {"a string of 2^64-1 bytes", P("\x8D\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFFw."), SD_ERR_FORMAT, "truncated"},
    {"bytes of 2^31 bytes", P("B\0\0\0\x80w."), SD_ERR_FORMAT, "truncated"},
    {"an integer of 2^32-1 bytes", P("\x8B\xFF\xFF\xFF\xFF."), SD_ERR_FORMAT, "truncated"},
    {"a frame that is too long", P("\x95\xFF\0\0\0\0\0\0\0N."), SD_ERR_FORMAT, "frame"},
    {"protocol 6", P("\x80\6N."), SD_ERR_UNSUPPORTED, "protocol 6"},
    {"protocol 1", P("\x80\1N."), SD_ERR_UNSUPPORTED, "protocol 1"},
    /* applying names */
    {"REDUCE of a string", P("X\2\0\0\0os)R."), SD_ERR_FORMAT, "expected a name, found a string"},
    {"REDUCE with a list", P(GLOBAL("collections", "OrderedDict") "]R."), SD_ERR_FORMAT, "arguments: expected a tuple"},
    {"OrderedDict of something", P(GLOBAL("collections", "OrderedDict") "]\x85R."), SD_ERR_FORMAT,
     "expected 0 arguments"},
    {"a storage class applied", P(GLOBAL("torch", "FloatStorage") "K\6\x85R."), SD_ERR_UNSUPPORTED, "storage class"},
    {"a tensor of five arguments", P(REBUILD "(" STORAGE "K\0))\x89tR."), SD_ERR_FORMAT, "found 5"},
    {"a tensor of none", P(REBUILD ")R."), SD_ERR_FORMAT, "found 0"},
    {"a tensor of a tensor", P(REBUILD "(" TENSOR "K\0))\x89}tR."), SD_ERR_FORMAT, "expected a storage"},
    {"a tensor of a string",
     P(REBUILD "(X\1\0\0\0"
               "0K\0))\x89}tR."),
     SD_ERR_FORMAT, "expected a storage"},
    {"an offset that is None", P(REBUILD "(" STORAGE "N))\x89}tR."), SD_ERR_FORMAT, "offset"},
    {"a negative offset", P(REBUILD "(" STORAGE "J\xFF\xFF\xFF\xFF))\x89}tR."), SD_ERR_FORMAT, "-1 is negative"},
    {"a negative offset as long", P(REBUILD "(" STORAGE "\x8A\1\x80))\x89}tR."), SD_ERR_FORMAT, "-128 is negative"},
    {"an offset of 2^64", P(REBUILD "(" STORAGE "\x8A\x9\0\0\0\0\0\0\0\0\1))\x89}tR."), SD_ERR_FORMAT, "offset"},
    {"a negative dimension", P(REBUILD "(" STORAGE "K\0J\xFF\xFF\xFF\xFF\x85K\1\x85\x89}tR."), SD_ERR_FORMAT, "shape"},
    {"a negative stride", P(REBUILD "(" STORAGE "K\0K\2\x85J\xFF\xFF\xFF\xFF\x85\x89}tR."), SD_ERR_FORMAT, "stride"},
    {"a shape that is a list", P(REBUILD "(" STORAGE "K\0])\x89}tR."), SD_ERR_FORMAT, "shape"},
    {"a shape of strings",
     P(REBUILD "(" STORAGE "K\0X\1\0\0\0"
               "1\x85K\1\x85\x89}tR."),
     SD_ERR_FORMAT, "shape"},
    {"a boolean dimension", P(REBUILD "(" STORAGE "K\0\x88\x85K\1\x85\x89}tR."), SD_ERR_FORMAT, "shape"},
    {"nine dimensions", P(REBUILD "(" STORAGE "K\0(K\1K\1K\1K\1K\1K\1K\1K\1K\1t)\x89}tR."), SD_ERR_UNSUPPORTED,
     "9 dimensions"},
    {"more dimensions than strides", P(REBUILD "(" STORAGE "K\0K\1K\1\x86K\1\x85\x89}tR."), SD_ERR_FORMAT, "1 strides"},
    {"requires_grad is None", P(REBUILD "(" STORAGE "K\0))N}tR."), SD_ERR_FORMAT, "requires_grad"},
    {"hooks are None", P(REBUILD "(" STORAGE "K\0))\x89NtR."), SD_ERR_FORMAT, "hooks"},
    {"metadata that means something", P(REBUILD "(" STORAGE "K\0))\x89}}X\4\0\0\0conj\x88stR."), SD_ERR_UNSUPPORTED,
     "conjugated"},
    {"a parameter of None", P(GLOBAL("torch._utils", "_rebuild_parameter") "N\x88}\x87R."), SD_ERR_FORMAT,
     "parameter's data"},
    {"a parameter of two", P(GLOBAL("torch._utils", "_rebuild_parameter") TENSOR "\x88\x86R."), SD_ERR_FORMAT,
     "found 2"},
    /* persistent ids */
    {"a persistent string",
     P("X\1\0\0\0"
       "0Q."),
     SD_ERR_FORMAT, "expected a tuple"},
    {"a persistent pair", P("NN\x86Q."), SD_ERR_FORMAT, "found 2"},
    {"another kind of persistent object", P("(X\6\0\0\0moduleNNNNtQ."), SD_ERR_UNSUPPORTED, "not a storage"},
    {"a storage without class",
     P("(X\7\0\0\0storageNX\1\0\0\0"
       "0X\3\0\0\0cpuK\6tQ."),
     SD_ERR_FORMAT, "class"},
    {"OrderedDict as storage class",
     P("(X\7\0\0\0storage" GLOBAL("collections", "OrderedDict") "X\1\0\0\0"
                                                                "0X\3\0\0\0cpuK\6tQ."),
     SD_ERR_FORMAT, "class"},
    {"a key that is an integer", P("(X\7\0\0\0storage" GLOBAL("torch", "FloatStorage") "K\0X\3\0\0\0cpuK\6tQ."),
     SD_ERR_FORMAT, "key"},
    {"a device that is None",
     P("(X\7\0\0\0storage" GLOBAL("torch", "FloatStorage") "X\1\0\0\0"
                                                           "0NK\6tQ."),
     SD_ERR_FORMAT, "device"},
    {"a negative size",
     P("(X\7\0\0\0storage" GLOBAL("torch", "FloatStorage") "X\1\0\0\0"
                                                           "0X\3\0\0\0cpu"
                                                           "J\xFF\xFF\xFF\xFFtQ."),
     SD_ERR_FORMAT, "negative"},
    /* results */
    {"None", P("N."), SD_ERR_UNSUPPORTED, "holds None"},
    {"a tensor", P(TENSOR "."), SD_ERR_UNSUPPORTED, "holds a tensor"},
    {"a list", P("]."), SD_ERR_UNSUPPORTED, "holds a list"},
    {"an empty dict", P("}."), SD_ERR_FORMAT, "no tensor"},
    {"a dict of other things", P("}(X\1\0\0\0wNX\1\0\0\0vNu."), SD_ERR_FORMAT, "only 2 other values"},
    {"a state dict one level down",
     P("}X\12\0\0\0state_dict"
       "}X\1\0\0\0w" TENSOR "ss."),
     SD_ERR_UNSUPPORTED, "under \"state_dict\""},
    {"a state dict one level down under a number", P("}K\1}X\1\0\0\0w" TENSOR "ss."), SD_ERR_UNSUPPORTED,
     "one level down"},
    {"a tensor named by a number", P("}K\1" TENSOR "s."), SD_ERR_FORMAT, "name is an integer"},
    {"a name with NUL", P("}X\3\0\0\0a\0b" TENSOR "s."), SD_ERR_FORMAT, "\"a?b\""},
    {"a name that is not UTF-8", P("}X\1\0\0\0\xFF" TENSOR "s."), SD_ERR_FORMAT, "not UTF-8"},
};
enum { N_GOOD = sizeof good / sizeof *good, N_HOSTILE = sizeof hostile / sizeof *hostile };

static void run_programs(const struct program *programs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        sd_buf pickle = {0};
        sd_buf_add(&pickle, "\x80\2", 2);
        sd_buf_add(&pickle, programs[i].text, programs[i].len);
        sd_error err;
        int rc = run(pickle.data, pickle.len, &err);
        if (rc != programs[i].code || (programs[i].part && !strstr(err.message, programs[i].part))) {
            fail_msg("%s: returned %d with \"%s\"; expected %d with \"%s\"", programs[i].what, rc, err.message,
                     programs[i].code, programs[i].part ? programs[i].part : "");
        }
        sd_buf_free(&pickle);
    }
}

static void accepts_what_torch_may_write(void **state)
{
    (void)state;
    run_programs(good, N_GOOD);
}

static void refuses_hostile_programs(void **state)
{
    (void)state;
    run_programs(hostile, N_HOSTILE);
}

static void refuses_what_is_no_pickle(void **state)
{
    (void)state;
    sd_error err;
    sd_assert_fails(run("", 0, &err), SD_ERR_UNSUPPORTED, &err, "protocol");
    sd_assert_fails(run("\x80", 1, &err), SD_ERR_UNSUPPORTED, &err, "protocol");
    sd_assert_fails(run("(dp0\n.", 6, &err), SD_ERR_UNSUPPORTED, &err, "protocol"); /* protocol 0 */
    sd_assert_fails(run("\x80\2", 2, &err), SD_ERR_FORMAT, &err, "without STOP");
}

/* Each of the limits is met by a file that does nothing else. */
static void limits_hold(void **state)
{
    (void)state;
    sd_error err;
    sd_buf pickle = {0};
    assert_true(sd_buf_reserve(&pickle, SD_PICKLE_MAX_BYTES + 1));
    memset(pickle.data, '(', SD_PICKLE_MAX_BYTES + 1);
    memcpy(pickle.data, "\x80\2", 2);
    pickle.len = SD_PICKLE_MAX_BYTES + 1;
    sd_assert_fails(run(pickle.data, pickle.len, &err), SD_ERR_LIMIT, &err, "above the limit");
    pickle.len--;
    sd_assert_fails(run(pickle.data, pickle.len, &err), SD_ERR_LIMIT, &err, "values on the stack");

    memset(pickle.data + 2, '}', pickle.len - 2); /* nested as deep as the stack is: nothing recurses */
    memset(pickle.data + 2 + SD_PICKLE_MAX_STACK / 2, ']', SD_PICKLE_MAX_STACK / 2);
    sd_assert_fails(run(pickle.data, pickle.len, &err), SD_ERR_LIMIT, &err, "values on the stack");
    pickle.len = 2 + SD_PICKLE_MAX_STACK;
    memset(pickle.data + 2, 'N', pickle.len - 2);
    for (size_t i = 3; i < pickle.len; i++) {
        pickle.data[i] = (char)0x85; /* ((((None,),),),) */
    }
    pickle.data[pickle.len - 1] = '.';
    sd_assert_fails(run(pickle.data, pickle.len, &err), SD_ERR_UNSUPPORTED, &err, "holds a tuple");
    sd_buf_free(&pickle);
}

/* A dict that holds itself: no reader of it may follow the loop. */
static void survives_a_dict_that_holds_itself(void **state)
{
    (void)state;
    sd_error err;
    static const char loop[] = "\x80\2}q\0X\1\0\0\0wh\0sX\1\0\0\0v" TENSOR "s.";
    sd_assert_fails(run(loop, sizeof loop - 1, &err), SD_ERR_UNSUPPORTED, &err, "one level down");
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    sd_buf pickle = {0};
    static const char program[] = "\x80\2}(X\1\0\0\0w" TENSOR "q\0X\1\0\0\0v" TENSOR "q\1X\1\0\0\0a(NNtu}b.";
    sd_buf_add(&pickle, program, sizeof program - 1);
    sd_error err;
    sd_assert_ok(run(pickle.data, pickle.len, &err), &err);
    long n = 0, tried;
    do {
        sd_alloc_fail_at(++n);
        int rc = run(pickle.data, pickle.len, &err);
        tried = sd_alloc_count();
        sd_alloc_fail_at(0);
        if (tried >= n) {
            sd_assert_fails(rc, SD_ERR_MEMORY, &err, "memory");
        } else {
            sd_assert_ok(rc, &err);
        }
    } while (tried >= n);
    assert_true(n > 10);
    sd_buf_free(&pickle);
}

int main(void)
{
    _Static_assert(N_HOSTILE >= 30, "the list of hostile programs only grows");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(describes_a_tensor),
        cmocka_unit_test(knows_every_storage_class),
        cmocka_unit_test(accepts_what_torch_may_write),
        cmocka_unit_test(refuses_hostile_programs),
        cmocka_unit_test(refuses_what_is_no_pickle),
        cmocka_unit_test(limits_hold),
        cmocka_unit_test(survives_a_dict_that_holds_itself),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
