// SPDX-License-Identifier: Apache-2.0
#include "bigmodel/streams/block_stream.hpp"

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.hpp"
#include "os/background_thread.hpp"
#include "os/bus_error_guard.hpp"
#include "os/running_calls.hpp"
#include "tensor/file_memory.hpp"
#include "trace/span.hpp"

namespace accel::bigmodel {
namespace {

std::vector<parallel::StreamedBlock> streamed_blocks(const std::vector<Block>& blocks, c10::Device device) {
  std::vector<parallel::StreamedBlock> streamed;
  for (const Block& block : blocks) streamed.push_back({block.bytes, can_be_used_in_place(block, device)});
  return streamed;
}

}  // namespace

BlockStream::BlockStream(std::vector<Block> blocks, c10::Device device, int64_t prefetch_bytes)
    : blocks_(std::move(blocks)),
      device_(device),
      uploader_(device),
      entries_(blocks_.size()),
      schedule_(streamed_blocks(blocks_, device), prefetch_bytes) {
  for (size_t i = 0; i < blocks_.size(); i++) entries_[i].in_place = can_be_used_in_place(blocks_[i], device_);
  thread_ = background_thread("accel_offload", [this] { run(); });
}

BlockStream::~BlockStream() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void BlockStream::acquire(size_t block) {
  std::unique_lock lock(mutex_);
  try {
    execute(schedule_.begin_use(block), lock);
  } catch (...) {
    schedule_.abandon_use(block);
    throw;
  }
  execute(schedule_.look_ahead(), lock);
}

void BlockStream::release(size_t block) noexcept {
  std::unique_lock lock(mutex_);
  execute(schedule_.end_use(block), lock);
}

void BlockStream::execute(const parallel::StreamingActions& actions, std::unique_lock<std::mutex>& lock) {
  using Kind = parallel::StreamingAction::Kind;
  for (const parallel::StreamingAction& action : actions) {
    switch (action.kind) {
      case Kind::kStartLoad:
        if (entries_[action.block].place == Place::kAway) request(action.block, /*at_once=*/false);
        break;
      case Kind::kLoad:
        load(action.block, lock);
        break;
      case Kind::kShow:
        show(action.block);
        break;
      case Kind::kRelease:
        hide(action.block);
        break;
      case Kind::kUnload:
        unload(action.block);
        break;
    }
  }
}

// Requests it if it is away.
void BlockStream::load(size_t block, std::unique_lock<std::mutex>& lock) {
  Entry& entry = entries_[block];
  if (entry.place != Place::kHere) {
    const Span waited(SpanKind::kWait, "wait for weights", blocks_[block].bytes);
    entry.failure = nullptr;  // of an attempt ahead of time: this one decides
    const auto began = std::chrono::steady_clock::now();
    while (entry.place != Place::kHere) {
      if (entry.failure != nullptr) std::rethrow_exception(std::exchange(entry.failure, nullptr));
      if (entry.place == Place::kAway) request(block, /*at_once=*/true);
      changed_.wait(lock, [&] { return entry.place == Place::kHere || entry.failure != nullptr; });
    }
    statistics_.wait_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  }
  BlockUploader::wait_for(*entry.filled);
}

void BlockStream::show(size_t block) {
  Entry& entry = entries_[block];
  if (entry.is_shown) return;
  for (size_t i = 0; i < blocks_[block].tensors.size(); i++) {
    OffloadedTensor& tensor = *blocks_[block].tensors[i];
    tensor.show(block, entry.in_place ? tensor.source() : entry.filled->tensors[i]);
  }
  entry.is_shown = true;
}

void BlockStream::hide(size_t block) {
  Entry& entry = entries_[block];
  for (const auto& tensor : blocks_[block].tensors) tensor->hide(block);
  entry.is_shown = false;
  if (entry.in_place)
    entry.place = Place::kAway;
  else
    entry.filled->ready = uploader_.mark();  // for its next use: after this one
}

void BlockStream::request(size_t block, bool at_once) {
  entries_[block].place = Place::kComing;
  if (at_once)
    requests_.push_front(block);
  else
    requests_.push_back(block);
  changed_.notify_all();
}

void BlockStream::unload(size_t block) {
  Entry& entry = entries_[block];
  entry.place = Place::kAway;
  buffers_.put_away(std::exchange(entry.filled, nullptr));
}

void BlockStream::run() {
  const at::NoGradGuard no_grad;
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ends_ || !requests_.empty(); });
    if (ends_) return;
    const size_t block = requests_.front();
    requests_.pop_front();
    if (entries_[block].place == Place::kComing) bring(block, lock);
  }
}

