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

// Pages of mapped files are not memory of the process, so more of them may come ahead.
constexpr int64_t kReadAheadBytes = int64_t{256} << 20;
constexpr size_t kMostBlocksAhead = 64;

bool can_be_used_in_place(const Block& block, c10::Device device) {
  return device.is_cpu() && std::all_of(block.tensors.begin(), block.tensors.end(), [](const auto& tensor) {
           return tensor->source().scalar_type() == tensor->dtype();
         });
}

}  // namespace

BlockStream::BlockStream(std::vector<Block> blocks, c10::Device device, int64_t prefetch_bytes)
    : blocks_(std::move(blocks)),
      device_(device),
      prefetch_bytes_(prefetch_bytes),
      uploader_(device),
      entries_(blocks_.size()),
      order_(blocks_.size()) {
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
  Entry& entry = entries_[block];
  entry.uses++;
  if (entry.uses == 1) {
    order_.use(block);
    if (entry.in_place) show(block);
  }
  if (!entry.in_place) {
    try {
      wait_until_here(block, lock);
    } catch (...) {
      entry.uses--;
      throw;
    }
    BlockUploader::wait_for(*entry.filled);
    if (!entry.is_shown) show(block);
  }
  plan();
}

// Requests it if it is away.
void BlockStream::wait_until_here(size_t block, std::unique_lock<std::mutex>& lock) {
  Entry& entry = entries_[block];
  if (entry.place == Place::kHere) return;
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

void BlockStream::show(size_t block) {
  Entry& entry = entries_[block];
  for (size_t i = 0; i < blocks_[block].tensors.size(); i++) {
    OffloadedTensor& tensor = *blocks_[block].tensors[i];
    tensor.show(block, entry.in_place ? tensor.source() : entry.filled->tensors[i]);
  }
  entry.is_shown = true;
}

void BlockStream::release(size_t block) noexcept {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[block];
  if (--entry.uses > 0) return;
  for (const auto& tensor : blocks_[block].tensors) tensor->hide(block);
  entry.is_shown = false;
  if (entry.in_place)
    entry.place = Place::kAway;
  else
    entry.filled->ready = uploader_.mark();  // for its next use: after this one
  plan();
}

int64_t BlockStream::window(const Entry& entry) const {
  return entry.in_place ? std::max(prefetch_bytes_, kReadAheadBytes) : prefetch_bytes_;
}

// Requests blocks that are expected next, and puts away those that are not.
void BlockStream::plan() {
  plans_++;
  int64_t bytes = 0;
  for (size_t i = 0; prefetch_bytes_ > 0 && i < std::min(order_.pass_length(), kMostBlocksAhead); i++) {
    const size_t block = order_.upcoming(i);
    Entry& entry = entries_[block];
    if (entry.uses > 0 || entry.expected_in == plans_) continue;
    bytes += blocks_[block].bytes;
    if (bytes > window(entry)) break;
    entry.expected_in = plans_;
    if (entry.place == Place::kAway) request(block, /*at_once=*/false);
  }
  if (again_) entries_[*again_].expected_in = plans_;
  const std::vector<size_t> here = with_buffer_;
  for (const size_t block : here)
    if (entries_[block].uses == 0 && entries_[block].expected_in != plans_) put_away(block);
}

void BlockStream::request(size_t block, bool at_once) {
  entries_[block].place = Place::kComing;
  if (at_once)
    requests_.push_front(block);
  else
    requests_.push_back(block);
  changed_.notify_all();
}

void BlockStream::put_away(size_t block) {
  Entry& entry = entries_[block];
  with_buffer_.erase(std::find(with_buffer_.begin(), with_buffer_.end(), block));
  const std::shared_ptr<FilledBuffer> filled = std::exchange(entry.filled, nullptr);
  entry.place = Place::kAway;
  filled->tensors.clear();
  if (filled.use_count() == 1 && filled->buffer.storage().use_count() == 1)
    spares_.push_back({std::move(filled->buffer), std::move(filled->ready)});
  else
    buffer_bytes_ -= filled->buffer.numel();
}

// The smallest that is large enough. If there is none, the memory of all others is given back.
std::optional<SpareBuffer> BlockStream::take_spare(int64_t bytes) {
  auto best = spares_.end();
  for (auto spare = spares_.begin(); spare != spares_.end(); ++spare)
    if (spare->buffer.numel() >= bytes && (best == spares_.end() || spare->buffer.numel() < best->buffer.numel()))
      best = spare;
  if (best == spares_.end()) {
    for (const SpareBuffer& spare : spares_) buffer_bytes_ -= spare.buffer.numel();
    spares_.clear();
    return std::nullopt;
  }
  std::optional<SpareBuffer> taken(std::move(*best));
  spares_.erase(best);
  return taken;
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
  std::optional<SpareBuffer> spare = take_spare(bytes);
  const int64_t taken = spare ? spare->buffer.numel() : bytes;
  if (!spare) buffer_bytes_ += bytes;
  statistics_.peak_bytes = std::max(statistics_.peak_bytes, buffer_bytes_);
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
    buffer_bytes_ -= taken;
    entry.failure = failure;
    entry.place = Place::kAway;
  } else {
    statistics_.brought_bytes += blocks_[block].bytes;
    entry.filled = std::move(filled);
    entry.place = Place::kHere;
    with_buffer_.push_back(block);
  }
  changed_.notify_all();
}

void BlockStream::end_pass() {
  const std::lock_guard lock(mutex_);
  statistics_.passes++;
  order_.end_pass();
  again_.reset();
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
  again_ = block;
  wait_until_here(block, lock);
  BlockUploader::wait_for(*entry.filled);
  std::shared_ptr<const FilledBuffer> filled = entry.filled;
  plan();
  return filled;
}

BlockStream::Statistics BlockStream::statistics() const {
  const std::lock_guard lock(mutex_);
  return statistics_;
}

}  // namespace accel::bigmodel
