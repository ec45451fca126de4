/* SPDX-License-Identifier: MIT */
#include "src/base/alloc.h"
#include "src/engine/memory.h"
#include "src/engine/session.h"

void sd_scratch_clear(sd_scratch *w)
{
    float **arrays[] = {&w->x, &w->norm, &w->qkv, &w->attn, &w->ffn, &w->embed, &w->last, &w->narrow, &w->logits,
                        &w->scores};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        sd_free_aligned(*arrays[i]);
    }
    sd_free_aligned(w->packed);
    sd_free(w->piece);
    sd_free(w->bucket);
    sd_free(w->token_id);
    sd_free(w->token_pos);
    sd_free(w->output_of);
    *w = (sd_scratch){0};
}

/* Of a row: the widest packed input of any product. */
static size_t packed_bytes(const sd_model *model)
{
    const sd_config *c = &model->config;
    const int widths[] = {c->hidden, c->ffn, c->embed};
    const sd_wtype types[] = {model->layers[0].qkv.w.type, model->head.type};
    size_t most = 0;
    for (size_t i = 0; i < 6; i++) {
        const sd_wtype type = types[i % 2];
        const size_t bytes = model->kernels->pack_input[type] ? sd_packed_stride(type, widths[i / 2]) : 0;
        most = bytes > most ? bytes : most;
    }
    return most;
}

static int allocate(sd_scratch *w, const sd_model *model, sd_error *err)
{
    const sd_config *c = &model->config;
    size_t tokens = (size_t)w->tokens, outputs = (size_t)w->outputs, workers = (size_t)sd_pool_size(model->pool);
    size_t hidden = (size_t)c->hidden, embed = (size_t)c->embed;
    bool projected = c->embed != c->hidden;
    const struct {
        float **array;
        size_t rows, columns;
    } floats[] = {
        {&w->x, tokens, hidden}, {&w->norm, tokens, hidden}, {&w->qkv, tokens, 3 * hidden}, {&w->attn, tokens, hidden},
        {&w->ffn, tokens, (size_t)c->ffn}, {&w->embed, projected ? tokens : 0, embed}, {&w->last, outputs, hidden},
        {&w->narrow, projected ? outputs : 0, embed}, {&w->logits, outputs, (size_t)c->vocab},
        {&w->scores, workers, (size_t)c->max_positions},
    };
    size_t bytes = 0;
    bool ok = true;
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++) {
        size_t n = floats[i].rows * floats[i].columns;
        *floats[i].array = sd_malloc_aligned(n, sizeof(float));
        ok = ok && *floats[i].array;
        bytes += n * sizeof(float);
    }
    const size_t packed_rows = tokens > outputs ? tokens : outputs, packed_row = packed_bytes(model);
    w->packed = sd_malloc_aligned(packed_rows, packed_row);
    ok = ok && w->packed;
    w->bytes = bytes + packed_rows * packed_row;
    size_t pieces = (size_t)w->pieces;
    w->piece = sd_malloc(pieces, sizeof *w->piece);
    w->output_of = sd_malloc(pieces, sizeof *w->output_of);
    w->bucket = sd_malloc((size_t)c->n_layers + 2, sizeof *w->bucket);
    w->token_id = sd_malloc(tokens, sizeof *w->token_id);
    w->token_pos = sd_malloc(tokens, sizeof *w->token_pos);
    if (!ok || !w->piece || !w->output_of || !w->bucket || !w->token_id || !w->token_pos) {
        sd_scratch_clear(w);
        return sd_fail_memory(err, bytes, "the activations of a pass; use a smaller batch or prompt chunk");
    }
    return SD_OK;
}

static int larger(int a, int b) { return a > b ? a : b; }

int sd_scratch_reserve(sd_scratch *w, const sd_model *model, int tokens, int outputs, int pieces, sd_error *err)
{
    if (w->x && tokens <= w->tokens && outputs <= w->outputs && pieces <= w->pieces) {
        return SD_OK;
    }
    sd_scratch grown = {.tokens = larger(tokens, w->tokens), .outputs = larger(larger(outputs, w->outputs), 1),
                        .pieces = larger(pieces, w->pieces)};
    sd_scratch_clear(w);
    *w = grown;
    return allocate(w, model, err);
}

size_t sd_session_scratch_bytes(const sd_session *session) { return session->scratch.bytes; }
