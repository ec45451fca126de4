/* SPDX-License-Identifier: MIT
 *
 * A loaded model: a configuration and named weights, bound and checked once, immutable from then on. After loading
 * there is no look-up by name and no weight that may be missing without the configuration saying so. */
#ifndef SD_MODEL_MODEL_H
#define SD_MODEL_MODEL_H

#include "include/skipdecode/skipdecode.h"
#include "src/base/pool.h"
#include "src/checkpoint/checkpoint.h"
#include "src/kernels/kernels.h"

typedef enum sd_mlp_activation { SD_MLP_RELU, SD_MLP_GELU, SD_MLP_GELU_TANH } sd_mlp_activation;

typedef struct sd_config {
    const char *arch;     /* "opt"; static storage */
    int n_layers, hidden, n_heads, head_dim, ffn, vocab;
    int embed;            /* width of the token embedding and of the head's input; hidden without projections */
    int max_positions;
    int position_offset;  /* row of the position table = position + this (OPT: 2) */
    bool pre_norm;        /* LayerNorm before each block (true) or after its residual sum (opt-350m) */
    bool final_norm;      /* a decoder-level norm before the head */
    bool bias;            /* linear layers have biases */
    bool norm_affine;     /* norms have gain and bias */
    bool tied;            /* the head is the token embedding */
    sd_mlp_activation activation;
    float norm_eps;
    int bos_id, eos_id, pad_id; /* -1: none */
} sd_config;

/* Reads config.json of a Hugging Face directory. Sizes must be there; flags that older files lack get the value that
 * the architecture had then. A key that this library does not know is named in a warning. */
int sd_config_load(sd_config *config, const char *dir, sd_error *err);
int sd_config_parse(sd_config *config, const char *text, size_t len, const char *name, sd_error *err);

typedef struct sd_norm {
    float *gain, *bias; /* [hidden], NULL where the configuration has none */
} sd_norm;

typedef struct sd_linear {
    sd_matrix w;
    float *bias; /* [w.n] or NULL */
} sd_linear;

typedef struct sd_layer {
    sd_norm attn_norm, ffn_norm;
    sd_linear qkv; /* [3 * hidden, hidden]: queries, keys, values */
    sd_linear out; /* [hidden, hidden] */
    sd_linear fc1; /* [ffn, hidden] */
    sd_linear fc2; /* [hidden, ffn] */
} sd_layer;

struct sd_model {
    sd_config config;
    sd_weight_type weights, head_weights; /* never AUTO */
    sd_kv_type kv;                        /* never AUTO */
    const sd_kernels *kernels;
    sd_pool *pool;
    sd_matrix embed;       /* [vocab, embed] */
    sd_matrix head;        /* [vocab, embed]; shares embed's data when tied */
    float *positions;      /* [max_positions + position_offset, hidden] */
    sd_linear project_in;  /* [hidden, embed], w.data NULL if embed == hidden */
    sd_linear project_out; /* [embed, hidden], likewise */
    sd_norm final_norm;
    sd_layer *layers;      /* [n_layers] */
    float attention_scale; /* 1 / sqrt(head_dim) */
    int64_t n_params;
    size_t weight_bytes;
};

const char *sd_weights_name(sd_weight_type weights); /* "auto", "f32", "bf16", "q8", "q4" */

/* Tells two models apart: a hash of the configuration and of a sample of every matrix, as held in memory. */
uint64_t sd_model_fingerprint(const sd_model *model);

/* ---- the row table: one fact, one place ----------------------------------------------------------------------------
 * A row describes one tensor of an architecture: its name in the checkpoint, its shape in symbols, when it exists, and
 * where it goes. Binding, size checks, parameter counts and (in training) saving all read this table. */

typedef enum sd_dim { SD_DIM_NONE, SD_DIM_VOCAB, SD_DIM_EMBED, SD_DIM_HIDDEN, SD_DIM_FFN, SD_DIM_POSITIONS } sd_dim;

typedef enum sd_slot {
    SD_SLOT_EMBED, SD_SLOT_POSITIONS, SD_SLOT_PROJECT_IN, SD_SLOT_PROJECT_OUT, SD_SLOT_FINAL_NORM_GAIN,
    SD_SLOT_FINAL_NORM_BIAS, SD_SLOT_HEAD,
    SD_SLOT_LAYER, /* the first of the per-layer slots */
    SD_SLOT_ATTN_NORM_GAIN = SD_SLOT_LAYER, SD_SLOT_ATTN_NORM_BIAS, SD_SLOT_Q, SD_SLOT_Q_BIAS, SD_SLOT_K,
    SD_SLOT_K_BIAS, SD_SLOT_V, SD_SLOT_V_BIAS, SD_SLOT_OUT, SD_SLOT_OUT_BIAS, SD_SLOT_FFN_NORM_GAIN,
    SD_SLOT_FFN_NORM_BIAS, SD_SLOT_FC1, SD_SLOT_FC1_BIAS, SD_SLOT_FC2, SD_SLOT_FC2_BIAS,
    SD_SLOTS
} sd_slot;

typedef struct sd_tensor_row {
    sd_slot slot;
    const char *name; /* after the prefix; "%d" stands for the layer */
    sd_dim dims[2];   /* the second is SD_DIM_NONE for vectors */
    bool (*exists)(const sd_config *config); /* NULL: always */
} sd_tensor_row;

typedef struct sd_arch {
    const char *name;                /* config.json's model_type */
    const char *const *prefixes;     /* NULL-terminated: what may stand before every name */
    const char *head_names[2];       /* names of the head, which stands outside the prefix */
    const sd_tensor_row *rows;
    size_t n_rows;
    int (*read_config)(sd_config *config, const void *json, sd_error *err); /* json: const json_t * */
} sd_arch;

extern const sd_arch sd_arch_opt;

/* The name of a row's tensor: the prefix, and the layer where the row has one for each. */
enum { SD_TENSOR_NAME = 256 };
void sd_tensor_row_name(char name[SD_TENSOR_NAME], const char *prefix, const sd_tensor_row *row, int layer);

/* NULL: no such architecture. */
const sd_arch *sd_arch_find(const char *model_type);
int64_t sd_config_dim(const sd_config *config, sd_dim dim);

/* Tensors of a checkpoint matched with the rows of an architecture. */
typedef struct sd_binding {
    const sd_arch *arch;
    const sd_tensor **global; /* [SD_SLOT_LAYER] */
    const sd_tensor **layers; /* [n_layers][SD_SLOTS - SD_SLOT_LAYER] */
} sd_binding;

/* Finds, and checks the shape and type of, every tensor that the configuration calls for; may lower config->vocab to
 * the embedding's row count. A missing, misshapen or unknown tensor is named. Release with sd_binding_clear. */
int sd_binding_make(sd_binding *binding, sd_config *config, const sd_checkpoint *checkpoint, sd_error *err);
void sd_binding_clear(sd_binding *binding);

#endif
