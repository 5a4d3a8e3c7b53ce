// SPDX-License-Identifier: Apache-2.0
// Some of the items, as given or in a new order in every epoch. @accelerate torch.utils.data.SubsetRandomSampler
#pragma once

#include <optional>
#include <vector>

#include "data/sampler.hpp"

namespace accel::data {

class SubsetSampler final : public Sampler {
 public:
  // Without a seed in their own order.
  SubsetSampler(const std::vector<int64_t>& indices, std::optional<int64_t> seed);
  int64_t length() const override { return indices_.numel(); }
  at::Tensor indices(int64_t epoch) const override;

 private:
  at::Tensor indices_;
  std::optional<int64_t> seed_;
};

}  // namespace accel::data
