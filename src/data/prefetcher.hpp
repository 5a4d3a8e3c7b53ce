// A thread that makes numbered things in order, a few ahead of who takes them.
#pragma once

#include <ATen/core/ivalue.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace accel::data {

class Prefetcher {
 public:
  using Produce = std::function<c10::IValue(int64_t index)>;

  // Makes [begin, end), at most `depth` ahead. `produce` runs on the thread,
  // and only there.
  Prefetcher(Produce produce, int64_t begin, int64_t end, int64_t depth);
  // Waits until the thing in the making is done.
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // The next one, as soon as it is made; throws what making it threw, after
  // which there are no more. Never called more than end - begin times.
  c10::IValue take();

 private:
  void run();

  Produce produce_;
  int64_t next_;
  int64_t end_;
  size_t depth_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<c10::IValue> ready_;
  std::exception_ptr failure_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace accel::data
