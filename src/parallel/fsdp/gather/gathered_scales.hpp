// SPDX-License-Identifier: Apache-2.0
// Fp8 scales: the scales of all weights of a sharded model that are gathered in 8 bits with one scale each. The ranks
// exchange the largest magnitudes of all of these in one call, ahead of the gathers.
#pragma once

#include <memory>
#include <vector>

#include "nn/module.hpp"
#include "parallel/fsdp/parameter_group.hpp"

namespace accel::parallel {

class Fp8Scales {
 public:
  // The groups are the model's.
  explicit Fp8Scales(const std::vector<std::unique_ptr<ParameterGroup>>& groups) : groups_(groups) {}

  // Before weights are gathered. Collective, unless the scales are cached. Also turns gathers in 8 bits off or on again
  // for a model in evaluation.
  void update(const nn::Module& model);
  // Whether the present scales are those of the next forward, too, because no update is between. All ranks say the
  // same.
  void keep(bool keeps) { are_kept_ = keeps; }

 private:
  const std::vector<std::unique_ptr<ParameterGroup>>& groups_;
  bool are_kept_ = false;
};

}  // namespace accel::parallel
