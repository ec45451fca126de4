/* SPDX-License-Identifier: MIT
 *
 * A checkpoint made into a directory of packed weights. One matrix at a time is in memory: it is packed, hashed and
 * written, and its pages of the checkpoint are let go. The sums go into the header, which is written twice: its length
 * does not depend on them. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/cpu.h"
#include "src/base/error.h"
#include "src/base/file.h"
#include "src/model/build.h"
#include "src/model/packed.h"
#include "src/model/packed_file.h"

enum { VALUE_SIZE = SD_PACKED_DESCRIPTION + 32 };

/* ---- the target directory ---- */

typedef struct sd_target {
    const char *dir;
    const char *const *companions;
    size_t n_companions;
    sd_atomic_file *copies; /* [n_companions] {0} where the source has no such file */
    sd_atomic_file weights;
    int lock;               /* the open directory; -1: none */
    bool made;              /* by us: removed if this fails */
} sd_target;

static int entry_exists(const char *dir, const char *name, bool *exists, sd_error *err)
{
    char *path = sd_path_join(dir, name);
    if (!path) {
        return sd_fail_memory(err, strlen(dir) + strlen(name) + 2, "a file name");
    }
    struct stat st;
    *exists = lstat(path, &st) == 0;
    sd_free(path);
    return SD_OK;
}

/* What the directory must not hold, or only with --overwrite. */
static int check_contents(const sd_target *target, bool overwrite, sd_error *err)
{
    const char *checkpoint;
    int rc = sd_checkpoint_exists(target->dir, &checkpoint, err);
    if (rc == SD_OK && checkpoint) {
        rc = sd_fail(err, SD_ERR_ARG, "%s: holds a checkpoint of its own (%s), which is not to be replaced; name "
                     "another directory", target->dir, checkpoint);
    }
    for (size_t i = 0; rc == SD_OK && !overwrite && i <= target->n_companions; i++) {
        const char *name = i < target->n_companions ? target->companions[i] : SD_PACKED_FILE;
        bool exists = false;
        rc = entry_exists(target->dir, name, &exists, err);
        if (rc == SD_OK && exists) {
            rc = sd_fail(err, SD_ERR_ARG, "%s: holds %s already; --overwrite replaces it", target->dir, name);
        }
    }
    return rc;
}

