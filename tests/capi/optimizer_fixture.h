/* SPDX-License-Identifier: Apache-2.0 */
/* What the programs about optimizers share: a module of one parameter, its gradient, and comparisons of numbers. */
#ifndef ACCEL_OPTIMIZER_FIXTURE_H
#define ACCEL_OPTIMIZER_FIXTURE_H

#include <math.h>

#include "capi_test.h"

/* A module of one 2 x 3 parameter "weight" of ones. */
static inline accel_module_t *new_model(accel_dtype_t dtype, accel_tensor_t **weight) {
  const int64_t shape[] = {2, 3};
  const accel_device_t cpu = {ACCEL_DEVICE_CPU, -1};
  accel_module_t *module = NULL;
  assert_ok(accel_tensor_full(shape, 2, 1.0, dtype, &cpu, weight));
  assert_ok(accel_module_create("Weights", &module));
  assert_ok(accel_module_add_parameter(module, "weight", *weight, 1));
  return module;
}

/* The sum of all elements: each has the gradient 1. */
static inline accel_tensor_t *loss_of(accel_tensor_t *weight) {
  const accel_op_t *sum = NULL;
  const accel_value_t argument = accel_arg_tensor(weight);
  accel_value_t loss = ACCEL_VALUE_INIT;
  size_t n_results = 0;
  assert_ok(accel_op_find("aten::sum", "", &sum));
  assert_ok(accel_op_call(sum, &argument, 1, &loss, 1, &n_results));
  return loss.as.tensor;
}

static inline void back_propagate(accel_tensor_t *weight) {
  accel_tensor_t *loss = loss_of(weight);
  assert_ok(accel_tensor_backward(loss, NULL));
  accel_tensor_release(loss);
}

static inline float element(const accel_tensor_t *tensor, size_t index) {
  void *data = NULL;
  assert_ok(accel_tensor_data(tensor, &data));
  return ((const float *)data)[index];
}

static inline void assert_near(double number, double expected) {
  if (fabs(number - expected) <= 1e-6) return;
  fail_msg("%.9g is not %.9g", number, expected);
}

#endif
