// Batches of a dataset, epoch after epoch, assembled ahead of time by a thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "base/step_times.hpp"
#include "data/batch_sampler_shard.hpp"
#include "data/dataset.hpp"
#include "data/sampler.hpp"
#include "state/gradient_state.hpp"

namespace accel::data {

class Prefetcher;

struct LoaderOptions {
  int64_t batch_size = 1;
  bool drop_last = false;
  int64_t prefetch = 2;  // batches that the thread keeps ready; 0: no thread
};

struct ShardOptions {
  int64_t num_processes = 1;
  int64_t process_index = 0;
  bool split_batches = false;
  bool even_batches = true;
  std::optional<c10::Device> device;
  bool non_blocking = false;
  std::shared_ptr<state::GradientState> gradient_state;
  std::shared_ptr<StepTimes> step_times;  // may be null
  std::function<void()> at_epoch_begin;   // may be empty
};

class DataLoader {
 public:
  DataLoader(std::shared_ptr<const Dataset> dataset, std::shared_ptr<const Sampler> sampler,
             const LoaderOptions& options);
  ~DataLoader();
  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;

  // The next batch; nothing once at the end of each epoch, after which the next
  // epoch begins. While the last batch of an epoch is in hand, a sharded
  // loader's progress says so.
  std::optional<c10::IValue> next();

  // Batches of the current epoch on this rank, less those that it skips.
  int64_t length() const { return shard_.count() - skipped_; }
  int64_t epoch() const { return epoch_; }
  int64_t batch_size() const { return options_.batch_size; }
  bool is_sharded() const { return sharding_.has_value(); }
  // Of a sharded loader; holds from the next epoch on that begins.
  bool even_batches() const { return sharding_->even_batches; }
  void set_even_batches(bool even_batches);
  // Items that one step takes on all ranks together.
  int64_t total_batch_size() const;
  int64_t num_items() const { return sampler_->length(); }

  // Drops the rest of the epoch and goes to the start of that one.
  void set_epoch(int64_t epoch);

  // {epoch, batches}: what was handed out, whatever was prefetched.
  c10::IValue state_dict() const;
  void load_state_dict(const c10::IValue& state_dict);

  // A new loader on the same data, whose first epoch leaves out its first
  // batches.
  std::shared_ptr<DataLoader> skip_first(int64_t num_batches) const;

  // A new loader that gives one rank its share, on its device, and tells the
  // gradient state how far it is.
  std::shared_ptr<DataLoader> sharded(const ShardOptions& sharding) const;

 private:
  DataLoader(std::shared_ptr<const Dataset> dataset, std::shared_ptr<const Sampler> sampler,
             const LoaderOptions& options, const std::optional<ShardOptions>& sharding);

  void go_to(int64_t epoch, int64_t position);
  void begin_epoch();
  c10::IValue fetch();
  c10::IValue assemble(const at::Tensor& order, int64_t index) const;
  int64_t last_batch_remainder() const;

  std::shared_ptr<const Dataset> dataset_;
  std::shared_ptr<const Sampler> sampler_;
  LoaderOptions options_;
  std::optional<ShardOptions> sharding_;
  BatchSamplerShard shard_;

  int64_t epoch_ = 0;
  int64_t position_ = 0;  // batches of the epoch that were handed out or skipped
  int64_t skipped_ = 0;   // the first batches of the current epoch that are left out
  bool running_ = false;
  at::Tensor order_;
  std::unique_ptr<Prefetcher> prefetcher_;
  std::shared_ptr<state::LoaderProgress> progress_;
};

}  // namespace accel::data
