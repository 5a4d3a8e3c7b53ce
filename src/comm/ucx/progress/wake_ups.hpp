// SPDX-License-Identifier: Apache-2.0
// Wake-ups: the sleep of the thread that progresses an engine, and what ends it: other threads, descriptors that become
// readable, and futexes.
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/ucx/host/futex.hpp"
#include "os/file_descriptor.hpp"

namespace accel::comm::ucx {

class WakeUps {
 public:
  // `rank` stands in errors.
  explicit WakeUps(int rank);

  // Any thread: ends a sleep that has begun.
  void wake();

  // The rest is called by the thread that progresses. Throws if the descriptor cannot be watched.
  void watch(int descriptor);
  void forget(int descriptor);
  // Room for so many futexes, so that a sleep needs no memory.
  void reserve(size_t futexes) { futexes_.reserve(futexes + 1); }

  // A sleep: prepare(), add_futex() for each of them, begin(), either of the waits, end(). What happens after begin()
  // wakes.
  void prepare() { futexes_.clear(); }
  void add_futex(const FutexWait& futex) { futexes_.push_back(futex); }
  bool has_futexes() const { return !futexes_.empty(); }
  void begin();
  void sleep_on_futexes(std::chrono::milliseconds time) const { sleep_on_any(futexes_, time); }
  void end();
  // In a sleep of which other threads may have one as well: returns when something happens or at recall(), and takes no
  // event.
  void sleep_beside_others(int timeout_ms) const;
  // Any thread.
  void recall() const;
  // Calls `on_event` with each watched descriptor that is readable. Also outside of a sleep.
  template <typename OnEvent>
  void wait_for_events(int timeout_ms, const OnEvent& on_event) {
    epoll_event events[8];
    const int count = epoll_wait(events_.number(), events, 8, timeout_ms);
    for (int i = 0; i < count; i++) {
      if (events[i].data.fd == signal_.number())
        take_signal();
      else
        on_event(events[i].data.fd);
    }
  }

 private:
  void take_signal() const;

  const int rank_;
  const FileDescriptor events_, signal_, recall_;
  std::atomic<bool> sleeping_{false};
  std::vector<FutexWait> futexes_;
  // The sleeper sleeps on the first with other futexes, or on the second alone.
  std::atomic<uint32_t> wakes_{0};
  std::atomic<const std::atomic<uint32_t>*> single_futex_{nullptr};
};

}  // namespace accel::comm::ucx
