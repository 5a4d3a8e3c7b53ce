// SPDX-License-Identifier: Apache-2.0
#include "data/samplers/subset_sampler.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/tensor.h>

#include "base/error.hpp"

namespace accel::data {

SubsetSampler::SubsetSampler(const std::vector<int64_t>& indices, std::optional<int64_t> seed)
    : indices_(at::tensor(indices, at::kLong)), seed_(seed) {
  for (size_t i = 0; i < indices.size(); ++i)
    require(indices[i] >= 0, Status::kInvalidArgument, "index ", i, " of the subset is ", indices[i],
            "; expected at least 0");
}

at::Tensor SubsetSampler::indices(int64_t epoch) const {
  if (!seed_) return indices_;
  return indices_.index_select(0, at::randperm(indices_.numel(), epoch_generator(*seed_, epoch), at::kLong));
}

}  // namespace accel::data
