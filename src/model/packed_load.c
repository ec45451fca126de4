/* SPDX-License-Identifier: MIT
 *
 * Loading packed weights: each matrix gets its memory, and all threads read pieces of the file straight into it. No
 * mapping: a page of a mapped file would be met by a fault in the first decode step, and lie in a small page. */
#include <stdatomic.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/error.h"
#include "src/base/file.h"
#include "src/model/build.h"
#include "src/model/packed.h"
#include "src/model/packed_file.h"

typedef struct sd_piece {
    size_t at, bytes; /* in the file */
    char *dst;
    uint64_t hash;
} sd_piece;

typedef struct sd_read_job {
    const sd_safetensors_file *file;
    sd_piece *pieces; /* [n] */
    size_t n;
    atomic_bool failed;
    sd_error err; /* of the first that failed */
} sd_read_job;

static void read_piece(void *context, int task, int worker)
{
    (void)worker;
    sd_read_job *job = context;
    sd_piece *p = &job->pieces[task];
    sd_hash_wide hash = SD_HASH_WIDE_START;
    for (size_t done = 0; done < p->bytes && !atomic_load_explicit(&job->failed, memory_order_relaxed);) {
        const size_t some = p->bytes - done < SD_PACKED_STEP ? p->bytes - done : SD_PACKED_STEP;
        sd_error err = {0};
        if (sd_read_at(job->file->fd, p->dst + done, some, p->at + done, &err) != SD_OK) {
            if (!atomic_exchange(&job->failed, true)) {
                job->err = err;
            }
            return;
        }
        sd_hash_wide_add(&hash, p->dst + done, some);
        done += some;
    }
    p->hash = sd_hash_wide_end(&hash);
}

/* ---- memory ---- */

static int allocate(sd_model *m, const sd_packed *packed, const sd_packed_entry *entry, void **dst, sd_error *err)
{
    const sd_held *held = &entry->held;
    void *data = sd_malloc_aligned(entry->bytes, 1);
    if (!data) {
        return sd_fail(err, SD_ERR_MEMORY, "out of memory: %zu bytes for tensor \"%s\"", entry->bytes, held->name);
    }
    if (held->row->is_matrix) {
        const sd_weight_type type = sd_held_type(held, packed->weights, packed->head);
        *sd_held_matrix(held, m) =
            (sd_matrix){.type = sd_model_matrix_type(type), .n = held->n, .k = held->k, .data = data};
    } else {
        *sd_held_vector(held, m) = data;
    }
    m->weight_bytes += entry->bytes;
    m->n_params += (int64_t)held->n * held->k;
    *dst = data;
    return SD_OK;
}

static size_t pieces_of(const sd_packed_entry *entry) { return (entry->bytes + SD_PACKED_PIECE - 1) / SD_PACKED_PIECE; }

/* The model's memory, and the list of what to read into it. */
static int prepare(sd_model *m, const sd_packed *packed, sd_read_job *job, sd_error *err)
{
    size_t n = 0;
    for (size_t i = 0; i < packed->n; i++) {
        n += pieces_of(&packed->entries[i]);
    }
    job->pieces = n <= INT32_MAX ? sd_malloc(n, sizeof *job->pieces) : NULL;
    if (!job->pieces) {
        return sd_fail_memory(err, n * sizeof *job->pieces, "the list of what to read");
    }
    for (size_t i = 0; i < packed->n; i++) {
        const sd_packed_entry *entry = &packed->entries[i];
        void *dst = NULL;
        int rc = allocate(m, packed, entry, &dst, err);
        if (rc != SD_OK) {
            return rc;
        }
        for (size_t at = 0; at < entry->bytes; at += SD_PACKED_PIECE) {
            job->pieces[job->n++] = (sd_piece){
                .at = job->file->data_at + entry->at + at, .dst = (char *)dst + at,
                .bytes = entry->bytes - at < SD_PACKED_PIECE ? entry->bytes - at : SD_PACKED_PIECE,
            };
        }
    }
    return SD_OK;
}

static int check_sums(const sd_packed *packed, const sd_piece *piece, sd_error *err)
{
    for (size_t i = 0; i < packed->n; i++) {
        const sd_packed_entry *entry = &packed->entries[i];
        uint64_t sum = SD_HASH_START;
        for (size_t n = pieces_of(entry); n > 0; n--, piece++) {
            sum = sd_hash(sum, &piece->hash, sizeof piece->hash);
        }
        if (sum != entry->sum) {
            return sd_fail(err, SD_ERR_FORMAT, "tensor \"%s\": its bytes are not those that were written (sum %016llx, "
                           "expected %016llx): the file is damaged, fetch it or quantise again", entry->held.name,
                           (unsigned long long)sum, (unsigned long long)entry->sum);
        }
    }
    return SD_OK;
}

static int read_weights(sd_model *m, const sd_packed *packed, const sd_safetensors_file *file, sd_error *err)
{
    sd_read_job job = {.file = file};
    m->layers = sd_calloc((size_t)m->config.n_layers, sizeof *m->layers);
    int rc = m->layers ? prepare(m, packed, &job, err)
                       : sd_fail_memory(err, (size_t)m->config.n_layers * sizeof *m->layers, "the layers");
    if (rc == SD_OK) {
        sd_pool_run(m->pool, (int)job.n, read_piece, &job);
        if (atomic_load(&job.failed)) {
            rc = sd_fail(err, job.err.code, "%s: %s", file->path, job.err.message);
        } else {
            rc = check_sums(packed, job.pieces, err);
            rc = rc == SD_OK ? SD_OK : sd_fail_prefix(err, rc, "%s", file->path);
        }
    }
    if (rc == SD_OK && m->config.tied) {
        m->head = m->embed;
    }
    sd_free(job.pieces);
    return rc;
}

/* ---- types ---- */

static int check_type(sd_weight_type asked, sd_weight_type held, const char *option, const char *what,
                      const char *path, sd_error *err)
{
    if (asked == SD_WEIGHTS_AUTO || asked == held) {
        return SD_OK;
    }
    return sd_fail(err, SD_ERR_ARG, "%s: holds %s as %s, not as the %s that is asked for; leave out --%s, or quantise "
                   "the original checkpoint with --%s %s", path, what, sd_weights_name(held), sd_weights_name(asked),
                   option, option, sd_weights_name(asked));
}

int sd_packed_load(sd_model *m, const char *dir, const sd_model_options *options, sd_error *err)
{
    sd_packed packed;
    sd_safetensors_file file;
    int rc = sd_packed_open(&packed, &file, dir, &m->config, err);
    if (rc != SD_OK) {
        return rc;
    }
    rc = check_type(options->weights, packed.weights, "weights", "the weights", file.path, err);
    if (rc == SD_OK) {
        rc = check_type(options->head, packed.head, "head", "the output head", file.path, err);
    }
    if (rc == SD_OK) {
        sd_model_options types = *options;
        types.weights = packed.weights;
        types.head = packed.head;
        sd_model_choose_types(m, &types, packed.weights);
        rc = sd_model_check_memory(m, err);
    }
    if (rc == SD_OK) {
        rc = read_weights(m, &packed, &file, err);
    }
    sd_packed_clear(&packed);
    sd_safetensors_file_close(&file);
    return rc;
}
