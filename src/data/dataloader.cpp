#include "data/dataloader.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "data/map_source.hpp"
#include "data/stream_source.hpp"
#include "state/random.hpp"
#include "tensor/tree.hpp"

namespace accel::data {
namespace {

using Clock = std::chrono::steady_clock;

// Handing a batch from one thread to another costs two wakes. A batch that is made faster than this is better made by
// who wants it. One may be slow because the machine was busy elsewhere, so it takes two in a row.
constexpr std::chrono::microseconds kWorthAThread(50);
constexpr int64_t kSlowReads = 2;

// The items in their order or shuffled, as many as the dataset has when an epoch begins.
class DatasetOrder final : public Sampler {
 public:
  DatasetOrder(std::shared_ptr<const Dataset> dataset, const LoaderOptions& options)
      : dataset_(std::move(dataset)), shuffle_(options.shuffle), seed_(options.seed) {}
  int64_t length() const override { return dataset_->length(); }
  at::Tensor indices(int64_t epoch) const override {
    if (shuffle_) return SeedableRandomSampler(length(), seed_.value_or(0)).indices(epoch);
    return SequentialSampler(length()).indices(epoch);
  }

 private:
  std::shared_ptr<const Dataset> dataset_;
  bool shuffle_;
  std::optional<int64_t> seed_;  // settled before the first index is asked for
};

void check(const LoaderData& data, const LoaderOptions& options) {
  require((data.dataset != nullptr) != (data.stream != nullptr), Status::kInvalidArgument,
          "a loader needs a dataset or a stream; expected one of them");
  require(data.sampler == nullptr || data.batch_sampler == nullptr, Status::kInvalidArgument,
          "a sampler and a batch sampler were given; expected one of them");
  const bool sampled = data.sampler != nullptr || data.batch_sampler != nullptr;
  require(!options.shuffle || !sampled, Status::kInvalidArgument,
          "shuffle is 1 and a sampler was given; expected one of them");
  require(data.stream == nullptr || (!options.shuffle && !sampled), Status::kInvalidArgument,
          "the items of a stream come in its own order; expected neither shuffle nor a sampler");
  require(options.prefetch >= 0, Status::kInvalidArgument, "prefetch is ", options.prefetch, "; expected at least 0");
  require(options.num_workers >= 0, Status::kInvalidArgument, "num_workers is ", options.num_workers,
          "; expected at least 0");
  require(options.num_workers == 0 || options.prefetch > 0, Status::kInvalidArgument,
          "prefetch is 0 and num_workers is ", options.num_workers,
          "; expected at least 1 batch for a worker to keep ready");
  require(options.batch_size >= 1, Status::kInvalidArgument, "batch_size is ", options.batch_size,
          "; expected at least 1");
}

// How many whole units, items or batches of any size, hold the first samples.
int64_t units_of(const EpochBatches& batches, int64_t samples) {
  if (batches.offsets.empty()) return samples;
  const auto place = std::lower_bound(batches.offsets.begin(), batches.offsets.end(), samples);
  require(
      place != batches.offsets.end() && *place == samples, Status::kInvalidArgument, samples,
      " items were handed out, which is not the end of a batch; expected a state of a loader over the same batches");
  return place - batches.offsets.begin();
}

// A loader that this thread reads from, inside of the one before. Callbacks of a loader must not come back to it: its
// place is in motion, and a worker would wait for itself.
class Reading {
 public:
  explicit Reading(const DataLoader& loader) : loader_(loader), outer_(innermost) { innermost = this; }
  ~Reading() { innermost = outer_; }
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;

  static void require_none_of(const DataLoader& loader) {
    for (const Reading* reading = innermost; reading != nullptr; reading = reading->outer_)
      require(&reading->loader_ != &loader, Status::kInvalidState,
              "a callback of the loader uses the loader itself; expected another loader");
  }

