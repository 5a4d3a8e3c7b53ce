/* SPDX-License-Identifier: Apache-2.0 */
/* The models of the workloads train_gpt and train_mlp, ready to be trained on data of their own. */
#ifndef ACCEL_BENCH_WORKLOADS_H
#define ACCEL_BENCH_WORKLOADS_H

#include "training.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GPT_BATCH 8
#define GPT_ACCUMULATE 4
#define GPT_CONTEXT 128
#define GPT_BLOCKS 4
#define GPT_WARMUP 2

#define MLP_WIDTH 512
#define MLP_DEPTH 4
#define MLP_BATCH 64
#define MLP_WARMUP 10

/* A state on the device that all processes of the job have. `precision`: "no", "bf16" or "fp16". */
accel_state_t *workload_state(const char *device, const char *precision, int64_t accumulate);

/* 3.3 M parameters: 4 blocks of 256 with 4 heads. For a state that accumulates GPT_ACCUMULATE batches; data for `steps`
 * steps, those of the warm-up included. */
void workload_gpt(struct training *training, accel_state_t *state, size_t steps);
/* The same for another GPT, of whose blocks backward computes again what `recompute` says. */
struct gpt {
  int64_t vocabulary, context, width, heads, blocks;
  int tied; /* the head is the embedding */
  int64_t accumulate;
};
static const struct gpt kGpt = {256, GPT_CONTEXT, 256, 4, GPT_BLOCKS, 0, GPT_ACCUMULATE};
static const struct gpt kGpt2Small = {50257, 1024, 768, 12, 12, 1, 1};
void workload_gpt_of(struct training *training, accel_state_t *state, size_t steps, const struct gpt *gpt,
                     accel_recompute_t recompute);

/* The model alone. */
accel_module_t *workload_make_gpt(const struct gpt *gpt, accel_recompute_t recompute);

/* `depth` times a linear layer and a ReLU, then a linear layer to the classes. */
accel_module_t *workload_make_mlp(int64_t width, int64_t depth);
void workload_mlp(struct training *training, accel_state_t *state, int64_t width, int64_t depth, int64_t batch,
                  size_t steps);

/* Random rows for a GPT of `kGpt`, and for a multi-layer perceptron, which are taken in order, `batch` at a time. */
struct workload_rows {
  accel_tensor_t *inputs, *labels;
  int64_t batch;
};
struct workload_rows workload_gpt_rows(int64_t batch, int64_t count);
struct workload_rows workload_mlp_rows(int64_t batch, int64_t count, int64_t width);

/* A copy of what the tensor has from `begin` to `end` of a dimension. */
accel_tensor_t *workload_part(accel_tensor_t *tensor, int64_t dim, int64_t begin, int64_t end);

#ifdef __cplusplus
}
#endif

#endif
