/* SPDX-License-Identifier: Apache-2.0 */
/* The training loop of the workloads train_mlp, train_gpt and train_fsdp. */
#ifndef ACCEL_BENCH_TRAINING_H
#define ACCEL_BENCH_TRAINING_H

#include <accel.h>

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct training {
  accel_state_t *state;
  accel_module_t *model; /* the model, the optimizer and the loader are prepared ones */
  accel_optimizer_t *optimizer;
  accel_dataloader_t *loader;
  int64_t accumulate;                                 /* micro-batches a step */
  const accel_prepare_model_options_t *model_options; /* how the model is prepared; may be null */
};

/* Prepares a model with AdamW, and a shuffling loader over two tensors: inputs and labels. Takes the three over. */
void training_prepare(struct training *training, accel_state_t *state, accel_module_t *model, double learning_rate,
                      accel_tensor_t *inputs, accel_tensor_t *labels, int64_t batch);
void training_release(struct training *training);

/* Runs warmup + steps optimizer steps. `seconds` gets those of each step that is timed. Returns the last loss. */
double training_run(struct training *training, size_t warmup, size_t steps, double *seconds);

#ifdef __cplusplus
}
#endif

#endif
