// SPDX-License-Identifier: Apache-2.0
// Fiber (stackful coroutine): a function with its own stack that can suspend and be resumed later, on any thread. One
// thread runs several collectives this way, whose algorithms are written as if each had a thread. It can be run again.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <functional>
#include <memory>

namespace accel::comm::ucx {

class Fiber {
 public:
  // `body` must not throw, and not suspend while it handles an exception. std::bad_alloc when there is no stack.
  explicit Fiber(std::function<void()> body);
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  // Only before the start or after the end.
  ~Fiber();

  // Starts or continues the body until it suspends or ends.
  void resume();
  // By the body.
  void suspend();
  bool has_ended() const { return ended_; }

 private:
  static constexpr size_t kStackBytes = 256 << 10;
  struct Unmap {
    void operator()(char* stack) const;
  };
  static void enter(unsigned low, unsigned high);
  void run();

  std::function<void()> body_;
  std::unique_ptr<char, Unmap> stack_;  // begins with a guard page
  ucontext_t own_{}, resumer_{};
  bool ended_ = true;
  // For the sanitizers.
  [[maybe_unused]] void* own_handle_ = nullptr;
  [[maybe_unused]] void* resumer_handle_ = nullptr;
  [[maybe_unused]] const void* resumer_stack_ = nullptr;
  [[maybe_unused]] size_t resumer_stack_bytes_ = 0;
};

}  // namespace accel::comm::ucx
