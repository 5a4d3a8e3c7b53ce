// Batches of a dataset or a stream, epoch after epoch, on the device and read ahead of time where that pays.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>

#include "base/step_times.hpp"
#include "comm/communicator.hpp"
#include "data/batch_sampler.hpp"
#include "data/batch_sampler_shard.hpp"
#include "data/batch_source.hpp"
#include "data/dataset.hpp"
#include "data/device_copy.hpp"
#include "data/dispatch_source.hpp"
#include "data/loader_state.hpp"
#include "data/sampler.hpp"
#include "data/stream.hpp"
#include "data/worker_pool.hpp"
#include "state/gradient_state.hpp"
#include "tensor/stateful.hpp"

namespace accel::data {

// A dataset or a stream. Indices of a dataset come from one of the samplers, or else from the loader's own order.
struct LoaderData {
  std::shared_ptr<const Dataset> dataset;
  std::shared_ptr<const Stream> stream;
  std::shared_ptr<const Sampler> sampler;
  std::shared_ptr<const BatchSampler> batch_sampler;
};

struct LoaderOptions {
  int64_t batch_size = 1;
  bool drop_last = false;
  int64_t prefetch = 2;         // batches that each thread keeps ready; 0: no thread
  int64_t num_workers = 0;      // threads; 0: one, where batches take longer than to hand them over
  bool pin_memory = false;      // of batches that go to a device
  SliceFunction slice;          // how rank 0 cuts rows that it reads for all; may be empty
  bool shuffle = false;         // the loader's own order is a permutation by seed and epoch
  std::optional<int64_t> seed;  // of that order; unset: that of the CPU's default generator when the first epoch begins
  Collation collation;
};

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
  bool resumes = true;                               // whether a checkpoint says where it goes on
  std::shared_ptr<comm::Communicator> communicator;  // null: the ranks do not talk
  // The process_index of each rank of the communicator, where ranks read the same data; empty: each has its own.
  std::vector<int64_t> process_indices;
  std::shared_ptr<state::GradientState> gradient_state;
  std::shared_ptr<StepTimes> step_times;  // may be null
  std::function<void()> at_epoch_begin;   // may be empty
};

class DataLoader final : public tensor::Stateful, public std::enable_shared_from_this<DataLoader> {
 public:
  DataLoader(LoaderData data, const LoaderOptions& options);
  DataLoader(std::shared_ptr<const Dataset> dataset, std::shared_ptr<const Sampler> sampler,
             const LoaderOptions& options);
  ~DataLoader() override;
  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;

  // The next batch; nothing once at the end of each epoch, after which the next
  // epoch begins. While the last batch of an epoch is in hand, a sharded
  // loader's progress says so. A batch that failed is tried again.
  std::optional<c10::IValue> next();

  // Batches of an epoch on this rank, less those that it skips; nothing where a stream does not say.
  std::optional<int64_t> length() const;
  int64_t epoch() const { return state_.epoch; }
  // Rows of the batch in hand that are no repetitions.
  int64_t valid_rows() const;
  bool is_sharded() const { return sharding_.has_value(); }
  bool resumes() const { return sharding_->resumes; }
  const ShardOptions& sharding() const { return *sharding_; }  // of a sharded loader
  bool pin_memory() const { return options_.pin_memory; }
  // Of a sharded loader; holds from the next epoch on that begins. Streams are always evened out.
  bool even_batches() const { return sharding_->even_batches; }
  void set_even_batches(bool even_batches) { sharding_->even_batches = even_batches; }
  // Items that one step takes on all ranks together; nothing where batches have any size.
  std::optional<int64_t> total_batch_size() const;
  // Items of the data; nothing where a stream does not say.
  std::optional<int64_t> total_dataset_length() const;

  // Of a loader that is not shared out and has not begun.
  void set_collate(std::function<c10::IValue(std::vector<c10::IValue>)> collate);
  void set_batch_sampler(std::shared_ptr<const BatchSampler> batch_sampler);
  void set_slice(SliceFunction slice);
  bool drop_last() const;

  // Drops the rest of the epoch and goes to the start of that one.
  void set_epoch(int64_t epoch);

  // What was handed out, whatever was read ahead. It can be loaded with another number of ranks or threads.
  c10::IValue state_dict() const override;
  void load_state_dict(const c10::IValue& state_dict) override;

  // A new loader on the same data, whose first epoch leaves out its first batches. It takes over the epoch in which
  // this one would go on after load_state_dict(): this one then begins with the next.
  std::shared_ptr<DataLoader> skip_first(int64_t num_batches);

  // A new loader that gives one rank its share, on its device, and tells the
  // gradient state how far it is.
  std::shared_ptr<DataLoader> sharded(const ShardOptions& sharding) const;

 private:
  struct Ready {
    Batch batch;
    DeviceCopy::Started copy;
  };

  DataLoader(LoaderData data, const LoaderOptions& options, const std::optional<ShardOptions>& sharding);

  int64_t num_processes() const { return sharding_ ? sharding_->num_processes : 1; }
  int64_t process_index() const { return sharding_ ? sharding_->process_index : 0; }
  bool dispatches() const { return sharding_ && sharding_->dispatch_batches; }
  std::shared_ptr<const BatchSampler> batch_sampler() const;
  std::optional<int64_t> batch_size() const;  // unset: any
  Shard shard() const;
  void require_plain() const;
  int64_t group_size() const;  // items, or batches of any size, that all ranks take at a time

  void begin_epoch();
  void settle_seed();
  std::unique_ptr<BatchSource> make_source();
  std::unique_ptr<BatchSource> make_map_source();
  std::unique_ptr<BatchSource> make_stream_source();
  std::unique_ptr<BatchSource> make_dispatch_source();
  void go_to(const LoaderState& state);
  EpochPosition stream_position(int64_t units) const;
  std::optional<Ready> produce();
  std::optional<Batch> take();
  std::optional<Batch> read(int64_t index) const;
  bool calls_back() const;
  void start_workers();

  LoaderData data_;
  LoaderOptions options_;
  std::optional<ShardOptions> sharding_;
  std::optional<DeviceCopy> copy_;
  bool seed_is_settled_ = false;  // and the same on all ranks

  LoaderState state_;    // behind the batch in hand
  int64_t skipped_ = 0;  // batches that the current epoch leaves out
  bool running_ = false;
  int64_t read_ = 0;        // batches that were taken from the source
  int64_t slow_reads_ = 0;  // in a row, on the loop's thread
  std::unique_ptr<BatchSource> source_;
  std::unique_ptr<WorkerPool> workers_;  // ends before the source that it reads
  std::optional<Batch> delivered_;       // and not yet copied
  std::optional<Ready> ahead_;
  std::exception_ptr ahead_failure_;
  std::shared_ptr<state::LoaderProgress> progress_;
};

}  // namespace accel::data
