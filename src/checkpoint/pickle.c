/* SPDX-License-Identifier: MIT
 *
 * The opcodes of Python's pickle protocols 2 to 5 that torch.save emits (their meaning: the comments of CPython's
 * Lib/pickletools.py). Every opcode reads at least one byte and none jumps, so the work is bounded by the pickle's
 * size; containers are never walked recursively, so nesting costs no stack. */
#include "src/checkpoint/pickle_machine.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/checkpoint/tensor_list.h"

typedef int op_function(sd_pickle_machine *m);

typedef struct opcode {
    const char *name;
    op_function *run;
} opcode;

static const opcode opcodes[256]; /* at the end of the file */

/* ---- helpers ---- */

const char *sd_pickle_kind_name(sd_pickle_kind kind)
{
    static const char *const names[] = {
        [SD_PICKLE_MARK] = "a mark",       [SD_PICKLE_NONE] = "None",      [SD_PICKLE_BOOL] = "a boolean",
        [SD_PICKLE_INT] = "an integer",    [SD_PICKLE_STRING] = "a string", [SD_PICKLE_OPAQUE] = "a float or bytes",
        [SD_PICKLE_LIST] = "a list",       [SD_PICKLE_TUPLE] = "a tuple",  [SD_PICKLE_DICT] = "a dict",
        [SD_PICKLE_GLOBAL] = "a name",     [SD_PICKLE_STORAGE] = "a storage", [SD_PICKLE_TENSOR] = "a tensor",
    };
    return names[kind];
}

int sd_pickle_fail(const sd_pickle_machine *m, int code, const char *format, ...)
{
    char sentence[512];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    const char *name = m->op_at < m->size ? opcodes[m->bytes[m->op_at]].name : NULL;
    return sd_fail(m->err, code, "pickle, byte %zu (%s): %s", m->op_at, name ? name : "end", sentence);
}

sd_pickle_object *sd_pickle_new_object(sd_pickle_machine *m, bool with_tensor)
{
    sd_pickle_object *object = sd_calloc(1, sizeof *object);
    if (object && with_tensor) {
        object->tensor = sd_calloc(1, sizeof *object->tensor);
        if (!object->tensor) {
            sd_free(object);
            object = NULL;
        }
    }
    if (!object) {
        (void)sd_fail_memory(m->err, sizeof *object, "a value of the pickle");
        return NULL;
    }
    object->next = m->objects;
    m->objects = object;
    return object;
}

/* Room for one more value in a growing array. */
static int grow(const sd_pickle_machine *m, sd_pickle_value **values, size_t n, size_t *cap)
{
    if (n < *cap) {
        return SD_OK;
    }
    size_t wider = *cap ? 2 * *cap : 16;
    sd_pickle_value *grown = sd_realloc(*values, wider, sizeof *grown);
    if (!grown) {
        return sd_fail_memory(m->err, wider * sizeof *grown, "the values of the pickle");
    }
    *values = grown;
    *cap = wider;
    return SD_OK;
}

static int push(sd_pickle_machine *m, sd_pickle_value value)
{
    if (m->n_stack == SD_PICKLE_MAX_STACK) {
        return sd_pickle_fail(m, SD_ERR_LIMIT, "more than %d values on the stack", SD_PICKLE_MAX_STACK);
    }
    int rc = grow(m, &m->stack, m->n_stack, &m->cap_stack);
    if (rc == SD_OK) {
        m->stack[m->n_stack++] = value;
    }
    return rc;
}

static int push_kind(sd_pickle_machine *m, sd_pickle_kind kind) { return push(m, (sd_pickle_value){.kind = kind}); }

static int push_integer(sd_pickle_machine *m, int64_t x)
{
    return push(m, (sd_pickle_value){.kind = SD_PICKLE_INT, .as.integer = x});
}

