// SPDX-License-Identifier: Apache-2.0
// Calls that wait for the thread that has claimed the engine. Under the engine's mutex, but for may_have_calls().
#pragma once

#include <atomic>
#include <list>
#include <optional>
#include <utility>

namespace accel::comm::ucx {

template <typename Call>
class CallQueue {
 public:
  // Without the mutex: whether it is worth while to take it.
  bool may_have_calls() const { return has_calls_.load(std::memory_order_relaxed); }

  bool is_empty() const { return calls_.empty(); }
  void push(Call&& call) {
    calls_.push_back(std::move(call));
    has_calls_.store(true);
  }
  std::optional<Call> pop() {
    if (calls_.empty()) return std::nullopt;
    std::optional<Call> call(std::move(calls_.front()));
    calls_.pop_front();
    has_calls_.store(!calls_.empty());
    return call;
  }
  std::list<Call> take_all() noexcept {
    has_calls_.store(false);
    std::list<Call> calls;
    calls.swap(calls_);
    return calls;
  }
  std::list<Call>& calls() { return calls_; }

 private:
  std::list<Call> calls_;  // a list, because emptying it needs no memory
  std::atomic<bool> has_calls_{false};
};

}  // namespace accel::comm::ucx
