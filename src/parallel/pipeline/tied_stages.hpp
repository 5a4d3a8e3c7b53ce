// SPDX-License-Identifier: Apache-2.0
// Tied stages: parameters that stages on several ranks have, such as the embedding of the first one and the head of the
// last one. Each has its own copy and its part of the gradient, and the copies are updated alike.
#pragma once

#include <utility>
#include <vector>

#include "parallel/stage_pipeline.hpp"

namespace accel::parallel {

class TiedStages {
 public:
  // Collective among the ranks of each tie: all start from the values of the first one.
  explicit TiedStages(std::vector<TiedCopy> ties);

  // Ahead of the backwards whose gradients are summed with those that a step before has summed.
  void begin_step();
  // Collective among the ranks of each tie: each has the sum of the gradients.
  void sum_gradients();
  const std::vector<TiedCopy>& copies() const { return ties_; }

 private:
  const std::vector<TiedCopy> ties_;
  bool are_summed_ = false;
};

}  // namespace accel::parallel
