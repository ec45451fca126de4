/* SPDX-License-Identifier: MIT
 *
 * How a net is laid out: parameters in one array, and what a pass over a micro-batch keeps. */
#ifndef SD_TRAIN_NET_INTERNAL_H
#define SD_TRAIN_NET_INTERNAL_H

#include "src/train/net.h"
#include "src/train/net_math.h"

/* ---- parameters ---- */

typedef struct sd_param {
    char name[SD_TENSOR_NAME];
    const sd_tensor_row *row; /* NULL: the head */
    int layer, rank;
    int64_t shape[2];
    size_t at, n; /* elements of sd_params.values */
} sd_param;

#define SD_NO_PARAM SIZE_MAX

/* Queries, keys and values of a layer follow one another, so that they are one matrix and one bias. */
typedef struct sd_params {
    sd_config config;
    sd_param *list; /* [n_list] */
    size_t n_list, n;
    size_t global[SD_SLOT_LAYER];                         /* where a slot begins; SD_NO_PARAM: there is none */
    size_t (*layers)[SD_SLOTS - SD_SLOT_LAYER];           /* [n_layers] */
    float *values;                                        /* [n] */
} sd_params;

/* Everything but the values. Release with sd_params_clear. */
int sd_params_lay_out(sd_params *params, const sd_config *config, sd_error *err);
int sd_params_load(sd_params *params, const char *dir, sd_error *err); /* allocates and fills values */
int sd_params_random(sd_params *params, uint64_t seed, float std, sd_error *err);
void sd_params_clear(sd_params *params); /* tolerates {0} */

/* base: params->values, or an array of gradients in its layout. NULL where there is no such parameter. */
static inline float *sd_param_in(const sd_params *p, float *base, sd_slot slot, int layer)
{
    const size_t at = slot < SD_SLOT_LAYER ? p->global[slot] : p->layers[layer][slot - SD_SLOT_LAYER];
    return at == SD_NO_PARAM ? NULL : base + at;
}

/* ---- a pass ---- */

typedef struct sd_layer_kept { /* of the n tokens that ran the layer */
    int n;
    float *x;      /* [n, hidden] its input */
    float *qkv;    /* [n, 3 * hidden] */
    float *attn;   /* [n, hidden] */
    float *sums;   /* [n, heads] */
    float *mid;    /* [n, hidden] after the attention's residual sum */
    float *ffn;    /* [n, ffn] after ReLU, or before another activation */
    float *out;    /* [n, hidden] after the second residual sum; post-norm only */
    float *stats1, *stats2; /* [n, 2] of the norms */
} sd_layer_kept;

typedef struct sd_pass {
    const sd_params *params;
    int max_tokens, n_kept;    /* n_kept: layers whose states are kept; 1: all use the same */
    void *block;               /* all arrays below */
    size_t bytes;
    /* tokens, by falling budget: [tokens] */
    int tokens, outputs, n_rows;
    int32_t *id, *position, *row, *budget;
    uint32_t *key;             /* for dropout */
    int32_t *place;            /* [tokens] of row and position to place in the order, row by row */
    sd_attention_row *rows;    /* [n_rows] with n of the layer at hand */
    int32_t *row_length;       /* [n_rows] tokens fed */
    int32_t *output, *target;  /* [outputs] places whose next token is predicted, and the token */
    sd_layer_kept *kept;       /* [n_kept] */
    float *x, *normed, *wide;  /* [tokens, hidden], [tokens, hidden], [tokens, max(ffn, 3 hidden)] */
    float *narrow;             /* [tokens, embed] with projections */
    float *last, *last_stats, *last_normed, *last_narrow; /* [outputs, ...] the head's input, step by step */
    float *logits;             /* [logit_rows, vocab] */
    int logit_rows;
    double *nll;               /* [logit_rows] */
    float *dx, *dh, *dnarrow, *dlast; /* gradients; NULL in a pass without */
    float *attention_scratch;
    size_t attention_stride;
} sd_pass;

/* Bytes that a pass will need; or makes it. */
size_t sd_pass_bytes(const sd_config *config, int max_tokens, bool gradients, int threads);
int sd_pass_create(sd_pass *pass, const sd_params *params, int max_tokens, bool gradients, int threads, sd_error *err);
void sd_pass_clear(sd_pass *pass); /* tolerates {0} */

/* Lays the tokens of rows out. full: as if all had no schedule. */
int sd_pass_set(sd_pass *pass, const sd_net_row *rows, int n_rows, bool full, sd_error *err);

/* rank[l] of the layers; NULL: all run. rate: of dropout. keep: what a backward pass needs. Ends with the head's input
 * for the outputs, in the array that sd_pass_head_input returns: [outputs, embed]. */
void sd_pass_forward(sd_pass *pass, const int *ranks, float rate, uint64_t noise, bool keep);
float *sd_pass_head_input(const sd_pass *pass);
const float *sd_pass_head(const sd_pass *pass); /* [vocab, embed] */

/* From the gradient of the head's input in pass->dlast, [outputs, embed], to those of all parameters below it, added to
 * `gradients` (in the layout of the parameters). */
void sd_pass_backward(sd_pass *pass, float *gradients, const int *ranks, float rate, uint64_t noise);

struct sd_net {
    sd_pool *pool;
    sd_params params, teacher;
    float *gradients, *m, *v; /* [params.n] */
    sd_pass pass, teacher_pass;
    float *teacher_logits;    /* [logit_rows, vocab] */
    float dropout, distill;
    int threads, max_tokens;
};

#endif
