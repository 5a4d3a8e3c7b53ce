// SPDX-License-Identifier: Apache-2.0
// Items drawn with given probabilities. @accelerate torch.utils.data.WeightedRandomSampler
#pragma once

#include <vector>

#include "data/sampler.hpp"

namespace accel::data {

class WeightedSampler final : public Sampler {
 public:
  // The weights need not sum to 1; an item of weight 0 is never drawn.
  WeightedSampler(const std::vector<double>& weights, int64_t num_samples, bool replacement, int64_t seed);
  int64_t length() const override { return num_samples_; }
  at::Tensor indices(int64_t epoch) const override;

 private:
  at::Tensor weights_;
  int64_t num_samples_;
  bool replacement_;
  int64_t seed_;
};

}  // namespace accel::data
