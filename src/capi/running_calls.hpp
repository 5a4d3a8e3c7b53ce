// Calls that run while another thread ends the process.
#pragma once

#include <atomic>
#include <cstdint>

namespace accel::capi {

// Calls that run on other threads now; in a child of fork(), those that ran when it was forked off.
int64_t calls_of_others();

// [Note: exit() beside running calls] exit() destroys LibTorch's static objects while other threads of the application
// may be inside a call, and crash. A handler waits until the calls have returned, for at most kPatience, or longer
// while other threads compute, and threads that call later wait for the end of the process. The exiting thread can
// still call: destructors of the application may release handles. exit() runs the last registered handler first, and
// LibTorch creates static objects at the first use of many of its parts, so the handler is registered again at every
// call whose number is a power of two.
class RunningCall {
 public:
  // At the entry of every function that can fail. Calls from callbacks count with the outer call.
  RunningCall() : running_(enter()) {}
  ~RunningCall() {
    if (running_ != nullptr) running_->fetch_sub(1, std::memory_order_release);
  }
  RunningCall(const RunningCall&) = delete;
  RunningCall& operator=(const RunningCall&) = delete;

 private:
  static std::atomic<int64_t>* enter();

  std::atomic<int64_t>* const running_;  // the counter that this call is in; null inside of another call
};

}  // namespace accel::capi
