/* SPDX-License-Identifier: MIT
 *
 * skipdecode: autoregressive decoding on a fixed, shrinking budget of layers (SkipDecode, arXiv 2307.02628).
 *
 * Life of a program (examples/minimal.c runs exactly this):
 *
 *     sd_model *model;  sd_tokenizer *tok;  sd_error err;
 *     sd_model_load(&model, dir, NULL, &err);          weights: immutable, shared by any number of sessions
 *     sd_tokenizer_load(&tok, dir, &err);
 *     sd_generate(model, tok, requests, n, &options, results, &err);
 *
 * or, one level down, a session that the caller drives token by token: sd_session_add, _prefill, _step, _logits.
 *
 * Conventions
 *   - A function that can fail returns SD_OK (0) or a negative SD_ERR_* and, when `err` is not NULL, fills it with a
 *     sentence that names the thing, what was found and what was expected. Nothing in the library exits or aborts.
 *   - Layers, steps and positions are 0-based everywhere. `step` j feeds generated token j; the prompt has no step.
 *   - Every handle is freed with its *_free function, which accepts NULL.
 *   - A handle may be read by several threads; a session belongs to one thread at a time.
 */
#ifndef SKIPDECODE_H
#define SKIPDECODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define SD_API __attribute__((visibility("default")))
#else
#define SD_API
#endif

/* ---- errors and version ------------------------------------------------------------------------------------- */

enum {
    SD_OK = 0,
    SD_ERR_ARG = -1,         /* a value the caller gave is out of range or contradictory (exit code 2 in the program) */
    SD_ERR_IO = -2,          /* the operating system refused: open, read, write, sync, rename */
    SD_ERR_FORMAT = -3,      /* a file's bytes are not what its format allows */
    SD_ERR_UNSUPPORTED = -4, /* well-formed, but something this library does not compute */
    SD_ERR_MEMORY = -5,      /* an allocation failed */
    SD_ERR_LIMIT = -6,       /* a request is larger than the model's positions or the session's limits */
    SD_ERR_STATE = -7,       /* calls in the wrong order, or an internal invariant would break */
    SD_ERR_CANCELLED = -8    /* a callback asked to stop */
};

typedef struct sd_error {
    int code;           /* SD_OK or SD_ERR_* */
    char message[1024]; /* UTF-8, no newline at the end; empty when code is SD_OK */
} sd_error;

SD_API const char *sd_version(void);   /* "0.1.0"; static storage */
SD_API const char *sd_cpu_level(void); /* "ref", "avx2", "avx512" ...: the kernels in use; static storage */

/* Where warnings go, one sentence each without a newline; NULL (the default) drops them. Set before other calls. */
SD_API void sd_set_log(void (*log)(void *user, const char *message), void *user);

/* ---- model ---------------------------------------------------------------------------------------------------- */

typedef struct sd_model sd_model;

typedef enum sd_weight_type {
    SD_WEIGHTS_AUTO = 0, /* what a quantised file holds; bf16 if the checkpoint is bf16, else f32 */
    SD_WEIGHTS_F32,
    SD_WEIGHTS_BF16,
    SD_WEIGHTS_Q8,       /* 8 bits in blocks of 32 with an f16 scale: 8.5 bits a weight; activations as 8-bit blocks */
    SD_WEIGHTS_Q4        /* 4 bits likewise: 4.5 bits a weight */
} sd_weight_type;

typedef enum sd_kv_type { SD_KV_AUTO = 0, /* f32 with f32 weights, else f16 */ SD_KV_F32, SD_KV_F16 } sd_kv_type;

typedef struct sd_model_options {
    sd_weight_type weights; /* how weights are held in memory and computed with */
    sd_weight_type head;    /* the same for the output head; AUTO: as the weights, but q8 with q4 */
    sd_kv_type kv;          /* how keys and values are cached */
    int threads;            /* 0: from CPU affinity and the cgroup quota, one per physical core */
    bool no_mmap;           /* read files instead of mapping them */
} sd_model_options;

