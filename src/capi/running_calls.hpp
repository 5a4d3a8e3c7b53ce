// Calls that run while another thread ends the process.
#pragma once

#include <atomic>
#include <cstdint>

namespace accel::capi {

// [Note: exit() beside running calls] exit() destroys LibTorch's static objects while other threads of the host may be
// inside of a call, which then crash. A handler waits until the calls have returned, for kPatience at most, and threads
// that call afterwards wait for the end of the process. The thread that exits goes on to call: destructors of the host
// may release what it holds. exit() runs first what was registered last, and LibTorch makes static objects at the first
// use of many of its parts: so the handler is registered again at the call of each number that is a power of two.
class RunningCall {
 public:
  // On the way in of every function that can fail, calls from callbacks included, which count with the call around
  // them.
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
