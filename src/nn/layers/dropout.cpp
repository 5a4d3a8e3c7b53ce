// SPDX-License-Identifier: Apache-2.0
#include "nn/layers/dropout.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/dropout.h>

#include "base/error.hpp"
#include "tensor/device/generator_branch.hpp"

namespace accel::nn {

void check_probability(double probability, const char* name) {
  require(probability >= 0 && probability <= 1, Status::kInvalidArgument, name, " is ", probability,
          "; expected 0 to 1");
}

Dropout::Dropout(double probability) : Module("Dropout"), probability_(probability) {
  check_probability(probability, "probability");
}

c10::IValue Dropout::forward(const Inputs& inputs) {
  const at::Tensor& input = only_tensor(inputs);
  if (!is_training() || probability_ == 0) return input;
  const tensor::GeneratorBranch branch(input.device(), split_rank_);
  return at::dropout(input, probability_, /*train=*/true);
}

}  // namespace accel::nn
