// One rank's share of a DataLoader's batches, on its device. @accelerate DataLoaderShard, DataLoaderDispatcher
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "comm/communicator.hpp"
#include "data/dataloader.hpp"
#include "data/device_copy.hpp"
#include "data/loader.hpp"
#include "state/gradient_state.hpp"
#include "trace/step_times.hpp"

namespace accel::data {

struct ShardOptions {
  int64_t num_processes = 1;
  int64_t process_index = 0;
  bool split_batches = false;
  bool even_batches = true;
  bool dispatch_batches = false;  // rank 0 reads for all
  std::optional<c10::Device> device;
  bool non_blocking = false;
  std::optional<int64_t> seed;                       // instead of the loader's
  bool draw_seed = false;                            // drawn from the default generator when the first epoch begins
  bool resumes = true;                               // whether a checkpoint restores the position
  std::shared_ptr<comm::Communicator> communicator;  // null: the ranks do not communicate
  // The process_index of each rank of the communicator, where ranks read the same data; empty: each has its own.
  std::vector<int64_t> process_indices;
  std::shared_ptr<state::GradientState> gradient_state;
  std::shared_ptr<StepTimes> step_times;  // may be null
  std::function<void()> at_epoch_begin;   // may be empty
};

// While the last batch of an epoch is in use, its progress in the gradient state says so.
class PreparedDataLoader final : public Loader, public std::enable_shared_from_this<PreparedDataLoader> {
 public:
  PreparedDataLoader(const DataLoader& loader, const ShardOptions& sharding);

  std::optional<c10::IValue> next() override;

  // Called behind each next(), with whether there was a batch, until it returns false.
  using Follower = std::function<bool(const PreparedDataLoader& loader, bool has_batch)>;
  void set_follower(Follower follower) { follower_ = std::move(follower); }

  const ShardOptions& sharding() const { return sharding_; }
  // Takes effect at the start of the next epoch. Iterable datasets are always evened out.
  void set_even_batches(bool even_batches) { sharding_.even_batches = even_batches; }

 private:
  // A batch and its copy to the device, which may still be running.
  struct Copied {
    Batch batch;
    DeviceCopy::Started copy;
  };

  PreparedDataLoader(LoaderInput input, const ShardOptions& sharding);

  std::shared_ptr<Loader> clone() const override;
  Shard shard() const override;
  std::optional<int64_t> full_length() const override;
  EpochPosition position_after(int64_t units) const override;
  int64_t draw_seed() const override;
  void begin_epoch() override;
  EpochSource open_epoch() const override;
  bool calls_back() const override;
  bool pins_memory() const override;
  std::optional<Batch> next_batch() override;
  void go_to(const LoaderState& state) override;

  // Whether there are enough shards of an iterable dataset for each rank to read its own.
  bool has_shard_for_each_rank() const;
  bool reads_own_shards() const;
  std::optional<Copied> read_and_copy();

  ShardOptions sharding_;
  std::optional<DeviceCopy> copy_;
  std::optional<Batch> read_;    // and not yet copied
  std::optional<Copied> ahead_;  // the next batch, where copies run beside computations
  std::exception_ptr ahead_failure_;
  Follower follower_;
};

}  // namespace accel::data
