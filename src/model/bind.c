/* SPDX-License-Identifier: MIT
 *
 * Matching a checkpoint's tensors with an architecture's rows: names with any of the known prefixes, exact shapes, a
 * type that can be read, and a head that is tied, absent, separate, or there twice. */
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/model/model.h"

enum { NAME_SIZE = SD_TENSOR_NAME };

static bool slot_is_per_layer(sd_slot slot) { return slot >= SD_SLOT_LAYER; }

void sd_tensor_row_name(char name[SD_TENSOR_NAME], const char *prefix, const sd_tensor_row *row, int layer)
{
    const char *mark = strstr(row->name, "%d");
    if (mark) {
        (void)snprintf(name, NAME_SIZE, "%s%.*s%d%s", prefix, (int)(mark - row->name), row->name, layer, mark + 2);
    } else {
        (void)snprintf(name, NAME_SIZE, "%s%s", prefix, row->name);
    }
}

/* The prefix under which this checkpoint keeps its names, found by the first layer's first matrix; NULL: none fits. */
static const char *find_prefix(const sd_arch *arch, const sd_checkpoint *checkpoint)
{
    for (const char *const *prefix = arch->prefixes; *prefix; prefix++) {
        for (size_t i = 0; i < arch->n_rows; i++) {
            char name[NAME_SIZE];
            sd_tensor_row_name(name, *prefix, &arch->rows[i], 0);
            if (slot_is_per_layer(arch->rows[i].slot) && sd_checkpoint_find(checkpoint, name)) {
                return *prefix;
            }
        }
    }
    return NULL;
}

static void shape_text(char *text, size_t size, const int64_t *shape, int rank)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < rank && used < size; i++) {
        int n = snprintf(text + used, size - used, "%s%lld", i ? ", " : "", (long long)shape[i]);
        used += n > 0 ? (size_t)n : 0;
    }
}

static int check_tensor(const sd_tensor *t, const sd_config *config, const sd_dim dims[2], sd_error *err)
{
    if (t->dtype != SD_DTYPE_F32 && t->dtype != SD_DTYPE_F16 && t->dtype != SD_DTYPE_BF16 && t->dtype != SD_DTYPE_F64) {
        return sd_fail(err, SD_ERR_UNSUPPORTED, "%s: tensor \"%s\" is of type %s; expected F32, F16, BF16 or F64",
                       t->file, t->name, sd_dtype_name(t->dtype));
    }
    int rank = dims[1] == SD_DIM_NONE ? 1 : 2;
    int64_t want[2] = {sd_config_dim(config, dims[0]), sd_config_dim(config, dims[1])};
    bool ok = t->rank == rank;
    for (int i = 0; ok && i < rank; i++) {
        /* a position table may have spare rows; bind_row has refused one that is too short */
        ok = t->shape[i] == want[i] || (dims[i] == SD_DIM_POSITIONS && t->shape[i] > want[i]);
    }
    if (!ok) {
        char found[128], expected[64];
        shape_text(found, sizeof found, t->shape, t->rank);
        shape_text(expected, sizeof expected, want, rank);
        return sd_fail(err, SD_ERR_FORMAT, "%s: tensor \"%s\" has shape [%s]; config.json calls for [%s]", t->file,
                       t->name, found, expected);
    }
    return SD_OK;
}

/* The vocabulary's size is the embedding's row count, whatever config.json says (padded or resized checkpoints). */
static int adopt_vocab(sd_config *config, const sd_tensor *t, sd_error *err)
{
    if (t->rank == 2 && t->shape[0] != config->vocab) {
        if (t->shape[0] < 1 || t->shape[0] > 1 << 24) {
            return sd_fail(err, SD_ERR_FORMAT,
                           "%s: tensor \"%s\" has %lld rows; expected one per token of the vocabulary (%d)", t->file,
                           t->name, (long long)t->shape[0], config->vocab);
        }
        sd_warn("%s: tensor \"%s\" has %lld rows where config.json says vocab_size %d; going by the tensor", t->file,
                t->name, (long long)t->shape[0], config->vocab);
        config->vocab = (int)t->shape[0];
    }
    return SD_OK;
}

