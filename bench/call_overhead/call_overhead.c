/* SPDX-License-Identifier: Apache-2.0 */
/* Workload call_overhead in C: nanoseconds of one accel_tensor_numel(), or with the argument "operator" of one addition
 * of four numbers by accel_op_call(); the least of the rounds. */
#include "measure.h"

#include <stdio.h>
#include <string.h>

enum { kCalls = 1000000, kRounds = 10 };

static int count_elements(accel_tensor_t *tensor) {
  int64_t count = 0;
  return accel_tensor_numel(tensor, &count) < 0;
}

static int add(accel_tensor_t *tensor) {
  static const accel_op_t *addition = NULL;
  if (addition == NULL && accel_op_find("aten::add", "Tensor", &addition) < 0) return 1;
  const accel_value_t arguments[] = {accel_arg_tensor(tensor), accel_arg_tensor(tensor)};
  accel_value_t result = ACCEL_VALUE_INIT;
  size_t count = 0;
  const int failed = accel_op_call(addition, arguments, 2, &result, 1, &count) < 0;
  accel_value_dispose(&result);
  return failed;
}

int main(int argc, char **argv) {
  const accel_device_t cpu = {ACCEL_DEVICE_CPU, -1};
  const int is_operator = argc > 1 && strcmp(argv[1], "operator") == 0;
  const int64_t shape[] = {4}; /* of the operator; accel_tensor_numel() gets a tensor without dimensions */
  const int calls = is_operator ? kCalls / 20 : kCalls;
  accel_tensor_t *tensor = NULL;
  CHECK(accel_tensor_full(shape, is_operator ? 1 : 0, 1, ACCEL_DTYPE_FLOAT32, &cpu, &tensor));
  double least = 1e9;
  for (int round = 0; round < kRounds; round++) {
    const double start = measure_now();
    for (int call = 0; call < calls; call++)
      if (is_operator ? add(tensor) : count_elements(tensor)) return 1;
    const double each = (measure_now() - start) * 1e9 / calls;
    if (each < least) least = each;
  }
  accel_tensor_release(tensor);
  printf("%.3f\n", least);
  return 0;
}
