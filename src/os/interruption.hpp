// SPDX-License-Identifier: Apache-2.0
// Interruption of waits for other ranks by the application, for example after Ctrl-C.
#pragma once

#include <atomic>
#include <functional>

namespace accel {

// A wait that interrupt() can end, during the lifetime of this object.
class Interruptible {
 public:
  // Calls `end`, which must not throw, on the thread that interrupts.
  explicit Interruptible(std::function<void()> end);
  // Returns when `end` is not running.
  ~Interruptible();
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;

 private:
  friend void interrupt();

  const std::function<void()> end_;
  bool ending_ = false;  // under the mutex of all
};

// For a wait that polls.
class InterruptionFlag {
 public:
  bool raised() const { return raised_.load(); }

 private:
  std::atomic<bool> raised_{false};
  const Interruptible wait_{[this] { raised_.store(true); }};
};

// On any thread. The latest waits end first.
void interrupt();

}  // namespace accel
