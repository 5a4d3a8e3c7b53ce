// SPDX-License-Identifier: Apache-2.0
// Activations that operators keep for the backward, in 8 bits with a scale of each row: those of norms, of activation
// functions, of attention, of dropout, and of products of two activations.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>

#include "nn/low_precision/fp8_cast.hpp"
#include "tensor/autograd/saved_tensor_hooks.hpp"

namespace accel::nn {

// Bound to its thread, for one operator. What it saves that has as many dimensions as its input is saved in 8 bits;
// weights and statistics stay as they are.
class Fp8Activations {
 public:
  Fp8Activations(const at::Tensor& input, std::shared_ptr<Fp8Overflows> overflows);

 private:
  std::optional<tensor::SavedTensorHooks> hooks_;
};

}  // namespace accel::nn
