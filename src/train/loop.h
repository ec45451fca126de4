/* SPDX-License-Identifier: MIT
 *
 * The steps of a run: batches to gradients to weights, the loss on other data, and the state that a run goes on from. A
 * step depends on the settings, the data, the state and nothing else: a run that goes on from a saved state makes the
 * same weights, bit for bit, as one that was never stopped. */
#ifndef SD_TRAIN_LOOP_H
#define SD_TRAIN_LOOP_H

#include "src/model/model.h"
#include "src/train/batch.h"
#include "src/train/plan.h"

enum { SD_MAX_LANES = SD_MAX_STAGES * SD_MAX_SPEEDS };

/* One budget that the model is trained for. */
typedef struct sd_lane {
    char name[32];               /* "3" for three times fewer layers: what logs call it */
    const sd_schedule *schedule; /* borrowed */
} sd_lane;

typedef struct sd_trainer_options {
    const char *model_dir;        /* where the weights come from; NULL: random ones */
    const sd_config *config;
    const sd_lane *lanes;         /* [n_lanes], borrowed */
    int n_lanes;
    const sd_stages *stages;      /* placed; speed i of a stage is lanes[stage.lane[i]]. Borrowed */
    sd_batch_options batch;
    int micro_tokens;             /* most tokens that are in memory at once, unless one row has more */
    int longest_row;              /* of all data, in tokens */
    int64_t n_steps, warmup_steps;
    double lr, min_lr, beta1, beta2, epsilon, weight_decay;
    double clip;                  /* largest norm of the gradient; 0: any */
    double dropout;
    double init_std;              /* of random weights; 0: the net's own */
    double distill;               /* share of the loss that is the teacher's; 0: none */
    const char *teacher_dir;      /* NULL: the model as it was at the start */
    uint64_t seed;
    int threads;
    bool bf16;                    /* products in bf16, sums in f32 */
    int lora_rank;                /* 0: all weights are trained */
    /* Several processes with the same options and data share the rows of every step. sum_*: element by element over all
     * of them, in place, the same result in each. Not called when there is one */
    int rank, n_ranks;            /* n_ranks 0 is 1 */
    void (*sum_f32)(void *context, float *values, size_t n);
    void (*sum_f64)(void *context, double *values, size_t n);
    void *context;
} sd_trainer_options;

/* Where a run is. Plain numbers, saved beside the weights. */
typedef struct sd_trainer_position {
    int64_t step;      /* steps done */
    int64_t epoch, batch; /* the next batch: of which epoch, and which */
    int64_t batches, tokens; /* done, over all steps */
    double average;    /* of the loss, over the last steps; for telling whether it diverges */
    double lowest;     /* the lowest that the average has been in this stage */
    int64_t watched;   /* steps that the average is of, in this stage */
} sd_trainer_position;

typedef struct sd_step_report {
    double loss;                     /* mean over the response tokens of the step */
    double lane_loss[SD_MAX_LANES];  /* the same, of each lane's rows; NAN: it had none */
    double lr, grad_norm;            /* before clipping */
    int64_t tokens;                  /* fed */
} sd_step_report;

typedef struct sd_trainer sd_trainer;

/* Bytes of memory that a run takes, without taking it. */
typedef struct sd_trainer_memory {
    int64_t n_params, n_trained;
    size_t weights;     /* parameters, gradients and moments, the teacher's parameters */
    size_t activations; /* at most */
} sd_trainer_memory;
int sd_trainer_plan_memory(const sd_trainer_options *options, sd_trainer_memory *memory, sd_error *err);

/* data: borrowed. *out is the caller's. */
int sd_trainer_create(sd_trainer **out, const sd_trainer_options *options, const sd_dataset *data, sd_error *err);
void sd_trainer_free(sd_trainer *trainer);
sd_trainer_position *sd_trainer_at(sd_trainer *trainer);

/* One step. A loss or gradient that is not finite, or a loss that has grown far beyond what it was (SD_ERR_STATE),
 * leaves the weights as they were before the step. */
int sd_trainer_step(sd_trainer *trainer, sd_step_report *report, sd_error *err);

/* Whether the average loss is about as low as it has been: long before a step fails because it diverges it is not. */
bool sd_trainer_is_well(const sd_trainer *trainer);

/* Mean loss over the response tokens of `data` under one lane's schedule, without dropout. `go_on` is asked between
 * micro-batches; NULL: nobody. SD_ERR_CANCELLED when it says no. */
int sd_trainer_evaluate(sd_trainer *trainer, const sd_dataset *data, int lane, bool (*go_on)(void *user), void *user,
                        double *loss, sd_error *err);

/* The weights and the optimiser's moments to a file and back; the position is the caller's to save. */
int sd_trainer_save_state(sd_trainer *trainer, const char *path, sd_error *err);
int sd_trainer_load_state(sd_trainer *trainer, const char *path, sd_error *err);

/* The weights as a Hugging Face checkpoint. */
int sd_trainer_save_weights(sd_trainer *trainer, const char *path, sd_dtype dtype, sd_error *err);

#endif
