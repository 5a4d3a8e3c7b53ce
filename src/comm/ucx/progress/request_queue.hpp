// SPDX-License-Identifier: Apache-2.0
// Request queue: functions that other threads hand to the one that has claimed the engine.
#pragma once

#include <exception>
#include <functional>

#include "comm/ucx/progress/claim.hpp"

namespace accel::comm::ucx {

// It stands on the stack of the thread that waits for it, so that the queue needs no memory of its own: a group ends
// also without any.
struct Request {
  const std::function<void()>* function;
  Request* next = nullptr;
  bool done = false;
  std::exception_ptr error = nullptr;
};

class RequestQueue {
 public:
  explicit RequestQueue(Claim& claim) : claim_(claim) {}

  // Both under the mutex.
  bool is_empty() const { return first_ == nullptr; }
  void add(Request& request);
  // By the thread that has claimed the engine.
  void run_all();

 private:
  Claim& claim_;
  Request* first_ = nullptr;
};

}  // namespace accel::comm::ucx
