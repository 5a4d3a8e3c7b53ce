// SPDX-License-Identifier: Apache-2.0
// Random batches of items of about the same length, so that little padding is needed. @accelerate
// transformers.LengthGroupedSampler
#pragma once

#include <optional>
#include <vector>

#include "data/sampler.hpp"

namespace accel::data {

class LengthGroupedSampler final : public Sampler {
 public:
  // The permutation is cut into groups of group_batches batches, each sorted by length, longest first; the longest item
  // of all comes first, so that memory runs out at once or never. Without group_batches: a quarter of the batches, at
  // most 50.
  LengthGroupedSampler(std::vector<int64_t> lengths, int64_t batch_size, std::optional<int64_t> group_batches,
                       int64_t seed);
  int64_t length() const override { return static_cast<int64_t>(lengths_.size()); }
  at::Tensor indices(int64_t epoch) const override;

 private:
  std::vector<int64_t> lengths_;
  int64_t group_size_;
  int64_t seed_;
};

}  // namespace accel::data