void BlockStream::bring(size_t block, std::unique_lock<std::mutex>& lock) {
  Entry& entry = entries_[block];
  if (entry.in_place) {
    lock.unlock();
    const Span read(SpanKind::kOffload, "read weights ahead", blocks_[block].bytes);
    // Asking costs less than reading what is there.
    for (const auto& tensor : blocks_[block].tensors)
      if (!tensor::is_in_memory(tensor->source())) tensor::read_ahead(tensor->source());
    lock.lock();
    if (entry.place == Place::kComing) entry.place = Place::kHere;
    return;
  }
  const int64_t bytes = buffer_bytes(blocks_[block]);
  std::optional<SpareBuffer> spare = buffers_.take(bytes);
  const int64_t taken = spare ? spare->buffer.numel() : bytes;
  lock.unlock();
  std::shared_ptr<FilledBuffer> filled;
  std::exception_ptr failure;
  try {
    const BackgroundWork work;
    const BusErrorGuard lost_pages;
    const Span copied(SpanKind::kOffload, "copy weights", blocks_[block].bytes);
    filled = std::make_shared<FilledBuffer>(uploader_.upload(blocks_[block], std::move(spare)));
    lost_pages.check();
  } catch (const c10::OutOfMemoryError& error) {
    failure = std::make_exception_ptr(Error(
        Status::kOutOfMemory,
        text(blocks_[block].path.empty() ? "the model" : "the block '" + blocks_[block].path + "'", " needs ", bytes,
             " bytes on ", device_, "; expected as much free memory, or a smaller block_bytes or prefetch_bytes (",
             error.what_without_backtrace(), ")")));
  } catch (...) {
    failure = std::current_exception();
  }
  lock.lock();
  if (failure != nullptr) {
    buffers_.lose(taken);
    entry.failure = failure;
    entry.place = Place::kAway;
  } else {
    statistics_.brought_bytes += blocks_[block].bytes;
    entry.filled = std::move(filled);
    entry.place = Place::kHere;
    schedule_.end_load(block);
  }
  changed_.notify_all();
}

void BlockStream::end_pass() {
  const std::lock_guard lock(mutex_);
  statistics_.passes++;
  schedule_.end_pass();
}

bool BlockStream::contains(size_t block, const at::Tensor& tensor) const {
  if (!tensor.has_storage()) return false;
  const c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
  const std::lock_guard lock(mutex_);
  const Entry& entry = entries_[block];
  if (!entry.in_place)
    return entry.filled != nullptr && entry.filled->buffer.storage().unsafeGetStorageImpl() == storage;
  const auto& tensors = blocks_[block].tensors;
  return std::any_of(tensors.begin(), tensors.end(),
                     [storage](const auto& one) { return one->source().storage().unsafeGetStorageImpl() == storage; });
}

std::shared_ptr<const FilledBuffer> BlockStream::bring_again(size_t block) {
  std::unique_lock lock(mutex_);
  Entry& entry = entries_[block];
  if (entry.in_place) return nullptr;
  execute(schedule_.begin_backward_use(block), lock);
  std::shared_ptr<const FilledBuffer> filled = entry.filled;
  execute(schedule_.look_ahead(), lock);
  return filled;
}

BlockStream::Statistics BlockStream::statistics() const {
  const std::lock_guard lock(mutex_);
  Statistics statistics = statistics_;
  statistics.peak_bytes = buffers_.peak_bytes();
  return statistics;
}

}  // namespace accel::bigmodel
