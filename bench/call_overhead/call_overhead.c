/* Workload call_overhead in C: nanoseconds of one accel_tensor_numel(), the least of the rounds. */
#include "measure.h"

#include <stdio.h>

enum { kCalls = 1000000, kRounds = 10 };

int main(void) {
  const accel_device_t cpu = {ACCEL_DEVICE_CPU, -1};
  accel_tensor_t *tensor = NULL;
  CHECK(accel_tensor_full(NULL, 0, 0, ACCEL_DTYPE_FLOAT32, cpu, &tensor));
  double least = 1e9;
  for (int round = 0; round < kRounds; round++) {
    int64_t count = 0;
    const double start = measure_now();
    for (int call = 0; call < kCalls; call++)
      if (accel_tensor_numel(tensor, &count) < 0) return 1;
    const double each = (measure_now() - start) * 1e9 / kCalls;
    if (each < least) least = each;
  }
  accel_tensor_release(tensor);
  printf("%.3f\n", least);
  return 0;
}