typedef struct sd_model_info {
    const char *arch;        /* "opt"; static storage */
    int n_layers, hidden_size, n_heads, head_dim, ffn_size, vocab_size;
    int max_positions;       /* longest prompt + generation, in tokens */
    int bos_id, eos_id, pad_id; /* -1 where the config has none */
    int64_t n_params;        /* parameters, a tied head counted once */
    size_t weight_bytes;     /* resident bytes of the packed weights */
    size_t layer_bytes;      /* of these, one decoder layer: what a decode step streams per layer run */
    size_t head_bytes;       /* of these, the output head: streamed at every step whatever the budget */
    sd_weight_type weights, head; /* never AUTO */
    sd_kv_type kv;           /* never AUTO */
    int threads;             /* size of the pool */
} sd_model_info;

SD_API void sd_model_options_default(sd_model_options *options);

/* Loads a Hugging Face model directory: config.json with model.safetensors, sharded safetensors, pytorch_model.bin or
 * sharded .bin; or one that `skipdecode quantize` wrote, whose weight types are fixed. options: NULL for the defaults.
 * On success *out is the caller's. */
SD_API int sd_model_load(sd_model **out, const char *dir, const sd_model_options *options, sd_error *err);
SD_API void sd_model_free(sd_model *model); /* after its sessions */
SD_API void sd_model_get_info(const sd_model *model, sd_model_info *info);

/* ---- tokenizer ------------------------------------------------------------------------------------------------ */

typedef struct sd_tokenizer sd_tokenizer;

enum {
    SD_ENCODE_BOS = 1,     /* put the BOS id in front, once, if the tokenizer's configuration asks for one */
    SD_ENCODE_SPECIALS = 2 /* text such as "</s>" becomes the special token; never set it for a user's text */
};

/* Byte-level BPE from vocab.json + merges.txt or tokenizer.json in `dir`. *out is the caller's. */
SD_API int sd_tokenizer_load(sd_tokenizer **out, const char *dir, sd_error *err);
SD_API void sd_tokenizer_free(sd_tokenizer *tok);
SD_API int sd_tokenizer_size(const sd_tokenizer *tok); /* ids are 0 .. size-1 */

/* text: `len` bytes, any bytes. Writes the count to *n_ids always; fills ids[0..cap) and fails with SD_ERR_LIMIT when
 * cap is too small (call again with *n_ids; ids may be NULL when cap is 0). */
SD_API int sd_tokenizer_encode(const sd_tokenizer *tok, const char *text, size_t len, unsigned flags, int32_t *ids,
                               size_t cap, size_t *n_ids, sd_error *err);

/* The bytes of `n` ids, special tokens left out, always valid UTF-8 (a malformed sequence becomes U+FFFD by Unicode's
 * maximal-subpart rule). Writes the length without the final NUL to *len always; SD_ERR_LIMIT when cap <= *len. */
SD_API int sd_tokenizer_decode(const sd_tokenizer *tok, const int32_t *ids, size_t n, char *text, size_t cap,
                               size_t *len, sd_error *err);

/* ---- schedule: which layers run at which step (docs/METHOD.md) -------------------------------------------------- */

typedef struct sd_schedule sd_schedule;

enum { SD_PROMPT_FULL = -1, SD_PROMPT_MAX = -2 };

/* A policy is a ranking of the layers and a non-increasing budget: layer l runs at step j iff rank(l) < k(j).
 * Fill by sd_schedule_options_default, sd_schedule_preset or sd_schedule_parse, then change what you like. */
typedef struct sd_schedule_options {
    bool full;              /* all layers at every step; the fields below are ignored */
    int warmup;             /* bottom layers that every token runs, >= 0; default 1 */
    int max_layers;         /* budget at step 0, warm-up included; 0: all layers */
    int min_layers;         /* budget from step horizon-1 on; 0: the same as max_layers */
    int horizon;            /* steps over which the budget falls; 0: the request's max_tokens */
    int prompt;             /* budget of the prompt: SD_PROMPT_FULL, SD_PROMPT_MAX or layers in max_layers .. L */
    const int *budgets;     /* [n_budgets] explicit budgets instead of the line, the last one holds; NULL: the line */
    int n_budgets;
    const int *ranking;     /* [n_ranking] layers, the one given up last first; NULL: SkipDecode's own */
    int n_ranking;
} sd_schedule_options;

