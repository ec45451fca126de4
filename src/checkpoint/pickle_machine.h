/* SPDX-License-Identifier: MIT
 *
 * The two halves of the pickle reader meet here: pickle.c runs opcodes on a stack of values, pickle_torch.c knows what
 * the allowed names mean. */
#ifndef SD_CHECKPOINT_PICKLE_MACHINE_H
#define SD_CHECKPOINT_PICKLE_MACHINE_H

#include "src/checkpoint/pickle.h"

typedef enum sd_pickle_kind {
    SD_PICKLE_MARK, /* a position on the stack, not a value: popping one is an error */
    SD_PICKLE_NONE, SD_PICKLE_BOOL, SD_PICKLE_INT, SD_PICKLE_STRING,
    SD_PICKLE_OPAQUE, /* a float, bytes or a long integer: may be there, is never used */
    SD_PICKLE_LIST,   /* contents checked and dropped: no state dict needs them */
    SD_PICKLE_TUPLE, SD_PICKLE_DICT, SD_PICKLE_GLOBAL, SD_PICKLE_STORAGE, SD_PICKLE_TENSOR
} sd_pickle_kind;

typedef enum sd_pickle_meaning {
    SD_MEANS_ORDERED_DICT, SD_MEANS_REBUILD_TENSOR, SD_MEANS_REBUILD_PARAMETER, SD_MEANS_STORAGE
} sd_pickle_meaning;

typedef struct sd_pickle_global {
    const char *module, *name;
    sd_pickle_meaning meaning;
    sd_dtype dtype; /* of a storage class */
} sd_pickle_global;

typedef struct sd_pickle_object sd_pickle_object;

typedef struct sd_pickle_value {
    sd_pickle_kind kind;
    size_t len; /* of text */
    union {
        int64_t integer;                /* BOOL, INT */
        const char *text;               /* STRING: [len], borrowed from the pickle */
        sd_pickle_object *object;       /* TUPLE (NULL: empty), DICT, STORAGE, TENSOR */
        const sd_pickle_global *global; /* GLOBAL */
    } as;
} sd_pickle_value;

struct sd_pickle_object {
    sd_pickle_object *next;     /* all objects of the machine, in one list for one teardown; none is freed earlier */
    sd_pickle_value *items;     /* TUPLE: [n]; DICT: key, value, key, value, ... [n] */
    size_t n, cap;
    sd_pickle_tensor *tensor;   /* STORAGE: dtype, key and storage_elements; TENSOR: all but the name */
};

typedef struct sd_pickle_machine {
    const unsigned char *bytes; /* [size] */
    size_t size, at;            /* at: the next byte to read */
    size_t op_at;               /* of the opcode being run, for messages */
    sd_pickle_value *stack;     /* [n_stack] */
    size_t n_stack, cap_stack;
    sd_pickle_value *memo;      /* [n_memo], MARK where nothing was put */
    size_t n_memo, cap_memo;
    sd_pickle_object *objects;
    bool stopped;
    sd_error *err;
} sd_pickle_machine;

/* Fails with the opcode's name and place in front of the sentence. Returns code. */
int sd_pickle_fail(const sd_pickle_machine *m, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
const char *sd_pickle_kind_name(sd_pickle_kind kind); /* "a tuple" */

/* A new object, or NULL with the error filled. with_tensor: tensor is allocated too, zeroed. */
sd_pickle_object *sd_pickle_new_object(sd_pickle_machine *m, bool with_tensor);

/* ---- pickle_torch.c: each turns what it is given into *result or fails ---- */

/* Finds the name on the allow-list. */
int sd_pickle_resolve(const sd_pickle_machine *m, const char *module, size_t module_len, const char *name,
                      size_t name_len, sd_pickle_value *result);
/* What callee(*args) would yield. args: a tuple */
int sd_pickle_reduce(sd_pickle_machine *m, const sd_pickle_value *callee, const sd_pickle_value *args,
                     sd_pickle_value *result);
/* ("storage", class, key, device, elements) */
int sd_pickle_persistent(sd_pickle_machine *m, const sd_pickle_value *id, sd_pickle_value *result);
int sd_pickle_collect(const sd_pickle_machine *m, const sd_pickle_value *top, sd_state_dict *dict);

#endif
