// SPDX-License-Identifier: Apache-2.0
// One rank's share of the batches: each rank reads its own, or rank 0 reads for all.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "config/generated/settings/prepare/dataloader_config.hpp"
#include "data/batch_share.hpp"
#include "state/gradient_state.hpp"
#include "trace/step_times.hpp"

namespace accel::data {

// The settings of a prepared loader, and the ranks that share its batches.
struct ShardOptions : DataloaderConfig {
  int64_t num_processes = 1;
  int64_t process_index = 0;
  std::optional<c10::Device> device = {};                 // to which batches go
  std::shared_ptr<comm::Communicator> communicator = {};  // null: the ranks do not communicate
  // The process_index of each rank of the communicator, where ranks read the same data; empty: each has its own.
  std::vector<int64_t> process_indices = {};
  std::shared_ptr<state::GradientState> gradient_state = {};
  std::shared_ptr<StepTimes> step_times = {};  // may be null
  std::function<void()> at_epoch_begin = {};   // may be empty
  // Returns what this rank keeps of a batch, which other ranks get too; may be empty.
  std::function<c10::IValue(const c10::IValue&)> part_of_batch = {};

  bool splits_batches() const { return split_batches.value_or(false); }
};

class RankShare final : public BatchShare {
 public:
  explicit RankShare(const ShardOptions& options) : options_(options) {}

  const ShardOptions& options() const { return options_; }
  void set_even_batches(bool even_batches) { options_.even_batches = even_batches; }

  Shard shard() const override;
  std::optional<int64_t> length(const LoaderInput& input, int64_t epoch) const override;
  EpochPosition position_after(int64_t units, const LoaderInput& input, int64_t epoch) const override;
  int64_t draw_seed(const LoaderInput& input) const override;
  EpochSource open(const LoaderInput& input, const LoaderState& from) const override;
  bool calls_back(const LoaderInput& input) const override;

 private:
  // Whether there are enough shards of an iterable dataset for each rank to read its own.
  bool has_shard_for_each_rank(const LoaderInput& input) const;
  bool reads_own_shards(const LoaderInput& input) const;

  ShardOptions options_;
};

}  // namespace accel::data
