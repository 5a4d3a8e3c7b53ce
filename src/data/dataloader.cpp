#include "data/dataloader.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "data/prefetcher.hpp"
#include "tensor/tree.hpp"

namespace accel::data {
namespace {

// Handing a batch from one thread to another costs two wakes. A batch that is
// assembled faster than this is better made by who wants it; the first one that
// is not starts the thread.
constexpr std::chrono::microseconds kWorthAThread(50);

BatchSamplerShard make_shard(const Sampler& sampler, const LoaderOptions& options,
                             const std::optional<ShardOptions>& sharding) {
  const Batching batching{sampler.length(), options.batch_size, options.drop_last};
  // One process gets the batches as they are: nothing has to be evened out.
  if (!sharding || sharding->num_processes == 1) return BatchSamplerShard(batching, {});
  return BatchSamplerShard(
      batching, {sharding->num_processes, sharding->process_index, sharding->split_batches, sharding->even_batches});
}

c10::impl::GenericDict as_map(const c10::IValue& value) {
  require(value.isGenericDict(), Status::kInvalidArgument, "the state of a loader is a ", tree::kind_name(value),
          "; expected a map with epoch and batches");
  return value.toGenericDict();
}

int64_t read_count(const c10::impl::GenericDict& map, const char* key) {
  const auto entry = map.find(key);
  require(entry != map.end() && entry->value().isInt() && entry->value().toInt() >= 0, Status::kInvalidArgument,
          "the state of a loader lacks \"", key, "\"; expected an integer of at least 0");
  return entry->value().toInt();
}

}  // namespace

DataLoader::DataLoader(std::shared_ptr<const Dataset> dataset, std::shared_ptr<const Sampler> sampler,
                       const LoaderOptions& options)
    : DataLoader(std::move(dataset), std::move(sampler), options, std::nullopt) {}

DataLoader::DataLoader(std::shared_ptr<const Dataset> dataset, std::shared_ptr<const Sampler> sampler,
                       const LoaderOptions& options, const std::optional<ShardOptions>& sharding)
    : dataset_(std::move(dataset)),
      sampler_(std::move(sampler)),
      options_(options),
      sharding_(sharding),
      shard_(make_shard(*sampler_, options_, sharding_)),
      progress_(std::make_shared<state::LoaderProgress>()) {
  require(options.prefetch >= 0, Status::kInvalidArgument, "prefetch is ", options.prefetch, "; expected at least 0");
}

DataLoader::~DataLoader() = default;

std::optional<c10::IValue> DataLoader::next() {
  std::optional<StepTimes::Section> timed;
  if (sharding_ && sharding_->step_times) timed.emplace(*sharding_->step_times, StepPart::kData);
  if (!running_) begin_epoch();
  if (position_ >= shard_.count()) {
    go_to(epoch_ + 1, 0);
    return std::nullopt;
  }
  c10::IValue batch;
  try {
    batch = fetch();
    if (sharding_ && sharding_->device)
      batch = tree::send_to_device(batch, *sharding_->device, sharding_->non_blocking, {});
  } catch (...) {
    prefetcher_.reset();  // the next call tries this batch again
    throw;
  }
  position_ += 1;
  progress_->end_of_dataloader = position_ == shard_.count();
  return batch;
}

c10::IValue DataLoader::fetch() {
  if (prefetcher_ != nullptr) return prefetcher_->take();
  const auto start = std::chrono::steady_clock::now();
  c10::IValue batch = assemble(order_, position_);
  const bool slow = std::chrono::steady_clock::now() - start > kWorthAThread;
  const int64_t next = position_ + 1;
  if (slow && options_.prefetch > 0 && next < shard_.count())
    prefetcher_ = std::make_unique<Prefetcher>([this, order = order_](int64_t index) { return assemble(order, index); },
                                               next, shard_.count(), options_.prefetch);
  return batch;
}

void DataLoader::set_even_batches(bool even_batches) {
  sharding_->even_batches = even_batches;
  if (!running_) shard_ = make_shard(*sampler_, options_, sharding_);
}

void DataLoader::begin_epoch() {
  if (sharding_ && sharding_->at_epoch_begin) sharding_->at_epoch_begin();
  order_ = sampler_->indices(epoch_);
  running_ = true;
  *progress_ = {false, last_batch_remainder()};
  if (sharding_ && sharding_->gradient_state) sharding_->gradient_state->begin_loader(progress_);
}

void DataLoader::go_to(int64_t epoch, int64_t position) {
  prefetcher_.reset();
  order_.reset();
  if (running_ && sharding_ && sharding_->gradient_state) sharding_->gradient_state->end_loader(progress_);
  running_ = false;
  shard_ = make_shard(*sampler_, options_, sharding_);  // its batches may have been made even meanwhile, or uneven
  epoch_ = epoch;
  position_ = position;
  skipped_ = 0;
}

c10::IValue DataLoader::assemble(const at::Tensor& order, int64_t index) const {
  const auto positions = shard_.batch(index);
  const auto* const indices = order.const_data_ptr<int64_t>();
  const int64_t items = order.numel();
  if (positions.begin + positions.size <= items)
    return dataset_->batch({indices + positions.begin, static_cast<size_t>(positions.size)});
  std::vector<int64_t> wrapped(static_cast<size_t>(positions.size));
  for (int64_t i = 0; i < positions.size; ++i) wrapped[i] = indices[(positions.begin + i) % items];
  return dataset_->batch(wrapped);
}

int64_t DataLoader::total_batch_size() const {
  if (!sharding_ || sharding_->split_batches) return options_.batch_size;
  return options_.batch_size * sharding_->num_processes;
}

int64_t DataLoader::last_batch_remainder() const {
  return options_.drop_last ? -1 : sampler_->length() % total_batch_size();
}

void DataLoader::set_epoch(int64_t epoch) {
  require(epoch >= 0, Status::kInvalidArgument, "epoch is ", epoch, "; expected at least 0");
  go_to(epoch, 0);
}

c10::IValue DataLoader::state_dict() const {
  auto state = tree::new_map();
  state.insert("epoch", epoch_);
  state.insert("batches", position_);
  return state;
}

void DataLoader::load_state_dict(const c10::IValue& state_dict) {
  const auto state = as_map(state_dict);
  const int64_t epoch = read_count(state, "epoch");
  const int64_t batches = read_count(state, "batches");
  require(batches <= shard_.count(), Status::kInvalidArgument, "the state of a loader is at batch ", batches,
          " of an epoch, and this one has ", shard_.count(), "; expected a state of a loader over the same data");
  go_to(epoch, batches);
}

std::shared_ptr<DataLoader> DataLoader::skip_first(int64_t num_batches) const {
  require(num_batches >= 0, Status::kInvalidArgument, "num_batches is ", num_batches, "; expected at least 0");
  std::shared_ptr<DataLoader> loader(new DataLoader(dataset_, sampler_, options_, sharding_));
  loader->epoch_ = epoch_;
  loader->skipped_ = loader->position_ = std::min(num_batches, shard_.count());
  return loader;
}

std::shared_ptr<DataLoader> DataLoader::sharded(const ShardOptions& sharding) const {
  require(!sharding_, Status::kInvalidState, "the loader is shared out already; prepare the loader it was made from");
  return std::shared_ptr<DataLoader>(new DataLoader(dataset_, sampler_, options_, sharding));
}

}  // namespace accel::data
