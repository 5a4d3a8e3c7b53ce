// SPDX-License-Identifier: Apache-2.0
// One rank's share of a DataLoader's batches, on its device. @accelerate DataLoaderShard, DataLoaderDispatcher
#pragma once

#include <ATen/core/ivalue.h>

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "data/dataloader.hpp"
#include "data/device_copy.hpp"
#include "data/loader.hpp"
#include "data/rank_share.hpp"

namespace accel::data {

// While the last batch of an epoch is in use, its progress in the gradient state says so.
class PreparedDataLoader final : public Loader, public std::enable_shared_from_this<PreparedDataLoader> {
 public:
  PreparedDataLoader(const DataLoader& loader, const ShardOptions& sharding);

  std::optional<c10::IValue> next() override;

  // Called behind each next(), with whether there was a batch, until it returns false.
  using Follower = std::function<bool(const PreparedDataLoader& loader, bool has_batch)>;
  void set_follower(Follower follower) { follower_ = std::move(follower); }

  const ShardOptions& sharding() const { return share_->options(); }
  // Takes effect at the start of the next epoch. Iterable datasets are always evened out.
  void set_even_batches(bool even_batches) { share_->set_even_batches(even_batches); }

 private:
  // A batch and its copy to the device, which may still be running.
  struct Copied {
    Batch batch;
    DeviceCopy::Started copy;
  };

  PreparedDataLoader(LoaderInput input, std::shared_ptr<RankShare> share);

  std::shared_ptr<Loader> clone() const override;
  void begin_epoch() override;
  bool pins_memory() const override;
  std::optional<Batch> next_batch() override;
  void go_to(const LoaderState& state) override;

  std::optional<Copied> read_and_copy();

  const std::shared_ptr<RankShare> share_;
  std::optional<DeviceCopy> copy_;
  std::optional<Batch> read_;    // and not yet copied
  std::optional<Copied> ahead_;  // the next batch, where copies run beside computations
  std::exception_ptr ahead_failure_;
  Follower follower_;
};

}  // namespace accel::data
