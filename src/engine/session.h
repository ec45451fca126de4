/* SPDX-License-Identifier: MIT
 *
 * A session: rows, each with its own position, schedule and KV cache, and the scratch memory of a forward pass. The
 * public calls are in skipdecode.h; what generate/ needs besides is here, and the inside is for engine/ alone. */
#ifndef SD_ENGINE_SESSION_H
#define SD_ENGINE_SESSION_H

#include "src/engine/kv.h"
#include "src/model/model.h"
#include "src/schedule/schedule.h"

typedef struct sd_row {
    bool open;
    int n_prompt, max_tokens;
    int pos;                     /* tokens fed so far = the next token's absolute position */
    const sd_schedule *schedule; /* borrowed; NULL: all layers */
    int64_t layers_run;          /* over decode steps */
    uint64_t pass;               /* the last pass that fed this row: a row may stand in a pass once */
    sd_kv kv;
} sd_row;

/* One feed of a pass, in the order in which the pass works: by budget, the largest first. */
typedef struct sd_piece {
    sd_row *row;
    int feed;   /* index in the caller's array */
    int budget; /* layers that its tokens run */
    int first;  /* of its tokens among all tokens of the pass */
    int n;
    int start;  /* absolute position of its first token */
} sd_piece;

/* Activations of one pass, f32, row-major; sized for `tokens` tokens and `outputs` logits rows. */
typedef struct sd_scratch {
    int tokens, outputs, pieces;
    float *x;       /* [tokens, hidden] the residual stream */
    float *norm;    /* [tokens, hidden] */
    float *qkv;     /* [tokens, 3 * hidden] */
    float *attn;    /* [tokens, hidden] */
    float *ffn;     /* [tokens, ffn] */
    float *embed;   /* [tokens, embed], only with projections */
    float *last;    /* [outputs, hidden] the tokens whose logits are wanted */
    float *narrow;  /* [outputs, embed], only with projections */
    float *logits;  /* [outputs, vocab] */
    float *scores;  /* [workers, max_positions] */
    size_t bytes;   /* of all arrays of activations */
    char *packed;   /* [tokens] the inputs of a product in the form of its weights, sd_packed_stride apart */
    sd_piece *piece;   /* [pieces] */
    int *bucket;       /* [n_layers + 2] counting sort by budget */
    int *token_id, *token_pos; /* [tokens] */
    int *output_of;    /* [pieces] by feed: row of logits or -1 */
} sd_scratch;

struct sd_session {
    const sd_model *model;
    int max_rows, n_feeds;
    sd_row *rows;         /* [max_rows] */
    const sd_schedule *ranking; /* whose ranking all rows share; NULL: only full-depth rows are open */
    sd_scratch scratch;
    size_t kv_bytes;
    uint64_t pass;
};

/* Bytes from one packed row to the next: an odd number of cache lines, so that the same inputs of many rows do not fall
 * into the same few sets of the first-level cache. */
static inline size_t sd_packed_stride(sd_wtype type, int k) { return sd_input_bytes(type, k) | 64; }

sd_kv_shape sd_model_kv_shape(const sd_model *model);

/* Makes room for a pass; allocates only when a pass is larger than any before. */
int sd_scratch_reserve(sd_scratch *scratch, const sd_model *model, int tokens, int outputs, int pieces, sd_error *err);
void sd_scratch_clear(sd_scratch *scratch);

/* The forward pass over n sorted pieces holding `tokens` tokens. Everything has been checked; cannot fail. */
void sd_forward(sd_session *session, int n_pieces, int tokens, int outputs);

/* For measurements: the row's prompt counts as read, its keys and values as zeros. Right after sd_session_add. */
void sd_session_assume_prompt(sd_session *session, int row);

/* For measurements: back to the end of the prompt, to run the next steps on `schedule` (NULL: all layers). Its ranking
 * is that of the session's other rows, and it runs no layer that the row's own schedule did not plan a cache for. */
void sd_session_rewind(sd_session *session, int row, const sd_schedule *schedule);

int64_t sd_session_layers_run(const sd_session *session, int row); /* over the row's decode steps so far */

#endif