static int push_text(sd_pickle_machine *m, const unsigned char *text, size_t len)
{
    return push(m, (sd_pickle_value){.kind = SD_PICKLE_STRING, .len = len, .as.text = (const char *)text});
}

/* The value on top, which stays there; NULL with the error filled if there is none, or a mark. */
static sd_pickle_value *peek(sd_pickle_machine *m)
{
    if (m->n_stack == 0 || m->stack[m->n_stack - 1].kind == SD_PICKLE_MARK) {
        (void)sd_pickle_fail(m, SD_ERR_FORMAT, "expected a value on the stack, found %s",
                             m->n_stack ? "a mark" : "nothing");
        return NULL;
    }
    return &m->stack[m->n_stack - 1];
}

static int pop(sd_pickle_machine *m, sd_pickle_value *value)
{
    const sd_pickle_value *top = peek(m);
    if (!top) {
        return SD_ERR_FORMAT;
    }
    *value = *top;
    m->n_stack--;
    return SD_OK;
}

/* Position of the topmost mark: the values above it belong to the opcode. Each search is paid for by those values,
 * which the caller removes. */
static int find_mark(const sd_pickle_machine *m, size_t *mark)
{
    *mark = 0;
    for (size_t i = m->n_stack; i-- > 0;) {
        if (m->stack[i].kind == SD_PICKLE_MARK) {
            *mark = i;
            return SD_OK;
        }
    }
    return sd_pickle_fail(m, SD_ERR_FORMAT, "no mark on the stack");
}

/* The next n bytes; NULL with the error (SD_ERR_FORMAT) filled if there are fewer. */
static const unsigned char *take(sd_pickle_machine *m, uint64_t n)
{
    if (n > m->size - m->at) {
        (void)sd_pickle_fail(m, SD_ERR_FORMAT, "needs %llu more bytes, the pickle has %zu: it is truncated",
                             (unsigned long long)n, m->size - m->at);
        return NULL;
    }
    const unsigned char *p = m->bytes + m->at;
    m->at += (size_t)n;
    return p;
}

/* A little-endian number of n <= 8 bytes. */
static int take_number(sd_pickle_machine *m, size_t n, uint64_t *x)
{
    const unsigned char *p = take(m, n);
    *x = 0;
    if (!p) {
        return SD_ERR_FORMAT;
    }
    for (size_t i = n; i-- > 0;) {
        *x = *x << 8 | p[i];
    }
    return SD_OK;
}

/* ---- constants ---- */

static int op_none(sd_pickle_machine *m) { return push_kind(m, SD_PICKLE_NONE); }

static int op_true(sd_pickle_machine *m)
{
    return push(m, (sd_pickle_value){.kind = SD_PICKLE_BOOL, .as.integer = 1});
}

static int op_false(sd_pickle_machine *m)
{
    return push(m, (sd_pickle_value){.kind = SD_PICKLE_BOOL, .as.integer = 0});
}

static int unsigned_integer(sd_pickle_machine *m, size_t n)
{
    uint64_t x;
    int rc = take_number(m, n, &x);
    return rc == SD_OK ? push_integer(m, (int64_t)x) : rc;
}

static int op_binint1(sd_pickle_machine *m) { return unsigned_integer(m, 1); }
static int op_binint2(sd_pickle_machine *m) { return unsigned_integer(m, 2); }

static int op_binint(sd_pickle_machine *m)
{
    uint64_t x;
    int rc = take_number(m, 4, &x);
    return rc == SD_OK ? push_integer(m, (int32_t)(uint32_t)x) : rc;
}

/* n bytes, two's complement; beyond 64 bits it can be no size, so its value is not kept. */
static int long_integer(sd_pickle_machine *m, uint64_t n)
{
    if (n > sizeof(uint64_t)) {
        return take(m, n) ? push_kind(m, SD_PICKLE_OPAQUE) : SD_ERR_FORMAT;
    }
    uint64_t x;
    int rc = take_number(m, (size_t)n, &x);
    if (rc != SD_OK) {
        return rc;
    }
    if (n > 0 && n < sizeof x && x >> (8 * n - 1)) {
        x |= UINT64_MAX << (8 * n); /* extend the sign */
    }
    return push_integer(m, (int64_t)x);
}

