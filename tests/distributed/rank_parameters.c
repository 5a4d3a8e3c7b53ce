/* SPDX-License-Identifier: Apache-2.0 */
/* Sharded parameters of a program without autograd, and parameters that are gathered for a look. */
#include <math.h>
#include <string.h>

#include "rank_program.h"

#define ROWS 7
#define COLUMNS 5
#define STEPS 4
#define LR 0.1

/* A least-squares fit whose gradient the program computes: each rank has another goal, and the mean of them is fitted.
 */
static float goal(int rank, int64_t element) { return (float)(rank + 1) + 0.25F * (float)element; }

static accel_module_t* make_layer(accel_module_t* module, const char* name, accel_tensor_t** weight) {
  const int64_t shape[2] = {ROWS, COLUMNS};
  float zeros[ROWS * COLUMNS] = {0};
  accel_module_t* layer = NULL;
  CHECK(accel_module_create("Layer", &layer));
  CHECK(accel_tensor_from_data(zeros, shape, 2, ACCEL_DTYPE_FLOAT32, weight));
  CHECK(accel_module_add_parameter(layer, "weight", *weight, 1));
  CHECK(accel_module_add_child(module, name, layer));
  return layer;
}

static int64_t numel(accel_tensor_t* tensor) {
  int64_t count = 0;
  CHECK(accel_tensor_numel(tensor, &count));
  return count;
}

static float* elements(accel_tensor_t* tensor) {
  void* data = NULL;
  CHECK(accel_tensor_data(tensor, &data));
  return data;
}

/* The whole weight after `steps` steps of gradient descent to the mean goal of all ranks. */
static void expect_weight(accel_tensor_t* weight, int ranks, int steps) {
  EXPECT(numel(weight) == (int64_t)ROWS * COLUMNS);
  const float* const values = elements(weight);
  for (int64_t i = 0; i < (int64_t)ROWS * COLUMNS; i++) {
    double mean = 0, expected = 0;
    for (int rank = 0; rank < ranks; rank++) mean += goal(rank, i) / ranks;
    for (int step = 0; step < steps; step++) expected -= LR * (expected - mean);
    EXPECT(fabs(values[i] - expected) < 1e-4);
  }
}

static void train_layer(accel_parameters_t* parameters, const char* path, size_t index, accel_tensor_t* weight,
                        int rank) {
  accel_tensor_t* gradient = NULL;
  CHECK(accel_parameters_unshard(parameters, path, 0));
  CHECK(accel_parameters_unshard(parameters, path, 1));
  EXPECT(numel(weight) == (int64_t)ROWS * COLUMNS);
  CHECK(accel_parameters_gradient(parameters, index, &gradient));
  const float* const w = elements(weight);
  float* const g = elements(gradient);
  for (int64_t i = 0; i < (int64_t)ROWS * COLUMNS; i++) g[i] = w[i] - goal(rank, i);
  CHECK(accel_parameters_reshard(parameters, path));
  CHECK(accel_parameters_grad_ready(parameters, index, NULL));
  accel_tensor_release(gradient);
}

static void expect_gathered(accel_state_t* state, accel_tensor_t* weight, int ranks) {
  accel_scope_t* scope = NULL;
  const int modifier = ranks - 1;
  EXPECT(accel_gathered_parameters_begin(state, &weight, 1, ranks, &scope) == ACCEL_ERROR_INVALID_ARGUMENT);
  EXPECT(accel_gathered_parameters_begin(state, &weight, 1, -2, &scope) == ACCEL_ERROR_INVALID_ARGUMENT);
  CHECK(accel_gathered_parameters_begin(state, &weight, 1, modifier, &scope));
  expect_weight(weight, ranks, STEPS);
  for (int64_t i = 0; i < numel(weight); i++) elements(weight)[i] = (float)accel_process_index(state);
  CHECK(accel_scope_end(scope));
  for (int64_t i = 0; i < numel(weight); i++) EXPECT(elements(weight)[i] == (float)modifier);
}

void run_sharded_parameters(accel_state_t* state, const char* argument) {
  (void)argument;
  const int rank = accel_process_index(state), ranks = accel_num_processes(state);
  accel_module_t *module = NULL, *layers[2] = {NULL, NULL};
  accel_tensor_t* weights[2] = {NULL, NULL};
  accel_parameters_t* parameters = NULL;
  accel_optimizer_t *plain = NULL, *optimizer = NULL;
  CHECK(accel_module_create("Program", &module));
  layers[0] = make_layer(module, "first", &weights[0]);
  layers[1] = make_layer(module, "second", &weights[1]);
  accel_sgd_options_t sgd = ACCEL_SGD_OPTIONS_INIT;
  sgd.lr = LR;
  CHECK(accel_optimizer_sgd(module, &sgd, &plain));

  accel_fsdp_options_t fsdp = ACCEL_FSDP_OPTIONS_INIT;
  accel_parameters_options_t options = ACCEL_PARAMETERS_OPTIONS_INIT;
  fsdp.enabled = 1;
  fsdp.auto_wrap_policy = ACCEL_AUTO_WRAP_POLICY_TRANSFORMER_BASED_WRAP;
  fsdp.transformer_cls_names_to_wrap = "Layer";
  options.fsdp = &fsdp;
  CHECK(accel_parameters_create(state, module, &options, &parameters));
  CHECK(accel_prepare_optimizer(state, plain, &optimizer));
  const int64_t each = (ROWS + ranks - 1) / ranks, begin = each * rank < ROWS ? each * rank : ROWS;
  const int64_t own = (begin + each < ROWS ? begin + each : ROWS) - begin;
  for (int step = 0; step < STEPS; step++) {
    EXPECT(numel(weights[0]) == own * COLUMNS);
    train_layer(parameters, "second", 1, weights[1], rank);
    train_layer(parameters, "first", 0, weights[0], rank);
    CHECK(accel_parameters_synchronize(parameters));
    CHECK(accel_optimizer_step(optimizer));
    CHECK(accel_optimizer_zero_grad(optimizer, 1));
  }
  EXPECT(ranks == 1 || accel_parameters_unshard(parameters, "third", 1) == ACCEL_ERROR_NOT_FOUND);
  for (int layer = 0; layer < 2; layer++) expect_gathered(state, weights[layer], ranks);

  accel_optimizer_release(optimizer);
  accel_optimizer_release(plain);
  accel_parameters_release(parameters);
  for (int layer = 0; layer < 2; layer++) {
    accel_tensor_release(weights[layer]);
    accel_module_release(layers[layer]);
  }
  accel_module_release(module);
}
