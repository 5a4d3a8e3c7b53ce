#include "data/prefetcher.hpp"

#include <utility>

#include "base/background_thread.hpp"

namespace accel::data {

Prefetcher::Prefetcher(Produce produce, int64_t begin, int64_t end, int64_t depth)
    : produce_(std::move(produce)), next_(begin), end_(end), depth_(static_cast<size_t>(depth)) {
  thread_ = background_thread("accel-data", [this] { run(); });
}

Prefetcher::~Prefetcher() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

c10::IValue Prefetcher::take() {
  std::unique_lock lock(mutex_);
  // No deadline: what is in the making ends with the dataset's read, as it
  // would without the thread.
  changed_.wait(lock, [&] { return !ready_.empty() || failure_ != nullptr; });
  if (ready_.empty()) std::rethrow_exception(failure_);
  c10::IValue value = std::move(ready_.front());
  ready_.pop_front();
  lock.unlock();
  changed_.notify_one();
  return value;
}

void Prefetcher::run() {
  for (; next_ < end_; ++next_) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stop_ || ready_.size() < depth_; });
      if (stop_) return;
    }
    c10::IValue value;
    std::exception_ptr failure;
    try {
      value = produce_(next_);
    } catch (...) {
      failure = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex_);
      if (failure != nullptr) {
        failure_ = failure;
      } else {
        ready_.push_back(std::move(value));
      }
    }
    changed_.notify_one();
    if (failure != nullptr) return;
  }
}

}  // namespace accel::data
