// SPDX-License-Identifier: Apache-2.0
#include "data/samplers/weighted_sampler.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/multinomial.h>
#include <ATen/ops/tensor.h>

#include <cmath>

#include "base/error.hpp"

namespace accel::data {

WeightedSampler::WeightedSampler(const std::vector<double>& weights, int64_t num_samples, bool replacement,
                                 int64_t seed)
    : weights_(at::tensor(weights, at::kDouble)), num_samples_(num_samples), replacement_(replacement), seed_(seed) {
  int64_t drawable = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    require(std::isfinite(weights[i]) && weights[i] >= 0, Status::kInvalidArgument, "weight ", i, " is ", weights[i],
            "; expected a finite number of at least 0");
    if (weights[i] > 0) ++drawable;
  }
  require(drawable > 0, Status::kInvalidArgument, "none of ", weights.size(),
          " weights is above 0; expected at least one");
  require(num_samples >= 1, Status::kInvalidArgument, "num_samples is ", num_samples, "; expected at least 1");
  require(replacement || num_samples <= drawable, Status::kInvalidArgument, "num_samples is ", num_samples,
          " without replacement; expected at most ", drawable, ", the number of weights above 0");
}

at::Tensor WeightedSampler::indices(int64_t epoch) const {
  return at::multinomial(weights_, num_samples_, replacement_, epoch_generator(seed_, epoch));
}

}  // namespace accel::data
