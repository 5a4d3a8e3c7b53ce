// SPDX-License-Identifier: Apache-2.0
// One rank's share of an order, for programs that share the items out themselves: a prepared loader needs none.
// @accelerate torch.utils.data.DistributedSampler
#pragma once

#include <optional>

#include "data/sampler.hpp"

namespace accel::data {

class DistributedSampler final : public Sampler {
 public:
  // Every num_replicas-th item from `rank` on, of the sequence or, with a seed, of the epoch's permutation. Its tail is
  // filled up with items from the start, or with drop_last left out, so that all ranks have equally many.
  DistributedSampler(int64_t items, int64_t num_replicas, int64_t rank, std::optional<int64_t> seed, bool drop_last);
  int64_t length() const override { return length_; }
  at::Tensor indices(int64_t epoch) const override;

 private:
  int64_t items_;
  int64_t num_replicas_;
  int64_t rank_;
  std::optional<int64_t> seed_;
  int64_t length_;
};

}  // namespace accel::data
