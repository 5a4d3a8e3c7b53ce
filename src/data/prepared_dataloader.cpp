#include "data/prepared_dataloader.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <utility>

#include "base/error.hpp"

namespace accel::data {
namespace {

LoaderInput with_seed(LoaderInput input, const ShardOptions& sharding) {
  if (sharding.seed) input.options.seed = *sharding.seed;
  return input;
}

}  // namespace

PreparedDataLoader::PreparedDataLoader(const DataLoader& loader, const ShardOptions& sharding)
    : PreparedDataLoader(with_seed(loader.input(), sharding), sharding) {}

PreparedDataLoader::PreparedDataLoader(LoaderInput input, const ShardOptions& sharding)
    : Loader(std::move(input)), sharding_(sharding) {
  if (sharding_.device) copy_.emplace(*sharding_.device, sharding_.non_blocking);
  require(!sharding_.dispatch_batches || sharding_.device, Status::kInvalidArgument,
          "dispatch_batches is 1 and put_on_device is 0; expected batches that go to the device of each rank");
  require(!sharding_.dispatch_batches || sharding_.communicator != nullptr, Status::kInvalidArgument,
          "dispatch_batches is 1 without ranks that talk");
  // Checks that batches can be shared out, for one process as for several.
  BatchSamplerShard({0, input_.batch_size(), input_.drop_last()}, {sharding_.num_processes, sharding_.process_index,
                                                                   sharding_.split_batches, sharding_.even_batches});
}

std::shared_ptr<Loader> PreparedDataLoader::clone() const {
  return std::shared_ptr<PreparedDataLoader>(new PreparedDataLoader(input_, sharding_));
}

// One process gets the batches as they are: nothing has to be evened out.
Shard PreparedDataLoader::shard() const {
  if (sharding_.num_processes == 1) return {};
  return {sharding_.num_processes, sharding_.process_index, sharding_.split_batches, sharding_.even_batches};
}

bool PreparedDataLoader::has_shard_for_each_rank() const {
  const auto& iterable = input_.data.iterable;
  return iterable != nullptr && sharding_.num_processes > 1 && !sharding_.dispatch_batches &&
         iterable->num_shards() >= sharding_.num_processes;
}

bool PreparedDataLoader::reads_own_shards() const {
  return has_shard_for_each_rank() && !sharding_.split_batches && sharding_.communicator != nullptr;
}

std::optional<int64_t> PreparedDataLoader::full_length() const {
  if (has_shard_for_each_rank()) return std::nullopt;
  if (!sharding_.dispatch_batches || input_.data.dataset == nullptr) return Loader::full_length();
  return steps_of(input_.batch_sampler()->count(epoch()), input_, shard());
}

EpochPosition PreparedDataLoader::position_after(int64_t units) const {
  if (!reads_own_shards()) return Loader::position_after(units);
  EpochPosition position;
  position.samples = units;
  position.readers.assign(static_cast<size_t>(sharding_.num_processes), units / sharding_.num_processes);
  return position;
}

int64_t PreparedDataLoader::draw_seed() const {
  at::Tensor seed = at::empty({1}, at::kLong);
  if (sharding_.draw_seed)
    seed.random_();
  else
    seed.fill_(Loader::draw_seed());
  if (sharding_.communicator != nullptr && sharding_.communicator->size() > 1) {
    seed = seed.to(sharding_.communicator->device());
    sharding_.communicator->broadcast(seed, 0);
  }
  return seed.item<int64_t>();
}

void PreparedDataLoader::begin_epoch() {
  if (sharding_.at_epoch_begin) sharding_.at_epoch_begin();
  Loader::begin_epoch();
  if (sharding_.gradient_state) sharding_.gradient_state->begin_loader(progress(), weak_from_this());
}

EpochSource PreparedDataLoader::open_epoch() const {
  const CommunicatingRanks ranks{sharding_.communicator, sharding_.process_indices};
  if (sharding_.dispatch_batches) return open_dispatched(input_, state(), shard(), ranks);
  const EpochPosition& begin = state().position;
  const bool fits = begin.rest == 0 &&
                    (begin.readers.empty() || static_cast<int64_t>(begin.readers.size()) == sharding_.num_processes);
  if (fits && reads_own_shards()) return open_iterable_shards(input_, state(), shard(), ranks);
  return Loader::open_epoch();
}

bool PreparedDataLoader::calls_back() const {
  return Loader::calls_back() || (sharding_.dispatch_batches && input_.options.slice);
}

bool PreparedDataLoader::pins_memory() const { return input_.options.pin_memory && copy_ && copy_->is_asynchronous(); }

void PreparedDataLoader::go_to(const LoaderState& state) {
  read_.reset();
  ahead_.reset();
  ahead_failure_ = nullptr;
  if (is_running() && sharding_.gradient_state) sharding_.gradient_state->end_loader(progress());
  Loader::go_to(state);
}

std::optional<c10::IValue> PreparedDataLoader::next() {
  std::optional<c10::IValue> batch;
  {
    std::optional<StepTimes::Section> timed;
    if (sharding_.step_times) timed.emplace(*sharding_.step_times, StepPart::kData);
    batch = Loader::next();
  }
  if (follower_ && !follower_(*this, batch.has_value())) follower_ = nullptr;
  return batch;
}

std::optional<Batch> PreparedDataLoader::next_batch() {
  if (!copy_) return read_batch();
  if (ahead_failure_) std::rethrow_exception(std::exchange(ahead_failure_, nullptr));
  auto copied = ahead_ ? std::exchange(ahead_, std::nullopt) : read_and_copy();
  if (!copied) return std::nullopt;
  if (copy_->is_asynchronous() && !copied->batch.progress.end_of_dataloader) try {
      ahead_ = read_and_copy();
    } catch (...) {
      ahead_failure_ = std::current_exception();  // of the next batch
    }
  copied->batch.value = copy_->finish(std::move(copied->copy));
  return std::move(copied->batch);
}

std::optional<PreparedDataLoader::Copied> PreparedDataLoader::read_and_copy() {
  if (!read_) read_ = read_batch();
  if (!read_ || !copy_) return std::nullopt;
  Copied copied;
  copied.copy = copy_->start(read_->value);
  copied.batch = std::move(*read_);
  read_.reset();
  return copied;
}

}  // namespace accel::data