static bool same_values(const sd_tensor *a, const sd_tensor *b)
{
    if (a->dtype != b->dtype || a->rank != b->rank || a->n_elements != b->n_elements) {
        return false;
    }
    return a->data == b->data || memcmp(a->data, b->data, (size_t)a->n_elements * sd_dtype_size(a->dtype)) == 0;
}

/* Embedding and head: either may be missing when they are one matrix. */
static int bind_head(sd_binding *b, sd_config *config, const sd_checkpoint *checkpoint, const char *embed_name,
                     sd_error *err)
{
    const sd_tensor *head = NULL, *embed = sd_checkpoint_find(checkpoint, embed_name);
    for (int i = 0; i < 2 && !head; i++) {
        head = sd_checkpoint_find(checkpoint, b->arch->head_names[i]);
    }
    if (!embed && !(head && config->tied)) {
        return sd_fail(err, SD_ERR_FORMAT, "tensor \"%s\" is missing", embed_name);
    }
    if (!head && !config->tied) {
        return sd_fail(err, SD_ERR_FORMAT,
                       "tensor \"%s\" is missing, though config.json says that the head is not tied to the "
                       "embedding (tie_word_embeddings false)",
                       b->arch->head_names[0]);
    }
    if (embed && head && config->tied && !same_values(embed, head)) {
        sd_warn("%s: \"%s\" differs from \"%s\", but config.json ties them; the head is the embedding", head->file,
                head->name, embed->name);
    }
    b->global[SD_SLOT_EMBED] = embed ? embed : head;
    b->global[SD_SLOT_HEAD] = config->tied ? NULL : head;
    static const sd_dim dims[2] = {SD_DIM_VOCAB, SD_DIM_EMBED};
    int rc = adopt_vocab(config, b->global[SD_SLOT_EMBED], err);
    if (rc == SD_OK) {
        rc = check_tensor(b->global[SD_SLOT_EMBED], config, dims, err);
    }
    if (rc == SD_OK && b->global[SD_SLOT_HEAD]) {
        rc = check_tensor(b->global[SD_SLOT_HEAD], config, dims, err);
    }
    return rc;
}

static int bind_row(sd_binding *b, const sd_tensor_row *row, int layer, const sd_config *config,
                    const sd_checkpoint *checkpoint, const char *prefix, sd_error *err)
{
    char name[NAME_SIZE];
    sd_tensor_row_name(name, prefix, row, layer);
    const sd_tensor *t = sd_checkpoint_find(checkpoint, name);
    if (!t) {
        return sd_fail(err, SD_ERR_FORMAT, "tensor \"%s\" is missing%s", name,
                       row->slot == SD_SLOT_FINAL_NORM_GAIN || row->slot == SD_SLOT_FINAL_NORM_BIAS
                           ? " (a checkpoint made without it says \"_remove_final_layer_norm\": true in config.json)"
                           : "");
    }
    if (row->slot == SD_SLOT_POSITIONS && t->rank == 2 && t->shape[0] < sd_config_dim(config, SD_DIM_POSITIONS)) {
        return sd_fail(err, SD_ERR_FORMAT,
                       "%s: tensor \"%s\" has %lld rows; max_position_embeddings %d needs %lld, %d more than "
                       "positions",
                       t->file, name, (long long)t->shape[0], config->max_positions,
                       (long long)sd_config_dim(config, SD_DIM_POSITIONS), config->position_offset);
    }
    int rc = check_tensor(t, config, row->dims, err);
    if (slot_is_per_layer(row->slot)) {
        b->layers[(size_t)layer * (SD_SLOTS - SD_SLOT_LAYER) + (size_t)(row->slot - SD_SLOT_LAYER)] = t;
    } else {
        b->global[row->slot] = t;
    }
    return rc;
}

