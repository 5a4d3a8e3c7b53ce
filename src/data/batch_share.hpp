// SPDX-License-Identifier: Apache-2.0
// A share of a loader's batches: which of them it reads, how many there are, and where an epoch begins. This one is
// all batches.
#pragma once

#include <cstdint>
#include <optional>

#include "data/batches/batch_sampler_shard.hpp"
#include "data/batches/batch_source.hpp"
#include "data/batches/epoch_source.hpp"
#include "data/loader_input.hpp"
#include "data/loader_state.hpp"

namespace accel::data {

class BatchShare {
 public:
  BatchShare() = default;
  BatchShare(const BatchShare&) = delete;
  BatchShare& operator=(const BatchShare&) = delete;
  virtual ~BatchShare() = default;

  virtual Shard shard() const { return {}; }
  // Batches of an epoch; nothing where an iterable dataset has no known length.
  virtual std::optional<int64_t> length(const LoaderInput& input, int64_t epoch) const;
  // The position behind the first units, which are items, or batches where they have any size, of all ranks.
  virtual EpochPosition position_after(int64_t units, const LoaderInput& input, int64_t epoch) const;
  // The seed of the order, the same on all ranks that share the batches.
  virtual int64_t draw_seed(const LoaderInput& input) const;
  virtual EpochSource open(const LoaderInput& input, const LoaderState& from) const;
  // Whether reading a batch runs the application's code.
  virtual bool calls_back(const LoaderInput& input) const { return input.calls_back(); }
};

}  // namespace accel::data
