// SPDX-License-Identifier: Apache-2.0
#include "data/worker_pool.hpp"

#include <cxxabi.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "os/background_thread.hpp"
#include "os/running_calls.hpp"
#include "trace/span.hpp"

namespace accel::data {

WorkerPool::WorkerPool(Read read, int64_t begin, int64_t workers, int64_t depth)
    : read_(std::move(read)),
      policy_(kernels::compute_policy()),
      slots_(static_cast<size_t>(depth)),
      next_(begin),
      taken_(begin) {
  try {
    threads_.reserve(static_cast<size_t>(workers));  // so that each that was started is stored, and joined
    for (int64_t i = 0; i < workers; ++i) threads_.push_back(background_thread("accel-data", [this] { run(); }));
  } catch (const Error& error) {
    const size_t started = threads_.size();
    stop();
    fail(error.status(), "num_workers is ", workers, " and this process can start ", started, " of them (",
         error.message(), "); expected fewer");
  } catch (...) {
    stop();
    throw;
  }
}

WorkerPool::~WorkerPool() { stop(); }

void WorkerPool::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  room_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

std::optional<Batch> WorkerPool::take() {
  std::unique_lock lock(mutex_);
  Slot& next = slot(taken_);
  // No deadline: reading takes as long as the dataset does, as it would without the threads.
  ready_.wait(lock, [&] { return next.ready; });
  Slot taken = std::exchange(next, {});
  ++taken_;
  lock.unlock();
  room_.notify_one();
  if (taken.failure) std::rethrow_exception(taken.failure);
  return std::move(taken.batch);
}

void WorkerPool::run() {
  std::optional<kernels::ComputeScope> scope;  // made where its lack of memory is a failure of the read
  for (;;) {
    int64_t index = 0;
    {
      std::unique_lock lock(mutex_);
      room_.wait(lock, [&] { return stop_ || last_ || next_ < taken_ + static_cast<int64_t>(slots_.size()); });
      if (stop_ || last_) return;
      index = next_++;
    }
    Slot made;
    made.ready = true;
    try {
      const BackgroundWork work;
      if (!scope) scope.emplace(policy_);
      const Span read(SpanKind::kData, "read batch");
      made.batch = read_(index);
    } catch (const abi::__forced_unwind&) {
      throw;  // the application's runtime ends this thread from inside of a callback
    } catch (...) {
      made.failure = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex_);
      if (!made.batch) last_ = std::min(index, last_.value_or(index));
      slot(index) = std::move(made);
      if (last_) room_.notify_all();
    }
    ready_.notify_one();
  }
}

}  // namespace accel::data
