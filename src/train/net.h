/* SPDX-License-Identifier: MIT
 *
 * A model that learns: f32 weights with gradients and AdamW's moments, and the loss of rows under schedules with its
 * gradient (docs/METHOD.md, Training). Each layer computes the tokens that run it and no others, forward and backward,
 * so a row under a schedule of five times fewer layers costs about a fifth. The same calls on the same machine and
 * number of threads give the same bits. */
#ifndef SD_TRAIN_NET_H
#define SD_TRAIN_NET_H

#include "src/model/model.h"

typedef struct sd_net sd_net;

typedef struct sd_net_options {
    const char *dir;          /* a checkpoint to start from; NULL: random weights */
    const sd_config *config;  /* borrowed for the call; a checkpoint's embedding decides over its vocabulary */
    uint64_t seed;            /* of random weights */
    int threads;              /* >= 1; 0: as for sd_model_options */
    bool bf16;                /* products of bf16 inputs, summed in f32 */
    float dropout;            /* after attention and after the feed-forward block, 0 <= dropout < 1 */
    int lora_rank;            /* 0: all weights are trained */
    float distill;            /* share of the loss that is the divergence from a teacher at full depth; 0: none */
    const char *teacher_dir;  /* a checkpoint of the same vocabulary; NULL: the weights of `dir` */
    int max_tokens;           /* of a micro-batch, prompts and responses */
    float init_std;           /* of random weights; 0: 0.02 */
} sd_net_options;

/* Borrowed for a call. Tokens fed are the prompt and all of the response but its last; the response is predicted. */
typedef struct sd_net_row {
    const int32_t *prompt;       /* [n_prompt], BOS included */
    const int32_t *response;     /* [n_response], its end token included */
    int n_prompt, n_response;    /* both >= 1 */
    const sd_schedule *schedule; /* NULL: all layers. All rows of a call have the same ranking */
} sd_net_row;

typedef struct sd_adamw { /* Loshchilov and Hutter, "Decoupled weight decay regularization", 2019 */
    double lr, beta1, beta2, epsilon;
    double weight_decay;     /* of matrices and tables; norms and biases have none */
    double scale;            /* the gradient is multiplied by this: clipping */
    int64_t step;            /* 1 for the first */
} sd_adamw;

/* Counts and bytes, nothing allocated: parameters, those that are trained, what weights, gradients, moments and teacher
 * take, and what a micro-batch of max_tokens at full depth takes at most. */
int sd_net_plan(const sd_net_options *options, int64_t *n_params, int64_t *n_trained, size_t *weight_bytes,
                size_t *activation_bytes, sd_error *err);

/* *out is the caller's. */
int sd_net_create(sd_net **out, const sd_net_options *options, sd_error *err);
void sd_net_free(sd_net *net); /* tolerates NULL */
const sd_config *sd_net_config(const sd_net *net);

/* ---- gradients ---- */

void sd_net_zero_gradients(sd_net *net);
float *sd_net_gradients(sd_net *net, size_t *n);  /* [n], all of them, in one piece; the net's */
double sd_net_gradient_norm(const sd_net *net);   /* L2, in double; not finite if a gradient is not */

/* nll [n_rows]: the sum over each row's response of -ln p(token). The gradient of all of it, times `scale`, is added to
 * the gradients (with distill: that of the mixed loss; nll is the same). noise: the seed of this call's dropout.
 * SD_ERR_ARG for rows that cannot be: an id outside the vocabulary, more positions than the model has, more tokens than
 * max_tokens. */
int sd_net_backward(sd_net *net, const sd_net_row *rows, int n_rows, float scale, uint64_t noise, double *nll,
                    sd_error *err);

/* The same sums, without dropout and gradients. */
int sd_net_loss(sd_net *net, const sd_net_row *rows, int n_rows, double *nll, sd_error *err);

void sd_net_adamw(sd_net *net, const sd_adamw *adamw);

/* ---- tensors by name, as in a checkpoint: for tests and reports ---- */

size_t sd_net_n_tensors(const sd_net *net);

/* name, shape: of tensor i, borrowed; *gradient likewise. */
typedef struct sd_net_tensor {
    const char *name;
    int rank;
    int64_t shape[2];
    const float *values, *gradient; /* [product of shape] */
} sd_net_tensor;
sd_net_tensor sd_net_tensor_at(const sd_net *net, size_t i);

/* ---- files ---- */

/* Weights and moments, to the last bit; written whole or not at all. */
int sd_net_save_state(const sd_net *net, const char *path, sd_error *err);
int sd_net_load_state(sd_net *net, const char *path, sd_error *err);

/* A safetensors file with the names that Hugging Face's OPTForCausalLM has. dtype: F32, F16 or BF16. */
int sd_net_save_weights(const sd_net *net, const char *path, sd_dtype dtype, sd_error *err);

#endif