static int op_long1(sd_pickle_machine *m)
{
    uint64_t n;
    int rc = take_number(m, 1, &n);
    return rc == SD_OK ? long_integer(m, n) : rc;
}

static int op_long4(sd_pickle_machine *m)
{
    uint64_t n;
    int rc = take_number(m, 4, &n);
    return rc == SD_OK ? long_integer(m, n) : rc;
}

static int op_binfloat(sd_pickle_machine *m)
{
    return take(m, 8) ? push_kind(m, SD_PICKLE_OPAQUE) : SD_ERR_FORMAT;
}

/* A length of `width` bytes, then so many bytes. */
static int counted(sd_pickle_machine *m, size_t width, bool text)
{
    uint64_t n;
    int rc = take_number(m, width, &n);
    if (rc != SD_OK) {
        return rc;
    }
    const unsigned char *p = take(m, n);
    if (!p) {
        return SD_ERR_FORMAT;
    }
    return text ? push_text(m, p, (size_t)n) : push_kind(m, SD_PICKLE_OPAQUE);
}

static int op_short_binunicode(sd_pickle_machine *m) { return counted(m, 1, true); }
static int op_binunicode(sd_pickle_machine *m) { return counted(m, 4, true); }
static int op_binunicode8(sd_pickle_machine *m) { return counted(m, 8, true); }
static int op_short_binbytes(sd_pickle_machine *m) { return counted(m, 1, false); }
static int op_binbytes(sd_pickle_machine *m) { return counted(m, 4, false); }
static int op_binbytes8(sd_pickle_machine *m) { return counted(m, 8, false); }

/* ---- stack and memo ---- */

static int op_mark(sd_pickle_machine *m) { return push_kind(m, SD_PICKLE_MARK); }

static int op_pop(sd_pickle_machine *m)
{
    if (m->n_stack == 0) {
        return sd_pickle_fail(m, SD_ERR_FORMAT, "the stack is empty");
    }
    m->n_stack--;
    return SD_OK;
}

static int op_pop_mark(sd_pickle_machine *m)
{
    size_t mark;
    int rc = find_mark(m, &mark);
    if (rc == SD_OK) {
        m->n_stack = mark;
    }
    return rc;
}

/* Picklers number their memo 0, 1, 2, ...; one byte of pickle per slot leaves room for any that skip a few. */
static int put(sd_pickle_machine *m, uint64_t slot)
{
    const sd_pickle_value *top = peek(m);
    if (!top) {
        return SD_ERR_FORMAT;
    }
    if (slot >= m->size) {
        return sd_pickle_fail(m, SD_ERR_FORMAT, "memo slot %llu in a pickle of %zu bytes", (unsigned long long)slot,
                              m->size);
    }
    while (m->n_memo <= slot) {
        int rc = grow(m, &m->memo, m->n_memo, &m->cap_memo);
        if (rc != SD_OK) {
            return rc;
        }
        m->memo[m->n_memo++] = (sd_pickle_value){.kind = SD_PICKLE_MARK};
    }
    m->memo[slot] = *top;
    return SD_OK;
}

static int get(sd_pickle_machine *m, uint64_t slot)
{
    if (slot >= m->n_memo || m->memo[slot].kind == SD_PICKLE_MARK) {
        return sd_pickle_fail(m, SD_ERR_FORMAT, "memo slot %llu was never filled", (unsigned long long)slot);
    }
    return push(m, m->memo[slot]);
}

static int op_binput(sd_pickle_machine *m)
{
    uint64_t slot;
    int rc = take_number(m, 1, &slot);
    return rc == SD_OK ? put(m, slot) : rc;
}

