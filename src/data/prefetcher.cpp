#include "data/prefetcher.hpp"

#include <pthread.h>
#include <signal.h>

#include <utility>

namespace accel::data {
namespace {

// Threads inherit the mask: the host program's signals go to its own threads.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

Prefetcher::Prefetcher(Produce produce, int64_t begin, int64_t end, int64_t depth)
    : produce_(std::move(produce)), next_(begin), end_(end), depth_(static_cast<size_t>(depth)) {
  const SignalsBlocked blocked;
  thread_ = std::thread([this] { run(); });
  pthread_setname_np(thread_.native_handle(), "accel-data");
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
