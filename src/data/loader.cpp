// SPDX-License-Identifier: Apache-2.0
#include "data/loader.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "base/error.hpp"
#include "os/background_thread.hpp"
#include "os/running_calls.hpp"
#include "tensor/device/page_locked.hpp"
#include "tensor/tree.hpp"

namespace accel::data {
namespace {

// The loaders that this thread reads from, the innermost first, each known by its progress: a worker keeps that when a
// callback has released the loader. Callbacks of a loader must not use the loader itself: its position is changing, and
// a worker would wait for itself.
class Reading {
 public:
  enum class In { kNext, kBatch };

  Reading(const state::LoaderProgress* loader, In in) : loader_(loader), in_(in), outer_(innermost) {
    innermost = this;
  }
  ~Reading() { innermost = outer_; }
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;

  // The first reading of this loader on this thread; null if there is none.
  static const Reading* outermost_of(const state::LoaderProgress* loader) {
    const Reading* outermost = nullptr;
    for (const Reading* reading = innermost; reading != nullptr; reading = reading->outer_)
      if (reading->loader_ == loader) outermost = reading;
    return outermost;
  }

  static void require_none_of(const state::LoaderProgress* loader) {
    require(outermost_of(loader) == nullptr, Status::kInvalidState,
            "a callback of the loader uses the loader itself; expected another loader");
  }

  // Whether this thread reads batches ahead for another one's next().
  static bool is_worker_of(const state::LoaderProgress* loader) {
    const Reading* const reading = outermost_of(loader);
    return reading != nullptr && reading->in_ == In::kBatch;
  }

 private:
  static inline thread_local const Reading* innermost = nullptr;
  const state::LoaderProgress* const loader_;
  const In in_;
  const Reading* const outer_;
};

// Batches that no collation of the library made.
void pin_memory(Batch& batch) {
  batch.value = tree::map_tensors(batch.value, [](const at::Tensor& tensor) { return tensor::page_locked(tensor); });
}

// Where there is no thread for it, or the process ends meanwhile, it stays as it is.
void end_on_another_thread(Prefetcher* prefetcher) noexcept {
  const auto end = [prefetcher] {
    prefetcher->stop_workers();
    try {
      const BackgroundWork work;
      std::unique_ptr<Prefetcher>(prefetcher).reset();
    } catch (const std::exception&) {
      return;
    }
  };
  try {
    background_thread("accel-data-end", end).detach();
  } catch (const std::exception&) {
    return;
  }
}

}  // namespace

Loader::Loader(LoaderInput input, std::shared_ptr<const BatchShare> share)
    : input_(std::move(input)), share_(std::move(share)), progress_(std::make_shared<state::LoaderProgress>()) {
  input_.check();
}

// A callback may release the loader on the thread of a worker, which cannot wait for itself.
Loader::~Loader() {
  if (is_running() && Reading::is_worker_of(progress_.get())) end_on_another_thread(prefetcher_.release());
}

std::optional<int64_t> Loader::total_batch_size() const {
  return input_.batch_size() ? std::optional<int64_t>(items_of_step(input_, share_->shard())) : std::nullopt;
}

std::optional<int64_t> Loader::length() const {
  const auto full = share_->length(input_, state_.epoch);
  return full ? std::optional<int64_t>(std::max<int64_t>(*full - skipped_, 0)) : std::nullopt;
}

int64_t Loader::valid_rows() const {
  if (progress_->ranks.empty()) return progress_->rows;
  return progress_->ranks[static_cast<size_t>(share_->shard().process_index)].valid;
}

std::optional<c10::IValue> Loader::next() {
  Reading::require_none_of(progress_.get());
  const Reading reading(progress_.get(), Reading::In::kNext);
  if (!is_running()) begin_epoch();
  auto batch = next_batch();
  if (!batch) {
    LoaderState following;
    following.epoch = state_.epoch + 1;
    go_to(following);
    return std::nullopt;
  }
  *progress_ = std::move(batch->progress);
  state_.position = std::move(batch->end);
  state_.batches += 1;
  return std::move(batch->value);
}

std::optional<Batch> Loader::read_batch() { return progress_->end_of_dataloader ? std::nullopt : prefetcher_->next(); }

void Loader::settle_seed() {
  if (seed_is_settled_) return;
  input_.options.seed = share_->draw_seed(input_);
  seed_is_settled_ = true;
}

void Loader::begin_epoch() {
  if (input_.options.shuffle) settle_seed();
  if (input_.data.dataset != nullptr) input_.data.dataset->begin_epoch(state_.epoch);
  input_.options.page_locked = pins_memory();
  EpochSource source = share_->open(input_, state_);
  progress_->remainder = source.remainder;
  // The workers may call it when the loader has ended, so it uses nothing of it.
  auto read = [progress = progress_, pins = input_.options.page_locked](BatchSource& batches, int64_t index) {
    const Reading reading(progress.get(), Reading::In::kBatch);
    auto batch = batches.read(index);
    if (batch && pins) pin_memory(*batch);
    return batch;
  };
  const LoaderOptions& options = input_.options;
  prefetcher_ = std::make_unique<Prefetcher>(
      std::move(source.batches), std::move(read),
      PrefetchOptions{options.prefetch, options.num_workers.value_or(0), share_->calls_back(input_)});
}

void Loader::go_to(const LoaderState& state) {
  prefetcher_.reset();
  *progress_ = {};
  state_ = state;
  skipped_ = 0;
}

void Loader::set_epoch(int64_t epoch) {
  Reading::require_none_of(progress_.get());
  require(epoch >= 0, Status::kInvalidArgument, "epoch is ", epoch, "; expected at least 0");
  LoaderState state;
  state.epoch = epoch;
  go_to(state);
}

c10::IValue Loader::state_dict() const {
  LoaderState state = state_;
  if (input_.options.shuffle && seed_is_settled_) state.seed = input_.options.seed.value;
  return to_value(state);
}

void Loader::load_state_dict(const c10::IValue& state_dict) {
  Reading::require_none_of(progress_.get());
  const LoaderState state = read_loader_state(state_dict);
  if (input_.data.dataset != nullptr) {
    require(state.position.readers.empty(), Status::kInvalidArgument,
            "the state is of a loader over a stream; expected one of a loader over the same dataset");
    const auto sampler = input_.batch_sampler();
    if (!input_.batch_size()) {
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
  if (!input_.options.shuffle || !state.seed) return;
  input_.options.seed = *state.seed;
  seed_is_settled_ = true;
}

std::shared_ptr<Loader> Loader::skip_first(int64_t num_batches) {
  Reading::require_none_of(progress_.get());
  require(num_batches >= 0, Status::kInvalidArgument, "num_batches is ", num_batches, "; expected at least 0");
  std::shared_ptr<Loader> loader = clone();
  loader->seed_is_settled_ = seed_is_settled_;
  LoaderState& state = loader->state_;
  state.epoch = state_.epoch;
  const auto full = input_.data.dataset != nullptr ? share_->length(input_, state.epoch) : std::nullopt;
  state.batches = loader->skipped_ = std::min(num_batches, full.value_or(num_batches));
  state.position = share_->position_after(state.batches * items_of_step(input_, share_->shard()), input_, state.epoch);
  const bool is_resumed = !is_running() && state_.batches > skipped_;  // by load_state_dict(), and not begun
  if (is_resumed) set_epoch(state_.epoch + 1);
  return loader;
}

}  // namespace accel::data