static int op_long_binput(sd_pickle_machine *m)
{
    uint64_t slot;
    int rc = take_number(m, 4, &slot);
    return rc == SD_OK ? put(m, slot) : rc;
}

static int op_memoize(sd_pickle_machine *m) { return put(m, m->n_memo); }

static int op_binget(sd_pickle_machine *m)
{
    uint64_t slot;
    int rc = take_number(m, 1, &slot);
    return rc == SD_OK ? get(m, slot) : rc;
}

static int op_long_binget(sd_pickle_machine *m)
{
    uint64_t slot;
    int rc = take_number(m, 4, &slot);
    return rc == SD_OK ? get(m, slot) : rc;
}

/* ---- containers ---- */

static int op_empty_tuple(sd_pickle_machine *m) { return push_kind(m, SD_PICKLE_TUPLE); }
static int op_empty_list(sd_pickle_machine *m) { return push_kind(m, SD_PICKLE_LIST); }

static int op_empty_dict(sd_pickle_machine *m)
{
    sd_pickle_object *object = sd_pickle_new_object(m, false);
    return object ? push(m, (sd_pickle_value){.kind = SD_PICKLE_DICT, .as.object = object}) : SD_ERR_MEMORY;
}

/* The top n values, which the caller has checked to be values, become one tuple; `below` entries of the stack stay. */
static int make_tuple(sd_pickle_machine *m, size_t below, size_t n)
{
    sd_pickle_value tuple = {.kind = SD_PICKLE_TUPLE};
    if (n > 0) {
        tuple.as.object = sd_pickle_new_object(m, false);
        if (!tuple.as.object) {
            return SD_ERR_MEMORY;
        }
        tuple.as.object->items = sd_malloc(n, sizeof tuple);
        if (!tuple.as.object->items) {
            return sd_fail_memory(m->err, n * sizeof tuple, "a tuple of the pickle");
        }
        memcpy(tuple.as.object->items, m->stack + m->n_stack - n, n * sizeof tuple);
        tuple.as.object->n = tuple.as.object->cap = n;
    }
    m->n_stack = below;
    return push(m, tuple);
}

static int op_tuple(sd_pickle_machine *m)
{
    size_t mark;
    int rc = find_mark(m, &mark);
    return rc == SD_OK ? make_tuple(m, mark, m->n_stack - mark - 1) : rc;
}

static int short_tuple(sd_pickle_machine *m, size_t n)
{
    for (size_t i = 1; i <= n; i++) {
        if (m->n_stack < i || m->stack[m->n_stack - i].kind == SD_PICKLE_MARK) {
            return sd_pickle_fail(m, SD_ERR_FORMAT, "expected %zu values on the stack, found %zu", n, i - 1);
        }
    }
    return make_tuple(m, m->n_stack - n, n);
}

static int op_tuple1(sd_pickle_machine *m) { return short_tuple(m, 1); }
static int op_tuple2(sd_pickle_machine *m) { return short_tuple(m, 2); }
static int op_tuple3(sd_pickle_machine *m) { return short_tuple(m, 3); }

/* Removes the stack from entry `from` on; what is then on top must be a `kind`, which stays. NULL with the error filled
 * if it is not: CVE-2026-24747 was this check missing. */
static sd_pickle_value *target(sd_pickle_machine *m, size_t from, sd_pickle_kind kind)
{
    m->n_stack = from;
    sd_pickle_value *top = peek(m);
    if (top && top->kind != kind) {
        (void)sd_pickle_fail(m, SD_ERR_FORMAT, "expected %s to add to, found %s", sd_pickle_kind_name(kind),
                             sd_pickle_kind_name(top->kind));
        return NULL;
    }
    return top;
}

static int op_append(sd_pickle_machine *m)
{
    sd_pickle_value value;
    int rc = pop(m, &value);
    if (rc != SD_OK) {
        return rc;
    }
    return target(m, m->n_stack, SD_PICKLE_LIST) ? SD_OK : SD_ERR_FORMAT;
}