/* Is this tensor one that the rows call for, or a leftover that holds no weights? */
static bool expected_tensor(const sd_binding *b, const sd_config *config, const char *prefix, const char *tensor)
{
    for (int i = 0; i < 2; i++) {
        if (strcmp(tensor, b->arch->head_names[i]) == 0) {
            return true;
        }
    }
    if (strncmp(tensor, prefix, strlen(prefix)) != 0) {
        return false;
    }
    const char *rest = tensor + strlen(prefix);
    if (strcmp(rest, "version") == 0 || strcmp(rest, "embed_positions._float_tensor") == 0) {
        return true; /* buffers of the toolkit that trained OPT */
    }
    int layer = 0, used = 0;
    bool in_layer = sscanf(rest, "layers.%d.%n", &layer, &used) == 1 && used > 0;
    if (in_layer && (layer < 0 || layer >= config->n_layers)) {
        return false;
    }
    for (size_t i = 0; i < b->arch->n_rows; i++) {
        const sd_tensor_row *row = &b->arch->rows[i];
        char name[NAME_SIZE];
        sd_tensor_row_name(name, "", row, layer);
        if (strcmp(name, rest) == 0 && (!row->exists || row->exists(config))) {
            return true;
        }
    }
    return false;
}

static int reject_unknown(const sd_binding *b, const sd_config *config, const sd_checkpoint *checkpoint,
                          const char *prefix, sd_error *err)
{
    const sd_tensor *first = NULL;
    size_t unknown = 0;
    for (size_t i = 0; i < sd_checkpoint_count(checkpoint); i++) {
        const sd_tensor *t = sd_checkpoint_at(checkpoint, i);
        if (!expected_tensor(b, config, prefix, t->name)) {
            first = first ? first : t;
            unknown++;
        }
    }
    if (!first) {
        return SD_OK;
    }
    return sd_fail(err, SD_ERR_FORMAT,
                   "%s: tensor \"%s\"%s has no place in the \"%s\" model that config.json describes (%d layers): "
                   "wrong config.json, or a model that this version cannot compute",
                   first->file, first->name, unknown > 1 ? " (and others)" : "", b->arch->name, config->n_layers);
}

int sd_binding_make(sd_binding *b, sd_config *config, const sd_checkpoint *checkpoint, sd_error *err)
{
    *b = (sd_binding){.arch = sd_arch_find(config->arch)};
    size_t per_layer = SD_SLOTS - SD_SLOT_LAYER;
    b->global = sd_calloc(SD_SLOT_LAYER, sizeof(sd_tensor *));
    b->layers = sd_calloc((size_t)config->n_layers * per_layer, sizeof(sd_tensor *));
    if (!b->global || !b->layers) {
        sd_binding_clear(b);
        return sd_fail_memory(err, (size_t)config->n_layers * per_layer * sizeof(sd_tensor *), "the tensor table");
    }
    const char *prefix = find_prefix(b->arch, checkpoint);
    int rc = SD_OK;
    if (!prefix) {
        rc = sd_fail(err, SD_ERR_FORMAT,
                     "none of the %zu tensors is one of an \"%s\" model; expected names like "
                     "\"%slayers.0.fc1.weight\", found \"%s\"",
                     sd_checkpoint_count(checkpoint), b->arch->name, b->arch->prefixes[0],
                     sd_checkpoint_count(checkpoint) ? sd_checkpoint_at(checkpoint, 0)->name : "nothing");
    }
    for (size_t i = 0; rc == SD_OK && i < b->arch->n_rows; i++) {
        const sd_tensor_row *row = &b->arch->rows[i];
        if (row->exists && !row->exists(config)) {
            continue;
        }
        if (row->slot == SD_SLOT_EMBED) {
            char name[NAME_SIZE];
            sd_tensor_row_name(name, prefix, row, 0);
            rc = bind_head(b, config, checkpoint, name, err);
            continue;
        }
        int copies = slot_is_per_layer(row->slot) ? config->n_layers : 1;
        for (int l = 0; rc == SD_OK && l < copies; l++) {
            rc = bind_row(b, row, l, config, checkpoint, prefix, err);
        }
    }
    if (rc == SD_OK) {
        rc = reject_unknown(b, config, checkpoint, prefix, err);
    }
    if (rc != SD_OK) {
        sd_binding_clear(b);
    }
    return rc;
}

void sd_binding_clear(sd_binding *b)
{
    sd_free(b->global);
    sd_free(b->layers);
    *b = (sd_binding){0};
}
