// SPDX-License-Identifier: Apache-2.0
// The values that the first rank of a group has of a model's tensors, given to the others one tensor after the other,
// so that memory for one more is enough.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

#include "nn/module.hpp"
#include "parallel/regions/parallel_operators.hpp"

namespace accel::parallel {

class FirstRankValues {
 public:
  // Collective. Tensors may be without memory on the first rank, and then are on all; else on any other.
  FirstRankValues(nn::NamedTensors tensors, RankGroup group);

  size_t size() const { return tensors_.size(); }
  // Collective, for each tensor in turn: the tensor with these values, in its own memory if it has some. Without memory
  // if the first rank has none.
  at::Tensor take(size_t index) const;

 private:
  nn::NamedTensors tensors_;
  RankGroup group_;
  std::vector<bool> are_there_;  // on the first rank
};

}  // namespace accel::parallel