static int op_appends(sd_pickle_machine *m)
{
    size_t mark;
    int rc = find_mark(m, &mark);
    if (rc != SD_OK) {
        return rc;
    }
    return target(m, mark, SD_PICKLE_LIST) ? SD_OK : SD_ERR_FORMAT;
}

static int add_item(sd_pickle_machine *m, sd_pickle_object *dict, const sd_pickle_value *key,
                    const sd_pickle_value *value)
{
    if (key->kind == SD_PICKLE_LIST || key->kind == SD_PICKLE_DICT) {
        return sd_pickle_fail(m, SD_ERR_FORMAT, "%s cannot be a key", sd_pickle_kind_name(key->kind));
    }
    const sd_pickle_value *pair[2] = {key, value};
    for (int i = 0; i < 2; i++) {
        int rc = grow(m, &dict->items, dict->n, &dict->cap);
        if (rc != SD_OK) {
            return rc;
        }
        dict->items[dict->n++] = *pair[i];
    }
    return SD_OK;
}

static int op_setitem(sd_pickle_machine *m)
{
    sd_pickle_value key, value;
    int rc = pop(m, &value);
    if (rc == SD_OK) {
        rc = pop(m, &key);
    }
    if (rc != SD_OK) {
        return rc;
    }
    const sd_pickle_value *dict = target(m, m->n_stack, SD_PICKLE_DICT);
    return dict ? add_item(m, dict->as.object, &key, &value) : SD_ERR_FORMAT;
}

static int op_setitems(sd_pickle_machine *m)
{
    size_t mark;
    int rc = find_mark(m, &mark);
    if (rc != SD_OK) {
        return rc;
    }
    size_t n = m->n_stack - mark - 1;
    const sd_pickle_value *items = m->stack + mark + 1; /* stay readable: removing them only lowers n_stack */
    if (n % 2 != 0) {
        return sd_pickle_fail(m, SD_ERR_FORMAT, "%zu keys and values are no pairs", n);
    }
    const sd_pickle_value *dict = target(m, mark, SD_PICKLE_DICT);
    if (!dict) {
        return SD_ERR_FORMAT;
    }
    for (size_t i = 0; i < n && rc == SD_OK; i += 2) {
        rc = add_item(m, dict->as.object, &items[i], &items[i + 1]);
    }
    return rc;
}

/* ---- names, and what they are applied to ---- */

static int take_line(sd_pickle_machine *m, const unsigned char **line, size_t *len)
{
    const unsigned char *newline = memchr(m->bytes + m->at, '\n', m->size - m->at);
    if (!newline) {
        return sd_pickle_fail(m, SD_ERR_FORMAT, "a name without an end: the pickle is truncated");
    }
    *line = m->bytes + m->at;
    *len = (size_t)(newline - *line);
    m->at += *len + 1;
    return SD_OK;
}

static int push_global(sd_pickle_machine *m, const char *module, size_t module_len, const char *name, size_t name_len)
{
    sd_pickle_value value;
    int rc = sd_pickle_resolve(m, module, module_len, name, name_len, &value);
    return rc == SD_OK ? push(m, value) : rc;
}

static int op_global(sd_pickle_machine *m)
{
    const unsigned char *module = NULL, *name = NULL;
    size_t module_len = 0, name_len = 0;
    int rc = take_line(m, &module, &module_len);
    if (rc == SD_OK) {
        rc = take_line(m, &name, &name_len);
    }
    return rc == SD_OK ? push_global(m, (const char *)module, module_len, (const char *)name, name_len) : rc;
}

