// SPDX-License-Identifier: Apache-2.0
#include "data/prefetcher.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace accel::data {
namespace {

using Clock = std::chrono::steady_clock;

// Handing a batch from one thread to another costs two wakes. A batch that is made faster than this is better made by
// the thread that needs it. One may be slow because the machine was busy elsewhere, so it takes two in a row.
constexpr std::chrono::microseconds kWorthAThread(50);
constexpr int64_t kSlowReads = 2;

}  // namespace

Prefetcher::Prefetcher(std::unique_ptr<BatchSource> source, Read read, const PrefetchOptions& options)
    : source_(std::move(source)), read_(std::move(read)), options_(options) {}

std::optional<Batch> Prefetcher::next() {
  if (!std::exchange(begun_, true) && options_.num_workers > 0 && options_.calls_back) start_workers();
  try {
    return source_->deliver([this] { return take(); });
  } catch (...) {
    workers_.reset();
    throw;
  }
}

std::optional<Batch> Prefetcher::take() {
  std::optional<Batch> batch;
  if (workers_ != nullptr) {
    batch = workers_->take();
    taken_ += batch.has_value();
    return batch;
  }
  const auto start = Clock::now();
  batch = read_(*source_, taken_);
  const auto took = Clock::now() - start;
  taken_ += batch.has_value();
  slow_reads_ = took > kWorthAThread ? slow_reads_ + 1 : 0;
  const bool more = batch && !batch->progress.end_of_dataloader;
  if (slow_reads_ >= kSlowReads && more && !options_.calls_back) start_workers();
  return batch;
}

void Prefetcher::start_workers() {
  if (options_.prefetch == 0 || !source_->reads()) return;
  const int64_t workers = source_->is_random_access() ? std::max<int64_t>(options_.num_workers, 1) : 1;
  workers_ = std::make_unique<WorkerPool>([this](int64_t index) { return read_(*source_, index); }, taken_, workers,
                                          options_.prefetch * workers);
}

}  // namespace accel::data
