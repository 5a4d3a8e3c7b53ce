// SPDX-License-Identifier: Apache-2.0
// Shared parts: the parts of parameters that neighbouring ranks store alike, because there are fewer key heads than
// ranks (Ainslie et al., "GQA: Training Generalized Multi-Query Transformer Models", 2023). Each of these ranks
// computes the term of the gradient that comes from its query heads.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <utility>

#include "parallel/regions/parallel_operators.hpp"
#include "parallel/tensor/split_parameters.hpp"
#include "tensor/placement.hpp"

namespace accel::parallel {

class SharedParts {
 public:
  explicit SharedParts(RankGroup group) : group_(std::move(group)) {}

  // Collective among the ranks of the group for the first parameter with so many copies. In each backward, before the
  // gradient of the stored parameter is accumulated, the ranks that share parts of it sum the gradients of these.
  void sum_gradient(const at::Tensor& parameter, const DimensionCut& cut, const tensor::Placement& placement);

 private:
  RankGroup group_;
  std::map<int64_t, RankGroup> holders_;  // of the same parts as this rank, by their number
};

}  // namespace accel::parallel