SD_API void sd_schedule_options_default(sd_schedule_options *options); /* all layers at every step */

/* The preset for a target layer speedup: mean budget L/s, falling from 4/3 to 2/3 of it. speedup >= 1. */
SD_API int sd_schedule_preset(sd_schedule_options *options, int n_layers, double speedup, sd_error *err);

/* The same for a policy by name: "skipdecode", or one to compare it with: "early-exit", "spread", and "unified", whose
 * set of layers never changes (docs/METHOD.md). *options then owns the ranking: sd_schedule_options_clear. */
SD_API int sd_schedule_policy(sd_schedule_options *options, const char *policy, int n_layers, double speedup,
                              sd_error *err);

/* A preset by the clock: the largest budget whose decode is predicted to take 1/speedup of full depth's seconds, for
 * batches of `rows` rows with prompts of n_prompt tokens that decode `steps` steps. Measures the model on this machine,
 * a second or two. *predicted below `speedup`: out of reach, and *options is the fastest there is. Keeps the warm-up,
 * horizon (0: becomes `steps`), ranking and prompt of *options. */
SD_API int sd_schedule_for_wall(sd_schedule_options *options, const sd_model *model, double speedup, int rows,
                                int n_prompt, int steps, double *predicted, sd_error *err);

/* Reads "warmup=1,max=16,min=8,horizon=64,prompt=full", "budgets=24:16:8", "ranking=0:23:22:..." or "full" into an
 * options struct, over what it holds. Its lists are then the struct's own: release them with sd_schedule_options_clear.
 * Lists of the caller's own are only lent, so they never go into a struct that is parsed into, preset or cleared. */
SD_API int sd_schedule_parse(sd_schedule_options *options, const char *text, sd_error *err);
SD_API void sd_schedule_options_clear(sd_schedule_options *options);

/* Makes and checks a schedule for a model of n_layers and a request of max_tokens. *out is the caller's. */
SD_API int sd_schedule_create(sd_schedule **out, int n_layers, int max_tokens, const sd_schedule_options *options,
                              sd_error *err);
SD_API void sd_schedule_free(sd_schedule *schedule);
SD_API int sd_schedule_n_layers(const sd_schedule *schedule);
SD_API int sd_schedule_budget(const sd_schedule *schedule, int step);         /* k(step), layers */
SD_API int sd_schedule_prompt_budget(const sd_schedule *schedule);            /* k_p, layers */
SD_API bool sd_schedule_runs(const sd_schedule *schedule, int layer, int step); /* step -1: the prompt */
SD_API int sd_schedule_layer_steps(const sd_schedule *schedule, int layer, int steps); /* steps of 0..steps-1 it runs */
SD_API double sd_schedule_layer_speedup(const sd_schedule *schedule, int steps); /* L * steps / sum k(j) */

/* ---- session: rows with KV caches, driven token by token -------------------------------------------------------- */

typedef struct sd_session sd_session;

SD_API int sd_session_create(sd_session **out, const sd_model *model, int max_rows, sd_error *err);
SD_API void sd_session_free(sd_session *session);

/* Opens a row: plans its KV from the schedule (layer l: n_prompt + the steps in which l runs) and allocates just that.
 * max_tokens: most tokens the row will generate; the last one is never fed back, so steps 0 .. max_tokens-2 may run.
 * schedule: borrowed until the row is removed; NULL for all layers. Returns the row in *row. */
SD_API int sd_session_add(sd_session *session, int n_prompt, int max_tokens, const sd_schedule *schedule, int *row,
                          sd_error *err);
SD_API void sd_session_remove(sd_session *session, int row);

/* One pass of the model over the given pieces of rows: prompt tokens while the row's prompt is unfinished, then exactly
 * one generated token a call. Rows may be mixed freely; a row's results do not depend on what else is in the pass. */