 private:
  static inline thread_local const Reading* innermost = nullptr;
  const DataLoader& loader_;
  const Reading* const outer_;
};

int64_t groups(int64_t items, int64_t size, bool drop_last) { return (items + (drop_last ? 0 : size - 1)) / size; }

}  // namespace

DataLoader::DataLoader(LoaderData data, const LoaderOptions& options)
    : DataLoader(std::move(data), options, std::nullopt) {}

DataLoader::DataLoader(std::shared_ptr<const Dataset> dataset, std::shared_ptr<const Sampler> sampler,
                       const LoaderOptions& options)
    : DataLoader({std::move(dataset), nullptr, std::move(sampler), nullptr}, options) {}

DataLoader::DataLoader(LoaderData data, const LoaderOptions& options, const std::optional<ShardOptions>& sharding)
    : data_(std::move(data)),
      options_(options),
      sharding_(sharding),
      progress_(std::make_shared<state::LoaderProgress>()) {
  check(data_, options_);
  if (options_.shuffle) SeedableRandomSampler(data_.dataset->length(), 0);  // refuses nothing to draw from
  if (!sharding_) return;
  if (sharding_->seed) options_.seed = *sharding_->seed;
  if (sharding_->device) copy_.emplace(*sharding_->device, sharding_->non_blocking);
  require(!dispatches() || sharding_->device, Status::kInvalidArgument,
          "dispatch_batches is 1 and put_on_device is 0; expected batches that go to the device of each rank");
  require(!dispatches() || sharding_->communicator != nullptr, Status::kInvalidArgument,
          "dispatch_batches is 1 without ranks that talk");
  // Checks that batches can be shared out, for one process as for several.
  BatchSamplerShard({0, batch_size(), drop_last()}, {sharding_->num_processes, sharding_->process_index,
                                                     sharding_->split_batches, sharding_->even_batches});
}

DataLoader::~DataLoader() = default;

std::shared_ptr<const BatchSampler> DataLoader::batch_sampler() const {
  if (data_.batch_sampler != nullptr) return data_.batch_sampler;
  auto sampler = data_.sampler;
  if (sampler == nullptr) sampler = std::make_shared<DatasetOrder>(data_.dataset, options_);
  return std::make_shared<OrderedBatchSampler>(std::move(sampler), options_.batch_size, options_.drop_last);
}

std::optional<int64_t> DataLoader::batch_size() const {
  return data_.batch_sampler != nullptr ? data_.batch_sampler->batch_size() : options_.batch_size;
}

bool DataLoader::drop_last() const {
  return data_.batch_sampler != nullptr ? data_.batch_sampler->drop_last() : options_.drop_last;
}

// One process gets the batches as they are: nothing has to be evened out.
Shard DataLoader::shard() const {
  Shard shard;
  if (num_processes() == 1 && process_index() == 0) return shard;
  return {sharding_->num_processes, sharding_->process_index, sharding_->split_batches, sharding_->even_batches};
}

int64_t DataLoader::group_size() const {
  return batch_size().value_or(1) * (shard().split_batches ? 1 : num_processes());
}

std::optional<int64_t> DataLoader::total_batch_size() const {
  return batch_size() ? std::optional<int64_t>(group_size()) : std::nullopt;
}

std::optional<int64_t> DataLoader::total_dataset_length() const {
  return data_.stream != nullptr ? data_.stream->length() : data_.dataset->length();
}

std::optional<int64_t> DataLoader::length() const {
  if (data_.stream != nullptr) {
    const auto items = data_.stream->length();
    if (!items || (num_processes() > 1 && data_.stream->num_shards() >= num_processes() && !dispatches()))
      return std::nullopt;
    return std::max<int64_t>(groups(*items, group_size(), drop_last()) - skipped_, 0);
  }
  const int64_t units = batch_sampler()->count(state_.epoch);
  if (dispatches()) return std::max<int64_t>(groups(units, group_size(), drop_last()) - skipped_, 0);
  const int64_t batches = BatchSamplerShard({units, batch_size(), drop_last()}, shard()).count();
  return std::max<int64_t>(batches - skipped_, 0);
}

int64_t DataLoader::valid_rows() const {
  if (progress_->ranks.empty()) return progress_->rows;
  return progress_->ranks[static_cast<size_t>(process_index())].valid;
}

std::optional<c10::IValue> DataLoader::next() {
  Reading::require_none_of(*this);
  const Reading reading(*this);
  std::optional<StepTimes::Section> timed;
  if (sharding_ && sharding_->step_times) timed.emplace(*sharding_->step_times, StepPart::kData);
  if (!running_) begin_epoch();
  std::optional<Ready> ready;
  if (ahead_failure_) std::rethrow_exception(std::exchange(ahead_failure_, nullptr));
  if (ahead_)
    ready = std::exchange(ahead_, std::nullopt);
  else if (!progress_->end_of_dataloader)
    ready = produce();
  if (!ready) {
    LoaderState following;
    following.epoch = state_.epoch + 1;
    go_to(following);
    return std::nullopt;
  }
  if (copy_ && copy_->is_asynchronous() && !ready->batch.progress.end_of_dataloader) try {
      ahead_ = produce();
    } catch (...) {
      ahead_failure_ = std::current_exception();  // of the next batch
    }
  c10::IValue value = copy_ ? copy_->finish(std::move(ready->copy)) : std::move(ready->batch.value);
  *progress_ = std::move(ready->batch.progress);
  state_.position = std::move(ready->batch.end);
  state_.batches += 1;
  return value;
}

std::optional<DataLoader::Ready> DataLoader::produce() {
  try {
    if (!delivered_) delivered_ = source_->deliver([this] { return take(); });
  } catch (...) {
    workers_.reset();  // the next call reads this batch again
    throw;
  }
  if (!delivered_) return std::nullopt;
  Ready ready;
  if (copy_) ready.copy = copy_->start(delivered_->value);
  ready.batch = std::move(*delivered_);
  delivered_.reset();
  return ready;
}

std::optional<Batch> DataLoader::take() {
  std::optional<Batch> batch;
  if (workers_ != nullptr) {
    batch = workers_->take();
    read_ += batch.has_value();
    return batch;
  }
  const auto start = Clock::now();
  batch = read(read_);
  const auto took = Clock::now() - start;
  read_ += batch.has_value();
  slow_reads_ = took > kWorthAThread ? slow_reads_ + 1 : 0;
  const bool more = batch && !batch->progress.end_of_dataloader;
  if (slow_reads_ >= kSlowReads && more && !calls_back()) start_workers();
  return batch;
}

std::optional<Batch> DataLoader::read(int64_t index) const {
  auto batch = source_->read(index);
  if (batch && options_.pin_memory && copy_ && copy_->is_asynchronous())
    batch->value = tree::map_tensors(
        batch->value, [](const at::Tensor& tensor) { return tensor.is_cpu() ? tensor.pin_memory() : tensor; });
  return batch;
}

bool DataLoader::calls_back() const {
  const bool data = data_.dataset != nullptr ? data_.dataset->calls_back() : data_.stream->calls_back();
  return data || options_.collation.kind == Collation::Kind::kCallback || (dispatches() && options_.slice);
}

void DataLoader::start_workers() {
  if (options_.prefetch == 0 || !source_->reads()) return;
  const int64_t workers = source_->is_random_access() ? std::max<int64_t>(options_.num_workers, 1) : 1;
  const auto read_here = [this](int64_t index) {
    const Reading reading(*this);
    return read(index);
  };
  workers_ = std::make_unique<WorkerPool>(read_here, read_, workers, options_.prefetch * workers);
}

// Rank 0's counts for all: with orders of their own ranks would lose items and repeat others.
void DataLoader::settle_seed() {
  if (seed_is_settled_) return;
  at::Tensor seed = at::empty({1}, at::kLong);
  if (sharding_ && sharding_->draw_seed) {
    seed.random_();
  } else {
    const auto initial = static_cast<int64_t>(state::default_generator(c10::kCPU).current_seed());
    seed.fill_(options_.seed.value_or(initial));
  }
  if (sharding_ && sharding_->communicator != nullptr && sharding_->communicator->size() > 1) {
    seed = seed.to(sharding_->communicator->device());
    sharding_->communicator->broadcast(seed, 0);
  }
  options_.seed = seed.item<int64_t>();
  seed_is_settled_ = true;
}

void DataLoader::begin_epoch() {
  if (sharding_ && sharding_->at_epoch_begin) sharding_->at_epoch_begin();
  if (options_.shuffle) settle_seed();
  if (data_.dataset != nullptr) data_.dataset->begin_epoch(state_.epoch);
  source_ = make_source();
  read_ = 0;
  running_ = true;
  if (sharding_ && sharding_->gradient_state) sharding_->gradient_state->begin_loader(progress_, weak_from_this());
  if (options_.num_workers > 0 && calls_back()) start_workers();
}

void DataLoader::go_to(const LoaderState& state) {
  workers_.reset();
  source_.reset();
  delivered_.reset();
  ahead_.reset();
  ahead_failure_ = nullptr;
  if (running_ && sharding_ && sharding_->gradient_state) sharding_->gradient_state->end_loader(progress_);
  running_ = false;
  *progress_ = {};
  state_ = state;
  skipped_ = 0;
}

std::unique_ptr<BatchSource> DataLoader::make_source() {
  if (dispatches()) return make_dispatch_source();
  return data_.dataset != nullptr ? make_map_source() : make_stream_source();
}

std::unique_ptr<BatchSource> DataLoader::make_map_source() {
  EpochBatches batches = batch_sampler()->batches(state_.epoch);
  const int64_t units = batches.count(), first = units_of(batches, state_.position.samples);
  const BatchSamplerShard share({units, batch_size(), drop_last(), first}, shard());
  progress_->remainder = drop_last() || !batch_size() ? -1 : (units - first) % group_size();
  return std::make_unique<MapSource>(data_.dataset, std::move(batches), share, progress_->remainder,
                                     options_.collation);
}

std::unique_ptr<BatchSource> DataLoader::make_stream_source() {
  EpochPosition begin = state_.position;
  const int64_t ranks = num_processes(), epoch = state_.epoch;
  const auto& stream = data_.stream;
  const bool own_shards = ranks > 1 && !shard().split_batches && sharding_->communicator != nullptr &&
                          stream->num_shards() >= ranks && begin.rest == 0 &&
                          (begin.readers.empty() || static_cast<int64_t>(begin.readers.size()) == ranks);
  StreamShare share;
  share.num_processes = ranks;
  share.process_index = process_index();
  share.rows = group_size() / ranks;
  share.drop_last = drop_last();
  ItemGroups::Part part;
  part.drop_last = share.drop_last;
  if (own_shards) {
    begin.readers.resize(static_cast<size_t>(ranks));
    part.size = part.end = share.rows;
    part.done = begin.readers[static_cast<size_t>(process_index())];
    auto open = [stream, epoch, rank = process_index(), ranks] { return stream->read(epoch, rank, ranks); };
    return std::make_unique<ShardedStreamSource>(ItemGroups(open, part), share, begin, options_.collation,
                                                 sharding_->communicator, sharding_->process_indices);
  }
  if (begin.readers.empty()) begin.readers = {0};
  part.size = group_size();
  part.begin = share.rows * process_index();
  part.end = part.begin + share.rows;
  part.done = begin.rest;
  if (begin.readers == std::vector<int64_t>{0}) part.items = stream->length();
  if (part.items && !drop_last()) share.remainder = std::max<int64_t>(*part.items - begin.rest, 0) % group_size();
  progress_->remainder = share.remainder;
  return std::make_unique<StreamSource>(ItemGroups(open_readers(stream, epoch, begin), part), share, begin,
                                        options_.collation);
}

std::unique_ptr<BatchSource> DataLoader::make_dispatch_source() {
  EpochPosition begin = state_.position;
  DispatchShare share;
  share.size = group_size();
  share.drop_last = drop_last();
  share.slice = options_.slice;
  ItemGroups::Part part;
  part.size = part.end = group_size();
  part.drop_last = drop_last();
  ItemGroups::Open open;
  DispatchSource::Make make;
  std::optional<int64_t> units;
  if (data_.stream != nullptr) {
    if (begin.readers.empty()) begin.readers = {0};
    part.done = begin.rest;
    open = open_readers(data_.stream, state_.epoch, begin);
    make = [collation = options_.collation](std::vector<c10::IValue> items) {
      return collate(collation, std::move(items));
    };
    if (begin.readers == std::vector<int64_t>{0}) units = data_.stream->length();
  } else {
    const EpochBatches batches = batch_sampler()->batches(state_.epoch);
    units = batches.count();
    part.done = units_of(batches, begin.samples);
    share.items_are_batches = !batch_size();
    open = [batches] { return read_indices(batches); };
    make = [dataset = data_.dataset, collation = options_.collation](const std::vector<c10::IValue>& items) {
      std::vector<int64_t> indices;
      for (const auto& item : items) {
        if (item.isInt()) {
          indices.push_back(item.toInt());
          continue;
        }
        const at::Tensor& batch = item.toTensor();
        const auto* const first = batch.const_data_ptr<int64_t>();
        indices.insert(indices.end(), first, first + batch.numel());
      }
      return dataset->batch(indices, collation);
    };
  }
  if (units && batch_size() && !drop_last()) share.remainder = std::max<int64_t>(*units - part.done, 0) % group_size();
  progress_->remainder = share.remainder;
  return std::make_unique<DispatchSource>(ItemGroups(std::move(open), part), share, std::move(begin), std::move(make),
                                          sharding_->communicator, sharding_->process_indices);
}

void DataLoader::require_plain() const {
  require(!sharding_ && !running_ && state_.epoch == 0 && state_.batches == 0, Status::kInvalidState, "the loader is ",
          sharding_ ? "prepared" : "at work", " already; expected one that was just made");
}

void DataLoader::set_collate(std::function<c10::IValue(std::vector<c10::IValue>)> collate) {
  require_plain();
  options_.collation.kind = Collation::Kind::kCallback;
  options_.collation.callback = std::move(collate);
}

void DataLoader::set_batch_sampler(std::shared_ptr<const BatchSampler> batch_sampler) {
  require_plain();
  LoaderData data = data_;
  data.batch_sampler = std::move(batch_sampler);
  check(data, options_);
  data_ = std::move(data);
}

void DataLoader::set_slice(SliceFunction slice) {
  require_plain();
  options_.slice = std::move(slice);
}

void DataLoader::set_epoch(int64_t epoch) {
  Reading::require_none_of(*this);
  require(epoch >= 0, Status::kInvalidArgument, "epoch is ", epoch, "; expected at least 0");
  LoaderState state;
  state.epoch = epoch;
  go_to(state);
}

c10::IValue DataLoader::state_dict() const {
  LoaderState state = state_;
  if (options_.shuffle && seed_is_settled_) state.seed = options_.seed;
  return to_value(state);
}

void DataLoader::load_state_dict(const c10::IValue& state_dict) {
  Reading::require_none_of(*this);
  const LoaderState state = read_loader_state(state_dict);
  if (data_.dataset != nullptr) {
    require(state.position.readers.empty(), Status::kInvalidArgument,
            "the state is of a loader over a stream; expected one of a loader over the same dataset");
    const auto sampler = batch_sampler();
    if (!batch_size()) {
      units_of(sampler->batches(state.epoch), state.position.samples);
    } else {
      const int64_t items = sampler->count(state.epoch);
      require(state.position.samples <= items, Status::kInvalidArgument, "the state of a loader is at item ",
              state.position.samples, " of an epoch, and this one has ", items,
              "; expected a state of a loader over the same data");
    }
  } else {
    require(state.position.samples == 0 || !state.position.readers.empty(), Status::kInvalidArgument,
            "the state is of a loader over a dataset; expected one of a loader over the same stream");
  }
  go_to(state);
  if (!options_.shuffle || !state.seed) return;
  options_.seed = *state.seed;
  seed_is_settled_ = true;
}

std::shared_ptr<DataLoader> DataLoader::skip_first(int64_t num_batches) {
  Reading::require_none_of(*this);
  require(num_batches >= 0, Status::kInvalidArgument, "num_batches is ", num_batches, "; expected at least 0");
  std::shared_ptr<DataLoader> loader(new DataLoader(data_, options_, sharding_));
  loader->seed_is_settled_ = seed_is_settled_;
  LoaderState& state = loader->state_;
  state.epoch = state_.epoch;
  const auto full = data_.stream == nullptr ? loader->length() : std::nullopt;
  state.batches = loader->skipped_ = std::min(num_batches, full.value_or(num_batches));
  const int64_t units = state.batches * group_size();
  if (data_.dataset != nullptr) {
    const auto sampler = batch_sampler();
    const int64_t skipped = std::min(units, sampler->count(state.epoch));
    state.position.samples =
        batch_size() ? skipped : sampler->batches(state.epoch).offsets[static_cast<size_t>(skipped)];
  } else {
    state.position = stream_position(units);
  }
  const bool is_resumed = !running_ && state_.batches > skipped_;  // by load_state_dict(), and not begun
  if (is_resumed) set_epoch(state_.epoch + 1);
  return loader;
}

// Behind the first `units` batches of all ranks.
EpochPosition DataLoader::stream_position(int64_t units) const {
  EpochPosition position;
  const int64_t ranks = num_processes();
  const bool own_shards = ranks > 1 && !dispatches() && !shard().split_batches && sharding_->communicator != nullptr &&
                          data_.stream->num_shards() >= ranks;
  position.samples = units;
  if (own_shards) {
    position.readers.assign(static_cast<size_t>(ranks), units / ranks);
  } else {
    position.readers = {0};
    position.rest = units;
  }
  return position;
}

std::shared_ptr<DataLoader> DataLoader::sharded(const ShardOptions& sharding) const {
  require(!sharding_, Status::kInvalidState, "the loader is shared out already; prepare the loader it was made from");
  return std::shared_ptr<DataLoader>(new DataLoader(data_, options_, sharding));
}

}  // namespace accel::data
