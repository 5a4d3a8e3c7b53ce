// SPDX-License-Identifier: Apache-2.0
// A call of a backend to which one thread adds the calls that it coalesces. Other threads' calls are posted meanwhile
// as they are.
#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <utility>

namespace accel::comm {

template <typename Call>
class CoalescedCall {
 public:
  template <typename... Arguments>
  void begin(Arguments&&... arguments) {
    call_ = std::make_unique<Call>(std::forward<Arguments>(arguments)...);
    thread_ = std::this_thread::get_id();
  }
  // The collected call; null if nothing was begun.
  std::unique_ptr<Call> end() {
    thread_ = std::thread::id();
    return std::move(call_);
  }
  void cancel() noexcept {
    call_.reset();
    thread_ = std::thread::id();
  }
  // The call that this thread adds to; null if it does not coalesce.
  Call* current() const { return thread_.load() == std::this_thread::get_id() ? call_.get() : nullptr; }

 private:
  std::unique_ptr<Call> call_;
  std::atomic<std::thread::id> thread_{};
};

}  // namespace accel::comm