typedef struct sd_feed {
    int row;
    const int32_t *ids; /* [n] */
    int n;
} sd_feed;
SD_API int sd_session_forward(sd_session *session, const sd_feed *feeds, int n_feeds, sd_error *err);

/* Logits after the last token of feed i of the last pass: [vocab_size] f32, valid until the next call. NULL for a feed
 * that left its prompt unfinished. */
SD_API const float *sd_session_logits(const sd_session *session, int feed);
SD_API size_t sd_session_kv_bytes(const sd_session *session); /* allocated now, all rows */

/* What sd_session_add would allocate; 0 for a row or a schedule that it would refuse. */
SD_API size_t sd_kv_planned_bytes(const sd_model *model, int n_prompt, int max_tokens, const sd_schedule *schedule);

/* ---- generation -------------------------------------------------------------------------------------------------- */

typedef struct sd_sampling {
    float temperature;        /* 0: greedy (lowest id wins ties); default 0 */
    int top_k;                /* 0: off */
    float top_p;              /* 1: off */
    float min_p;              /* 0: off */
    float repetition_penalty; /* 1: off; over the prompt and the generated tokens */
    uint64_t seed;
} sd_sampling;

typedef struct sd_request {
    const int32_t *prompt;   /* [n_prompt], BOS included */
    int n_prompt;
    int max_tokens;          /* >= 1 */
    sd_sampling sampling;
    const char *const *stop; /* [n_stop] UTF-8 stop strings, left out of the text; at most 16, none empty */
    int n_stop;
    const int32_t *stop_ids; /* [n_stop_ids] end the row like the model's own end token */
    int n_stop_ids;
    bool ignore_eos;
    bool logprobs;           /* fill sd_result.logprobs */
    const int32_t *forced;   /* [n_forced] take these tokens instead of sampling, and end with the last; NULL: sample.
                              * A stop string ends such a row too, an end token does not */
    int n_forced;            /* 1 .. max_tokens */
} sd_request;

typedef enum sd_finish { SD_FINISH_NONE = 0, SD_FINISH_STOP, SD_FINISH_LENGTH } sd_finish;

typedef struct sd_result { /* filled by sd_generate; release with sd_result_clear */
    char *text;              /* [text_len] UTF-8, with a NUL after it; a model may also generate NULs */
    size_t text_len;
    int32_t *ids;            /* [n_ids] generated tokens, the end token included if there was one */
    float *logprobs;         /* [n_ids] natural log-probability before any sampling filter; NULL unless asked for */
    int n_ids;
    sd_finish finish;
    int64_t layers_run;      /* sum of layers over decode steps */
    int steps;               /* decode steps: n_ids - 1 for a row that produced anything */
} sd_result;

typedef struct sd_generate_options {
    sd_schedule_options schedule; /* of every request */
    int batch;                    /* rows decoded together; default 32 */
    int prefill_tokens;           /* most prompt tokens in one pass; default 512 */
    /* After each token (finish NONE) and once when request i ends, its result then complete. piece: [len] UTF-8 text
     * not delivered before, whole characters. Return false to cancel everything. */
    bool (*on_token)(void *user, int request, const char *piece, size_t len, sd_finish finish);
    void *user;
} sd_generate_options;

typedef struct sd_timing { /* what sd_generate measured, seconds and tokens over all requests */
    double prefill_seconds, decode_seconds;
    int64_t prompt_tokens, generated_tokens, decode_steps, layers_run;
    size_t kv_peak_bytes;
} sd_timing;

SD_API void sd_sampling_default(sd_sampling *sampling);
SD_API void sd_generate_options_default(sd_generate_options *options);

/* requests, results: [n]. Results come in the order of the requests; timing may be NULL. */
SD_API int sd_generate(const sd_model *model, const sd_tokenizer *tok, const sd_request *requests, int n,
                       const sd_generate_options *options, sd_result *results, sd_timing *timing, sd_error *err);
SD_API void sd_result_clear(sd_result *result);

#ifdef __cplusplus
}
#endif
#endif
