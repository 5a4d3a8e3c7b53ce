// SPDX-License-Identifier: Apache-2.0
// Workload replica_digest: the digest of parameters that ranks compare (accel_verify_replicas), of equal tensors in
// memory that no cache holds. With --by device: as an accelerator computes it, here by operators of the CPU.
#include <ATen/core/Tensor.h>
#include <ATen/ops/randn.h>
#include <accel.h>

#include <cstdio>
#include <cstring>
#include <vector>

#include "accelerator/replicas/tensor_digest.hpp"
#undef CHECK  // LibTorch's logging has one too
#include "measure.h"

int main(int argc, char **argv) {
  enum { MEGABYTES, TENSORS, STEPS, BY, N_OPTIONS };
  option_value options[N_OPTIONS] = {
      {"--megabytes", "1000"}, {"--tensors", "100"}, {"--steps", "20"}, {"--by", "host"}};
  measure_begin(argc, argv, options, N_OPTIONS);
  accel_state_t *const state = measure_state(ACCEL_STATE_OPTIONS_INIT, "cpu");
  const int64_t count = measure_integer(&options[TENSORS]);
  const int64_t elements = measure_integer(&options[MEGABYTES]) * 1000000 / 4 / count;
  const bool by_device = std::strcmp(options[BY].value, "device") == 0;
  std::vector<at::Tensor> tensors;
  for (int64_t i = 0; i < count; i++) tensors.push_back(at::randn({elements}));
  std::vector<double> samples;
  for (int64_t step = -2; step < measure_integer(&options[STEPS]); step++) {
    const double begin = measure_now();
    if (by_device)
      for (const at::Tensor &tensor : tensors) accel::accelerator::sum_words(tensor);
    else
      accel::accelerator::digest_tensors(tensors);
    if (step >= 0) samples.push_back((measure_now() - begin) * 1e3);
  }
  char params[128];
  std::snprintf(params, sizeof params, R"({"megabytes": %s, "tensors": %s, "by": "%s"})", options[MEGABYTES].value,
                options[TENSORS].value, options[BY].value);
  const figure digest = {"replica_digest", params, "ms", 0, samples.data(), samples.size(), 0, nullptr};
  measure_report(state, &digest);
  CHECK(accel_end_training(state));
  accel_state_release(state);
  return 0;
}