static int op_stack_global(sd_pickle_machine *m)
{
    sd_pickle_value module, name;
    int rc = pop(m, &name);
    if (rc == SD_OK) {
        rc = pop(m, &module);
    }
    if (rc != SD_OK) {
        return rc;
    }
    if (module.kind != SD_PICKLE_STRING || name.kind != SD_PICKLE_STRING) {
        return sd_pickle_fail(m, SD_ERR_FORMAT, "expected two strings, found %s and %s",
                              sd_pickle_kind_name(module.kind), sd_pickle_kind_name(name.kind));
    }
    return push_global(m, module.as.text, module.len, name.as.text, name.len);
}

static int op_reduce(sd_pickle_machine *m)
{
    sd_pickle_value callee, args, result;
    int rc = pop(m, &args);
    if (rc == SD_OK) {
        rc = pop(m, &callee);
    }
    if (rc == SD_OK) {
        rc = sd_pickle_reduce(m, &callee, &args, &result);
    }
    return rc == SD_OK ? push(m, result) : rc;
}

/* A state dict carries "_metadata" (module versions) as an attribute: nothing here needs it. */
static int op_build(sd_pickle_machine *m)
{
    sd_pickle_value state;
    int rc = pop(m, &state);
    if (rc != SD_OK) {
        return rc;
    }
    if (state.kind != SD_PICKLE_DICT) {
        return sd_pickle_fail(m, SD_ERR_FORMAT, "expected a dict of attributes, found %s",
                              sd_pickle_kind_name(state.kind));
    }
    return target(m, m->n_stack, SD_PICKLE_DICT) ? SD_OK : SD_ERR_FORMAT;
}

static int op_binpersid(sd_pickle_machine *m)
{
    sd_pickle_value id, result;
    int rc = pop(m, &id);
    if (rc == SD_OK) {
        rc = sd_pickle_persistent(m, &id, &result);
    }
    return rc == SD_OK ? push(m, result) : rc;
}

/* ---- framing ---- */

static int op_proto(sd_pickle_machine *m)
{
    uint64_t version;
    int rc = take_number(m, 1, &version);
    if (rc == SD_OK && (version < 2 || version > 5)) {
        return sd_pickle_fail(m, SD_ERR_UNSUPPORTED, "protocol %llu; 2 to 5 are read", (unsigned long long)version);
    }
    return rc;
}

/* A frame only tells a reader how much to buffer, but one that lies is no pickle. */
static int op_frame(sd_pickle_machine *m)
{
    uint64_t length;
    int rc = take_number(m, 8, &length);
    if (rc == SD_OK && length > m->size - m->at) {
        return sd_pickle_fail(m, SD_ERR_FORMAT, "a frame of %llu bytes, %zu are left: the pickle is truncated",
                              (unsigned long long)length, m->size - m->at);
    }
    return rc;
}

static int op_stop(sd_pickle_machine *m)
{
    m->stopped = true;
    return SD_OK;
}

