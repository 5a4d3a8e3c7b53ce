// SPDX-License-Identifier: Apache-2.0
#include "comm/ucx/progress/request_queue.hpp"

#include <utility>

namespace accel::comm::ucx {

void RequestQueue::add(Request& request) {
  Request** end = &first_;
  while (*end != nullptr) end = &(*end)->next;
  *end = &request;
}

void RequestQueue::run_all() {
  while (true) {
    Request* request = nullptr;
    {
      const std::lock_guard<std::mutex> lock(claim_.mutex());
      if (first_ == nullptr) break;
      request = std::exchange(first_, first_->next);
    }
    try {
      (*request->function)();
    } catch (const std::exception&) {
      request->error = std::current_exception();
    }
    const std::lock_guard<std::mutex> lock(claim_.mutex());
    request->done = true;
    claim_.changed().notify_all();
  }
}

}  // namespace accel::comm::ucx
