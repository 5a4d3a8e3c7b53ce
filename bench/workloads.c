/* SPDX-License-Identifier: Apache-2.0 */
#include "workloads.h"

#include "measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLASSES 10
#define MAX_DEPTH 64

/* Exact GELU, no dropout. */
static const char gpt_config[] =
    "{\"model_type\": \"gpt2\", \"vocab_size\": %lld, \"n_positions\": %lld, \"n_embd\": %lld, \"n_head\": %lld, "
    "\"n_layer\": %lld,"
    " \"activation_function\": \"gelu\", \"resid_pdrop\": 0, \"embd_pdrop\": 0, \"attn_pdrop\": 0,"
    " \"tie_word_embeddings\": %s}";

static accel_precision_t read_precision(const char *name) {
  if (strcmp(name, "no") == 0) return ACCEL_PRECISION_NO;
  if (strcmp(name, "bf16") == 0) return ACCEL_PRECISION_BF16;
  if (strcmp(name, "fp16") == 0) return ACCEL_PRECISION_FP16;
  if (strcmp(name, "fp8") == 0) return ACCEL_PRECISION_FP8;
  fprintf(stderr, "--precision %s: expected no, bf16, fp16 or fp8\n", name);
  exit(2);
}

accel_state_t *workload_state(const char *device, const char *precision, int64_t accumulate) {
  accel_state_options_t options = ACCEL_STATE_OPTIONS_INIT;
  options.mixed_precision = read_precision(precision);
  options.gradient_accumulation_steps = accumulate;
  return measure_state(options, device);
}

accel_tensor_t *workload_part(accel_tensor_t *tensor, int64_t dim, int64_t begin, int64_t end) {
  const accel_op_t *slice = NULL;
  const accel_value_t arguments[] = {accel_arg_tensor(tensor), accel_arg_int(dim), accel_arg_int(begin),
                                     accel_arg_int(end)};
  accel_value_t view = ACCEL_VALUE_INIT;
  accel_tensor_t *copy = NULL;
  size_t n_results = 0;
  CHECK(accel_op_find("aten::slice", "Tensor", &slice));
  CHECK(accel_op_call(slice, arguments, 4, &view, 1, &n_results));
  CHECK(accel_tensor_contiguous(view.as.tensor, &copy));
  accel_value_dispose(&view);
  return copy;
}

accel_module_t *workload_make_gpt(const struct gpt *gpt, accel_recompute_t recompute) {
  char config[sizeof gpt_config + 5 * 20];
  accel_module_t *model = NULL;
  accel_activation_checkpointing_options_t options = ACCEL_ACTIVATION_CHECKPOINTING_OPTIONS_INIT;
  snprintf(config, sizeof config, gpt_config, (long long)gpt->vocabulary, (long long)gpt->context,
           (long long)gpt->width, (long long)gpt->heads, (long long)gpt->blocks, gpt->tied ? "true" : "false");
  CHECK(accel_module_from_config(config, &model));
  options.recompute = recompute;
  options.class_names = "GPT2Block";
  CHECK(accel_checkpoint_activations(model, &options));
  return model;
}

void workload_gpt(struct training *training, accel_state_t *state, size_t steps) {
  workload_gpt_of(training, state, steps, &kGpt, ACCEL_RECOMPUTE_NOTHING);
}

void workload_gpt_of(struct training *training, accel_state_t *state, size_t steps, const struct gpt *gpt,
                     accel_recompute_t recompute) {
  accel_tensor_t *tokens = NULL;
  const int64_t shape[] = {GPT_BATCH * gpt->accumulate * accel_num_processes(state) * (int64_t)steps, gpt->context + 1};
  accel_module_t *const model = workload_make_gpt(gpt, recompute);
  CHECK(accel_tensor_randint(0, gpt->vocabulary, shape, 2, &tokens));
  training_prepare(training, state, model, 3e-4, workload_part(tokens, 1, 0, gpt->context),
                   workload_part(tokens, 1, 1, gpt->context + 1), GPT_BATCH);
  accel_tensor_release(tokens);
}

accel_module_t *workload_make_mlp(int64_t width, int64_t depth) {
  accel_module_t *layers[2 * MAX_DEPTH + 1], *model = NULL;
  if (depth > MAX_DEPTH) {
    fprintf(stderr, "--depth %lld: expected at most %d\n", (long long)depth, MAX_DEPTH);
    exit(2);
  }
  const size_t n_layers = 2 * (size_t)depth + 1;
  for (size_t i = 0; i + 1 < n_layers; i += 2) {
    CHECK(accel_module_linear(width, width, 1, &layers[i]));
    CHECK(accel_module_activation("relu", &layers[i + 1]));
  }
  CHECK(accel_module_linear(width, CLASSES, 1, &layers[n_layers - 1]));
  CHECK(accel_module_sequential(layers, n_layers, &model));
  for (size_t i = 0; i < n_layers; i++) accel_module_release(layers[i]);
  return model;
}

void workload_mlp(struct training *training, accel_state_t *state, int64_t width, int64_t depth, int64_t batch,
                  size_t steps) {
  accel_module_t *model = workload_make_mlp(width, depth);
  accel_tensor_t *inputs = NULL, *labels = NULL;
  const accel_device_t cpu = {ACCEL_DEVICE_CPU, -1};
  const int64_t shape[] = {batch * accel_num_processes(state) * (int64_t)steps, width};
  CHECK(accel_tensor_randn(shape, 2, ACCEL_DTYPE_FLOAT32, &cpu, &inputs));
  CHECK(accel_tensor_randint(0, CLASSES, shape, 1, &labels));
  training_prepare(training, state, model, 1e-3, inputs, labels, batch);
}

struct workload_rows workload_gpt_rows(int64_t batch, int64_t count) {
  struct workload_rows rows = {.batch = batch};
  accel_tensor_t *tokens = NULL;
  const int64_t shape[] = {count, kGpt.context + 1};
  CHECK(accel_tensor_randint(0, kGpt.vocabulary, shape, 2, &tokens));
  rows.inputs = workload_part(tokens, 1, 0, kGpt.context);
  rows.labels = workload_part(tokens, 1, 1, kGpt.context + 1);
  accel_tensor_release(tokens);
  return rows;
}

struct workload_rows workload_mlp_rows(int64_t batch, int64_t count, int64_t width) {
  const accel_device_t cpu = {ACCEL_DEVICE_CPU, -1};
  struct workload_rows rows = {.batch = batch};
  const int64_t shape[] = {count, width};
  CHECK(accel_tensor_randn(shape, 2, ACCEL_DTYPE_FLOAT32, &cpu, &rows.inputs));
  CHECK(accel_tensor_randint(0, CLASSES, shape, 1, &rows.labels));
  return rows;
}
