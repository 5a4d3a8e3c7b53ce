// SPDX-License-Identifier: Apache-2.0
// Work that other threads are in while one ends the process.
#pragma once

#include <atomic>
#include <cstdint>

namespace accel {

// Calls of the application, and work of threads of the library, that other threads are in now; in a child of fork(),
// those that ran when it was forked off.
int64_t calls_of_others();

// [Note: exit() beside running calls] exit() destroys LibTorch's static objects while other threads may be using them:
// in a call of the application, or at work of the library's own such as reading batches. They would crash. A handler
// waits until these have ended, for at most kPatience, or longer while other threads compute. Threads of the
// application that call later wait for the end of the process, those of the library get an error for their work. The
// exiting thread can still call: destructors of the application may release handles, which joins threads of the
// library. exit() runs the last registered handler first, and LibTorch creates static objects at the first use of many
// of its parts, so the handler is registered again at every call whose number is a power of two.
class RunningCall {
 public:
  // At the entry of every function that can fail. Calls from callbacks count with the outer call or work.
  RunningCall() : running_(enter()) {}
  ~RunningCall() {
    if (running_ != nullptr) leave(running_);
  }
  RunningCall(const RunningCall&) = delete;
  RunningCall& operator=(const RunningCall&) = delete;

 private:
  friend class BackgroundWork;

  static std::atomic<int64_t>* enter();
  static std::atomic<int64_t>* try_enter();  // null if the process is ending
  static void leave(std::atomic<int64_t>* running);

  std::atomic<int64_t>* const running_;  // the counter that this call is in; null inside of another call
};

// A chunk of work that a thread of the library does with LibTorch and nobody waits for.
class BackgroundWork {
 public:
  BackgroundWork();  // throws CANCELLED if the process is ending
  ~BackgroundWork() { RunningCall::leave(running_); }
  BackgroundWork(const BackgroundWork&) = delete;
  BackgroundWork& operator=(const BackgroundWork&) = delete;

 private:
  std::atomic<int64_t>* const running_;
};

}  // namespace accel