static const opcode opcodes[256] = {
    [0x80] = {"PROTO", op_proto},
    [0x95] = {"FRAME", op_frame},
    ['.'] = {"STOP", op_stop},
    ['('] = {"MARK", op_mark},
    ['0'] = {"POP", op_pop},
    ['1'] = {"POP_MARK", op_pop_mark},
    ['N'] = {"NONE", op_none},
    [0x88] = {"NEWTRUE", op_true},
    [0x89] = {"NEWFALSE", op_false},
    ['J'] = {"BININT", op_binint},
    ['K'] = {"BININT1", op_binint1},
    ['M'] = {"BININT2", op_binint2},
    [0x8A] = {"LONG1", op_long1},
    [0x8B] = {"LONG4", op_long4},
    ['G'] = {"BINFLOAT", op_binfloat},
    [0x8C] = {"SHORT_BINUNICODE", op_short_binunicode},
    ['X'] = {"BINUNICODE", op_binunicode},
    [0x8D] = {"BINUNICODE8", op_binunicode8},
    ['C'] = {"SHORT_BINBYTES", op_short_binbytes},
    ['B'] = {"BINBYTES", op_binbytes},
    [0x8E] = {"BINBYTES8", op_binbytes8},
    [')'] = {"EMPTY_TUPLE", op_empty_tuple},
    ['t'] = {"TUPLE", op_tuple},
    [0x85] = {"TUPLE1", op_tuple1},
    [0x86] = {"TUPLE2", op_tuple2},
    [0x87] = {"TUPLE3", op_tuple3},
    [']'] = {"EMPTY_LIST", op_empty_list},
    ['a'] = {"APPEND", op_append},
    ['e'] = {"APPENDS", op_appends},
    ['}'] = {"EMPTY_DICT", op_empty_dict},
    ['s'] = {"SETITEM", op_setitem},
    ['u'] = {"SETITEMS", op_setitems},
    ['q'] = {"BINPUT", op_binput},
    ['r'] = {"LONG_BINPUT", op_long_binput},
    [0x94] = {"MEMOIZE", op_memoize},
    ['h'] = {"BINGET", op_binget},
    ['j'] = {"LONG_BINGET", op_long_binget},
    ['c'] = {"GLOBAL", op_global},
    [0x93] = {"STACK_GLOBAL", op_stack_global},
    ['R'] = {"REDUCE", op_reduce},
    ['b'] = {"BUILD", op_build},
    ['Q'] = {"BINPERSID", op_binpersid},
};

static int run(sd_pickle_machine *m)
{
    if (m->size < 2 || m->bytes[0] != 0x80) {
        return sd_fail(m->err, SD_ERR_UNSUPPORTED,
                       "pickle: does not begin with a protocol number: protocols 2 to 5 are read");
    }
    while (!m->stopped) {
        m->op_at = m->at;
        if (m->at == m->size) {
            return sd_pickle_fail(m, SD_ERR_FORMAT, "ends without STOP: it is truncated");
        }
        unsigned char byte = m->bytes[m->at++];
        if (!opcodes[byte].run) {
            return sd_fail(
                m->err, SD_ERR_UNSUPPORTED,
                "pickle, byte %zu: opcode 0x%02X is not one that a state dict needs: save the model as safetensors",
                m->op_at, byte);
        }
        int rc = opcodes[byte].run(m);
        if (rc != SD_OK) {
            return rc;
        }
    }
    if (m->at != m->size) {
        return sd_pickle_fail(m, SD_ERR_FORMAT, "%zu bytes follow the end", m->size - m->at);
    }
    if (m->n_stack != 1) {
        return sd_pickle_fail(m, SD_ERR_FORMAT, "expected one value at the end, found %zu", m->n_stack);
    }
    return peek(m) ? SD_OK : SD_ERR_FORMAT;
}

static void clear(sd_pickle_machine *m)
{
    for (sd_pickle_object *object = m->objects; object;) {
        sd_pickle_object *next = object->next;
        sd_free(object->items);
        sd_free(object->tensor);
        sd_free(object);
        object = next;
    }
    sd_free(m->stack);
    sd_free(m->memo);
}

int sd_pickle_read(sd_state_dict *dict, const unsigned char *bytes, size_t size, sd_error *err)
{
    *dict = (sd_state_dict){0};
    if (size > SD_PICKLE_MAX_BYTES) {
        return sd_fail(err, SD_ERR_LIMIT, "pickle: %zu bytes are above the limit of %d: save the model as safetensors",
                       size, SD_PICKLE_MAX_BYTES);
    }
    sd_pickle_machine m = {.bytes = bytes, .size = size, .err = err};
    int rc = run(&m);
    if (rc == SD_OK) {
        rc = sd_pickle_collect(&m, &m.stack[0], dict);
    }
    clear(&m);
    if (rc != SD_OK) {
        sd_state_dict_free(dict);
    }
    return rc;
}

void sd_state_dict_free(sd_state_dict *dict)
{
    sd_free(dict->tensors);
    *dict = (sd_state_dict){0};
}
