// SPDX-License-Identifier: Apache-2.0
// Iterates over batches, epoch after epoch: what DataLoader and PreparedDataLoader have in common.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "data/batch_share.hpp"
#include "data/batches/batch_source.hpp"
#include "data/loader_input.hpp"
#include "data/loader_state.hpp"
#include "data/prefetcher.hpp"
#include "state/gradient_state.hpp"
#include "tensor/stateful.hpp"

namespace accel::data {

class Loader : public tensor::Stateful {
 public:
  ~Loader() override;
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // The next batch; nothing once at the end of each epoch, after which the next epoch begins. A batch that failed is
  // read again.
  virtual std::optional<c10::IValue> next();

  const LoaderInput& input() const { return input_; }
  // Batches of an epoch on this rank, without those that are skipped; nothing where an iterable dataset has no known
  // length.
  std::optional<int64_t> length() const;
  int64_t epoch() const { return state_.epoch; }
  // Rows of the current batch that are not repetitions.
  int64_t valid_rows() const;
  // Items that one step takes on all ranks together; nothing where batches have any size.
  std::optional<int64_t> total_batch_size() const;

  // Drops the rest of the current epoch and goes to the start of this one.
  void set_epoch(int64_t epoch);

  // The position behind the batches that next() has returned, whatever was read ahead. It can be loaded with another
  // number of ranks or threads.
  c10::IValue state_dict() const override;
  void load_state_dict(const c10::IValue& state_dict) override;

  // A new loader over the same data, whose first epoch leaves out its first batches. It takes over the epoch in which
  // this one would continue after load_state_dict(): this one then begins with the next.
  std::shared_ptr<Loader> skip_first(int64_t num_batches);

 protected:
  Loader(LoaderInput input, std::shared_ptr<const BatchShare> share);

  // Each kind of loader implements these.

  // Another one over the same input, at its start.
  virtual std::shared_ptr<Loader> clone() const = 0;
  virtual void begin_epoch();
  virtual bool pins_memory() const { return false; }
  virtual std::optional<Batch> next_batch() { return read_batch(); }
  // Leaves the current epoch for a position.
  virtual void go_to(const LoaderState& state);

  std::optional<Batch> read_batch();
  bool is_running() const { return prefetcher_ != nullptr; }
  const LoaderState& state() const { return state_; }
  // The progress of the current batch, while it is in use.
  const std::shared_ptr<state::LoaderProgress>& progress() const { return progress_; }

  LoaderInput input_;

 private:
  void settle_seed();

  const std::shared_ptr<const BatchShare> share_;
  bool seed_is_settled_ = false;            // and the same on all ranks
  LoaderState state_;                       // behind the current batch
  int64_t skipped_ = 0;                     // batches that the current epoch leaves out
  std::unique_ptr<Prefetcher> prefetcher_;  // of the current epoch
  const std::shared_ptr<state::LoaderProgress> progress_;
};

}  // namespace accel::data
