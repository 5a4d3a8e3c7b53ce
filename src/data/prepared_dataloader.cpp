// SPDX-License-Identifier: Apache-2.0
#include "data/prepared_dataloader.hpp"

#include <utility>

#include "base/error.hpp"
#include "tensor/device/device_work.hpp"

namespace accel::data {
namespace {

LoaderInput with_seed(LoaderInput input, const ShardOptions& sharding) {
  if (sharding.data_seed.value) input.options.seed = *sharding.data_seed;
  return input;
}

}  // namespace

PreparedDataLoader::PreparedDataLoader(const DataLoader& loader, const ShardOptions& sharding)
    : PreparedDataLoader(with_seed(loader.input(), sharding), std::make_shared<RankShare>(sharding)) {}

PreparedDataLoader::PreparedDataLoader(LoaderInput input, std::shared_ptr<RankShare> share)
    : Loader(std::move(input), share), share_(std::move(share)) {
  const ShardOptions& sharding = share_->options();
  if (sharding.device) copy_.emplace(*sharding.device, sharding.non_blocking);
  require(!sharding.dispatch_batches || sharding.device, Status::kInvalidArgument,
          "dispatch_batches is 1 and put_on_device is 0; expected batches that go to the device of each rank");
  require(!sharding.dispatch_batches || sharding.communicator != nullptr, Status::kInvalidArgument,
          "dispatch_batches is 1 without ranks that talk");
  // Checks that batches can be shared out, for one process as for several.
  BatchSamplerShard({0, input_.batch_size(), input_.drop_last()},
                    {sharding.num_processes, sharding.process_index, sharding.splits_batches(), sharding.even_batches});
}

std::shared_ptr<Loader> PreparedDataLoader::clone() const {
  return std::shared_ptr<PreparedDataLoader>(new PreparedDataLoader(input_, std::make_shared<RankShare>(sharding())));
}

void PreparedDataLoader::begin_epoch() {
  if (sharding().at_epoch_begin) sharding().at_epoch_begin();
  Loader::begin_epoch();
  if (sharding().gradient_state) sharding().gradient_state->begin_loader(progress(), weak_from_this());
}

bool PreparedDataLoader::pins_memory() const {
  return input_.options.pin_memory && copy_ && copy_->is_asynchronous() && tensor::can_pin(sharding().device->type());
}

void PreparedDataLoader::go_to(const LoaderState& state) {
  read_.reset();
  ahead_.reset();
  ahead_failure_ = nullptr;
  if (is_running() && sharding().gradient_state) sharding().gradient_state->end_loader(progress());
  Loader::go_to(state);
}

std::optional<c10::IValue> PreparedDataLoader::next() {
  std::optional<c10::IValue> batch;
  {
    std::optional<StepTimes::Section> timed;
    if (sharding().step_times) timed.emplace(*sharding().step_times, StepPart::kData);
    batch = Loader::next();
    if (batch && sharding().part_of_batch) batch = sharding().part_of_batch(*batch);
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