/* Finds out whether the directory may be written to, and makes it where it does not exist. */
static int enter_target(sd_target *target, const char *source, bool overwrite, sd_error *err)
{
    struct stat to, from;
    if (!*target->dir) {
        return sd_fail(err, SD_ERR_ARG, "an empty name for what is to be written; expected the name of a directory");
    }
    if (stat(target->dir, &to) == 0) {
        if (!S_ISDIR(to.st_mode)) {
            return sd_fail(err, SD_ERR_ARG, "%s: is a file; expected the name of a directory", target->dir);
        }
        if (stat(source, &from) == 0 && from.st_dev == to.st_dev && from.st_ino == to.st_ino) {
            return sd_fail(err, SD_ERR_ARG, "%s: is the model itself; name another directory for the packed weights",
                           target->dir);
        }
        int rc = check_contents(target, overwrite, err);
        if (rc != SD_OK) {
            return rc;
        }
    } else if (mkdir(target->dir, 0777) != 0) {
        return sd_fail_errno(err, "%s: cannot make the directory", target->dir);
    } else {
        target->made = true;
    }
    target->lock = open(target->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (target->lock >= 0 && flock(target->lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        return sd_fail(err, SD_ERR_STATE, "%s: another process is writing a model there", target->dir);
    }
    return SD_OK; /* where directories cannot be locked, two writers are the user's affair */
}

static int open_in(sd_atomic_file *file, const char *dir, const char *name, sd_error *err)
{
    char *path = sd_path_join(dir, name);
    if (!path) {
        return sd_fail_memory(err, strlen(dir) + strlen(name) + 2, "a file name");
    }
    int rc = sd_atomic_open_locked(file, path, err); /* locked: see enter_target */
    sd_free(path);
    return rc;
}

static int write_bytes(sd_atomic_file *file, const void *bytes, size_t n, sd_error *err)
{
    if (n > 0 && fwrite(bytes, 1, n, file->stream) != n) {
        return sd_fail_errno(err, "%s: cannot write", file->temporary);
    }
    return SD_OK;
}

/* Under temporary names, and as far as the operating system: what fails later is not for want of space. */
static int copy_companion(sd_target *target, size_t i, const char *source, sd_error *err)
{
    char *from = sd_path_join(source, target->companions[i]);
    if (!from) {
        return sd_fail_memory(err, strlen(source) + 32, "a file name");
    }
    sd_file file = {0};
    int rc = SD_OK;
    if (sd_file_exists(from)) {
        rc = sd_file_open(&file, from, false, err);
        if (rc == SD_OK) {
            rc = open_in(&target->copies[i], target->dir, target->companions[i], err);
        }
        if (rc == SD_OK) {
            rc = write_bytes(&target->copies[i], file.data, file.size, err);
        }
        if (rc == SD_OK && fflush(target->copies[i].stream) != 0) {
            rc = sd_fail_errno(err, "%s: cannot write", target->copies[i].temporary);
        }
    }
    sd_file_close(&file);
    sd_free(from);
    return rc;
}

static int remove_old(const sd_target *target, const char *name, sd_error *err)
{
    char *path = sd_path_join(target->dir, name);
    if (!path) {
        return sd_fail_memory(err, strlen(target->dir) + strlen(name) + 2, "a file name");
    }
    int rc = unlink(path) == 0 || errno == ENOENT ? SD_OK : sd_fail_errno(err, "%s: cannot remove the old file", path);
    sd_free(path);
    return rc;
}

/* Everything is on disk under temporary names. Old weights go first and new ones come last, so that weights never stand
 * beside a configuration that is not theirs. */
static int commit(sd_target *target, sd_error *err)
{
    int rc = fflush(target->weights.stream) == 0
                 ? SD_OK
                 : sd_fail_errno(err, "%s: cannot write", target->weights.temporary);
    rc = rc == SD_OK ? remove_old(target, SD_PACKED_FILE, err) : rc;
    for (size_t i = 0; rc == SD_OK && i < target->n_companions; i++) {
        rc = target->copies[i].stream ? sd_atomic_commit(&target->copies[i], err)
                                      : remove_old(target, target->companions[i], err);
    }
    return rc == SD_OK ? sd_atomic_commit(&target->weights, err) : rc;
}

static void leave_target(sd_target *target, bool success)
{
    sd_atomic_discard(&target->weights);
    for (size_t i = 0; target->copies && i < target->n_companions; i++) {
        sd_atomic_discard(&target->copies[i]);
    }
    sd_free(target->copies);
    if (target->made && !success) {
        (void)rmdir(target->dir);
    }
    if (target->lock >= 0) {
        close(target->lock);
    }
}

/* ---- the weights ---- */

typedef struct sd_packer {
    const sd_config *config;
    const sd_checkpoint *checkpoint;
    const sd_binding *binding;
    sd_pool *pool;
    sd_weight_type weights, head;
    sd_held *held;     /* [n] */
    uint64_t *sums;    /* [n], zeros at first */
    size_t n, largest; /* bytes of the largest */
    char *buffer;      /* [largest] */
    float *scratch;
    size_t total;      /* bytes of all */
    sd_error *err;
} sd_packer;

static int prepare_packer(sd_packer *p)
{
    int rc = sd_held_list(&p->held, &p->n, p->config, p->err);
    for (size_t i = 0; rc == SD_OK && i < p->n; i++) {
        const size_t bytes = sd_held_bytes(&p->held[i], p->weights, p->head);
        p->largest = bytes > p->largest ? bytes : p->largest;
        p->total += bytes; /* of tensors that lie in files: no overflow */
    }
    if (rc != SD_OK) {
        return rc;
    }
    p->sums = sd_calloc(p->n, sizeof *p->sums);
    p->buffer = sd_malloc_aligned(p->largest, 1);
    p->scratch = sd_malloc_aligned(sd_model_pack_scratch(p->config, p->pool), sizeof(float));
    return p->sums && p->buffer && p->scratch ? SD_OK : sd_fail_memory(p->err, p->largest, "packing a matrix");
}

static void clear_packer(sd_packer *p)
{
    sd_free(p->held);
    sd_free(p->sums);
    sd_free_aligned(p->buffer);
    sd_free_aligned(p->scratch);
}

/* The header with the sums so far. */
static int make_header(const sd_packer *p, sd_buf *out)
{
    char panel[16], block[16], version[16], vocab[16];
    (void)snprintf(version, sizeof version, "%d", SD_PACKED_VERSION);
    (void)snprintf(panel, sizeof panel, "%d", SD_PANEL);
    (void)snprintf(block, sizeof block, "%d", SD_BLOCK);
    (void)snprintf(vocab, sizeof vocab, "%d", p->config->vocab);
    const sd_safetensors_pair facts[] = {
        {"format", SD_PACKED_FORMAT}, {"version", version}, {"weights", sd_weights_name(p->weights)},
        {"head", sd_weights_name(p->head)}, {"panel", panel}, {"block", block}, {"vocab", vocab},
    };
    enum { N_FACTS = sizeof facts / sizeof *facts };
    sd_safetensors_pair *pairs = sd_malloc(p->n + N_FACTS, sizeof *pairs);
    sd_tensor_source *tensors = sd_calloc(p->n, sizeof *tensors);
    char(*values)[VALUE_SIZE] = sd_malloc(p->n, sizeof *values);
    int rc = SD_OK;
    if (!pairs || !tensors || !values) {
        rc = sd_fail_memory(p->err, p->n * sizeof *values, "the header");
    } else {
        memcpy(pairs, facts, sizeof facts);
        for (size_t i = 0; i < p->n; i++) {
            const sd_held *held = &p->held[i];
            char description[SD_PACKED_DESCRIPTION];
            sd_packed_description(description, held, p->weights, p->head);
            (void)snprintf(values[i], VALUE_SIZE, "%s%016llx", description, (unsigned long long)p->sums[i]);
            pairs[N_FACTS + i] = (sd_safetensors_pair){held->name, values[i]};
            tensors[i].name = held->name;
            tensors[i].dtype = held->row->is_matrix ? SD_DTYPE_U8 : SD_DTYPE_F32;
            tensors[i].rank = sd_packed_shape(held, sd_held_bytes(held, p->weights, p->head), tensors[i].shape);
        }
        rc = sd_safetensors_make_header(out, tensors, p->n, pairs, N_FACTS + p->n, SD_PACKED_ALIGNMENT, p->err);
    }
    sd_free(pairs);
    sd_free(tensors);
    sd_free(values);
    return rc;
}

static int write_header(const sd_packer *p, sd_atomic_file *file)
{
    sd_buf header = {0};
    int rc = make_header(p, &header);
    if (rc == SD_OK && fseek(file->stream, 0, SEEK_SET) != 0) {
        rc = sd_fail_errno(p->err, "%s: cannot write the header", file->temporary);
    }
    if (rc == SD_OK) {
        rc = write_bytes(file, header.data, header.len, p->err);
    }
    sd_buf_free(&header);
    return rc;
}

static const sd_tensor *part(const sd_packer *p, const sd_held *held, int i)
{
    const sd_slot slot = held->row->slots[i];
    return slot < SD_SLOT_LAYER ? p->binding->global[slot]
                                : p->binding->layers[(size_t)held->layer * (SD_SLOTS - SD_SLOT_LAYER) +
                                                     (size_t)(slot - SD_SLOT_LAYER)];
}

/* Makes what memory would hold, in the buffer. */
static void fill_buffer(const sd_packer *p, const sd_held *held, size_t bytes)
{
    const int n_parts = held->row->n_slots;
    const sd_tensor *parts[SD_HELD_PARTS] = {0};
    for (int i = 0; i < n_parts; i++) {
        parts[i] = part(p, held, i);
    }
    if (held->row->is_matrix) {
        const sd_wtype type = sd_model_matrix_type(sd_held_type(held, p->weights, p->head));
        sd_matrix matrix = {.type = type, .n = held->n, .k = held->k, .data = p->buffer};
        memset(p->buffer, 0, bytes); /* padding is computed with */
        sd_model_pack_matrix(p->pool, &matrix, parts, n_parts, p->scratch);
    } else {
        /* of a position table with spare rows, those that the configuration names */
        const int64_t each = (int64_t)held->n / n_parts * held->k;
        for (int i = 0; i < n_parts; i++) {
            sd_tensor_read_f32(parts[i], 0, each, (float *)(void *)p->buffer + i * each);
        }
    }
    for (int i = 0; i < n_parts; i++) {
        sd_checkpoint_release(p->checkpoint, parts[i]);
    }
}

static int write_weights(sd_packer *p, sd_atomic_file *file, const sd_quantize_options *options)
{
    size_t done = 0;
    int rc = write_header(p, file);
    for (size_t i = 0; rc == SD_OK && i < p->n; i++) {
        const size_t bytes = sd_held_bytes(&p->held[i], p->weights, p->head);
        fill_buffer(p, &p->held[i], bytes);
        p->sums[i] = sd_packed_sum(p->buffer, bytes);
        rc = write_bytes(file, p->buffer, bytes, p->err);
        done += bytes;
        if (rc == SD_OK && options->progress) {
            options->progress(options->user, done, p->total);
        }
    }
    return rc == SD_OK ? write_header(p, file) : rc;
}

static void count(const sd_packer *p, sd_quantized *result)
{
    double bytes = 0, values = 0;
    *result = (sd_quantized){.weights = p->weights, .head = p->head, .bytes_after = p->total};
    for (size_t i = 0; i < p->n; i++) {
        const double n = (double)p->held[i].n * p->held[i].k;
        result->n_params += (int64_t)n;
        bytes += p->held[i].row->is_matrix ? (double)sd_held_bytes(&p->held[i], p->weights, p->head) : 0;
        values += p->held[i].row->is_matrix ? n : 0;
    }
    result->bits = values > 0 ? 8 * bytes / values : 0;
    for (size_t i = 0; i < sd_checkpoint_count(p->checkpoint); i++) {
        const sd_tensor *t = sd_checkpoint_at(p->checkpoint, i);
        result->bytes_before += (size_t)t->n_elements * sd_dtype_size(t->dtype);
    }
}

/* ---- all of it ---- */

static int write_all(sd_packer *p, sd_target *target, const char *dir, const sd_quantize_options *options,
                     sd_error *err)
{
    int rc = enter_target(target, dir, options->overwrite, err);
    if (rc == SD_OK) {
        rc = open_in(&target->weights, target->dir, SD_PACKED_FILE, err);
    }
    if (rc == SD_OK) {
        rc = write_weights(p, &target->weights, options);
    }
    for (size_t i = 0; rc == SD_OK && i < target->n_companions; i++) {
        rc = copy_companion(target, i, dir, err);
    }
    return rc == SD_OK ? commit(target, err) : rc;
}

static int quantize_bound(sd_packer *p, const char *dir, const char *out_dir, const sd_quantize_options *options,
                          sd_quantized *result, sd_error *err)
{
    sd_target target = {.dir = out_dir, .companions = options->companions, .lock = -1};
    while (target.companions && target.companions[target.n_companions]) {
        target.n_companions++;
    }
    target.copies = sd_calloc(target.n_companions, sizeof *target.copies);
    int rc = target.copies ? SD_OK : sd_fail_memory(err, target.n_companions * sizeof *target.copies, "the files");
    rc = rc == SD_OK ? prepare_packer(p) : rc;
    rc = rc == SD_OK ? write_all(p, &target, dir, options, err) : rc;
    if (rc == SD_OK) {
        count(p, result);
    }
    leave_target(&target, rc == SD_OK);
    clear_packer(p);
    return rc;
}

static int check_source(const char *dir, sd_error *err)
{
    bool packed = false;
    int rc = sd_packed_exists(dir, &packed, err);
    if (rc == SD_OK && packed) {
        rc = sd_fail(err, SD_ERR_ARG, "%s: holds packed weights already (%s), and packing them again would lose more; "
                     "quantise the checkpoint that they were made from", dir, SD_PACKED_FILE);
    }
    return rc;
}

int sd_quantize(const char *dir, const char *out_dir, const sd_quantize_options *options, sd_quantized *result,
                sd_error *err)
{
    sd_config config;
    sd_model types = {0};
    sd_model_choose_types(&types, &(sd_model_options){.weights = options->weights, .head = options->head},
                          SD_WEIGHTS_Q8);
    int rc = sd_config_load(&config, dir, err);
    rc = rc == SD_OK ? check_source(dir, err) : rc;
    sd_checkpoint *checkpoint = NULL;
    rc = rc == SD_OK ? sd_checkpoint_open(&checkpoint, dir, options->no_mmap, err) : rc;
    if (rc != SD_OK) {
        return rc;
    }
    sd_binding binding;
    sd_pool *pool = NULL;
    rc = sd_binding_make(&binding, &config, checkpoint, err);
    if (rc != SD_OK) {
        (void)sd_fail_prefix(err, rc, "%s", dir);
    } else {
        rc = sd_pool_create(&pool, options->threads > 0 ? options->threads : sd_cpu_default_threads(), err);
        if (rc == SD_OK) {
            sd_packer packer = {.config = &config, .checkpoint = checkpoint, .binding = &binding, .pool = pool,
                                .weights = types.weights, .head = types.head_weights, .err = err};
            rc = quantize_bound(&packer, dir, out_dir, options, result, err);
        }
        sd_binding_clear(&binding);
    }
    sd_pool_free(pool);
    sd_checkpoint_close(checkpoint);
    return rc;
}
