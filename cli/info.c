/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "src/checkpoint/checkpoint.h"
#include "src/generate/recipe.h"
#include "src/model/model.h"
#include "src/model/packed.h"

/* Everything without loading weights: the configuration, and the checkpoint bound and checked, or the header of packed
 * weights. */
typedef struct sd_info {
    sd_config config;
    const char *format;
    size_t tensors, file_bytes;
    int64_t params;
    const char *dtype, *head; /* of the matrices, and of the embedding and the head */
    sd_recipe recipe;
} sd_info;

static void count_tensors(sd_info *info, const sd_checkpoint *checkpoint, const sd_binding *binding)
{
    info->format = sd_checkpoint_format(checkpoint);
    info->tensors = sd_checkpoint_count(checkpoint);
    for (size_t i = 0; i < info->tensors; i++) {
        const sd_tensor *t = sd_checkpoint_at(checkpoint, i);
        info->file_bytes += (size_t)t->n_elements * sd_dtype_size(t->dtype);
    }
    for (int slot = 0; slot < SD_SLOT_LAYER; slot++) {
        info->params += binding->global[slot] ? binding->global[slot]->n_elements : 0;
    }
    size_t n = (size_t)info->config.n_layers * (SD_SLOTS - SD_SLOT_LAYER);
    for (size_t i = 0; i < n; i++) {
        info->params += binding->layers[i] ? binding->layers[i]->n_elements : 0;
    }
    info->dtype = sd_dtype_name(binding->layers[SD_SLOT_FC1 - SD_SLOT_LAYER]->dtype);
    info->head = sd_dtype_name(binding->global[SD_SLOT_EMBED]->dtype);
}

static int read_checkpoint(sd_info *info, const char *dir, sd_checkpoint **checkpoint, sd_error *err)
{
    sd_binding binding = {0};
    int rc = sd_checkpoint_open(checkpoint, dir, false, err);
    if (rc == SD_OK) {
        rc = sd_binding_make(&binding, &info->config, *checkpoint, err);
    }
    if (rc == SD_OK) {
        count_tensors(info, *checkpoint, &binding);
    }
    sd_binding_clear(&binding);
    return rc;
}

static int read_packed(sd_info *info, const char *dir, sd_error *err)
{
    sd_packed_info packed;
    int rc = sd_packed_describe(&packed, dir, &info->config, err);
    if (rc == SD_OK) {
        info->format = "packed by quantize";
        info->tensors = packed.tensors;
        info->file_bytes = packed.bytes;
        info->params = packed.n_params;
        info->dtype = sd_weights_name(packed.weights);
        info->head = sd_weights_name(packed.head);
    }
    return rc;
}

static int print_json(const char *dir, const sd_info *f, sd_error *err)
{
    const sd_config *c = &f->config;
    json_t *o = json_pack("{s:o, s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:b, s:b, s:s, s:s, s:I, s:I, s:I}",
                          "model", sd_cli_json_path(dir), "arch", c->arch, "format", f->format, "n_layers", c->n_layers,
                          "hidden_size", c->hidden, "n_heads", c->n_heads, "head_dim", c->head_dim, "ffn_size", c->ffn,
                          "vocab_size", c->vocab, "max_positions", c->max_positions, "pre_norm", c->pre_norm,
                          "tied_head", c->tied, "dtype", f->dtype, "head_dtype", f->head, "n_params",
                          (json_int_t)f->params, "tensors", (json_int_t)f->tensors, "file_bytes",
                          (json_int_t)f->file_bytes);
    return sd_cli_print_json(o, JSON_INDENT(2), err);
}

static void print_text(const char *dir, const sd_info *f)
{
    const sd_config *c = &f->config;
    double layer = 4.0 * c->hidden * c->hidden + 2.0 * c->hidden * c->ffn;
    double head = (double)c->vocab * c->embed;
    printf("%s\n", dir);
    printf("  architecture   %s, %s%s%s\n", c->arch, c->pre_norm ? "pre-norm" : "post-norm",
           c->final_norm ? "" : ", no final norm", c->embed != c->hidden ? ", projected embeddings" : "");
    printf("  layers         %d, hidden %d, %d heads of %d, feed-forward %d\n", c->n_layers, c->hidden, c->n_heads,
           c->head_dim, c->ffn);
    printf("  vocabulary     %d, %s head; bos %d, eos %d, pad %d\n", c->vocab, c->tied ? "tied" : "separate", c->bos_id,
           c->eos_id, c->pad_id);
    printf("  positions      %d\n", c->max_positions);
    printf("  parameters     %.4g million in %zu tensors, %.4g MB as %s%s%s (%s)\n", (double)f->params * 1e-6,
           f->tensors, (double)f->file_bytes * 1e-6, f->dtype, strcmp(f->head, f->dtype) ? ", head " : "",
           strcmp(f->head, f->dtype) ? f->head : "", f->format);
    printf("  a decode step  streams %.4g MB of f32 weights a layer and %.4g MB for the head: with 1/5 of the layers "
           "the head\n"
           "                 bounds the weights' share of the speedup at %.2fx\n",
           layer * 4e-6, head * 4e-6, (c->n_layers * layer + head) / (c->n_layers * layer / 5 + head));
    if (f->recipe.present) {
        const sd_recipe *r = &f->recipe;
        printf("  trained for    ");
        for (int i = 0; i < r->n_trained; i++) {
            printf("%s%gx", i ? ", " : "", r->trained[i]);
        }
        printf("%swarm-up %d, horizon %d steps\n", r->n_trained ? "; " : "", r->schedule.warmup, r->schedule.horizon);
        if (r->prompt_template) {
            printf("  prompt         built from ");
            for (const char *s = r->prompt_template; *s; s++) {
                *s == '\n' ? (void)fputs("\\n", stdout) : (void)putchar(*s);
            }
            putchar('\n');
        }
    }
}

int sd_verb_info(int argc, char **argv)
{
    bool json = false;
    const char *dir;
    const sd_option options[] = {{"json", NULL, SD_OPTION_FLAG, &json, "one JSON object"}};
    int code = sd_options_read("info", options, 1, argc, argv, &dir, 1);
    if (code >= 0) {
        return code;
    }
    sd_error err = {0};
    sd_info info = {0};
    sd_checkpoint *checkpoint = NULL;
    bool packed = false;
    int rc = sd_config_load(&info.config, dir, &err);
    if (rc == SD_OK) {
        rc = sd_packed_exists(dir, &packed, &err);
    }
    if (rc == SD_OK) {
        rc = packed ? read_packed(&info, dir, &err) : read_checkpoint(&info, dir, &checkpoint, &err);
    }
    if (rc == SD_OK) {
        rc = sd_recipe_load(&info.recipe, dir, &err);
    }
    if (rc == SD_OK) {
        if (json) {
            rc = print_json(dir, &info, &err);
        } else {
            print_text(dir, &info);
        }
    }
    code = rc == SD_OK ? sd_cli_close_stdout(SD_EXIT_OK) : sd_cli_fail(&err);
    sd_recipe_clear(&info.recipe);
    sd_checkpoint_close(checkpoint);
    return code;
}
