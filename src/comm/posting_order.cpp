// SPDX-License-Identifier: Apache-2.0
#include "comm/posting_order.hpp"

#include <utility>

namespace accel::comm {

void PostingOrder::post(Post post) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (taken_) return waiting_.push_back(std::move(post));
    taken_ = true;
  }
  if (!post()) end_turn();
}

void PostingOrder::end_turn() {
  for (bool kept = false; !kept;) {
    Post next;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (waiting_.empty()) {
        taken_ = false;
        break;
      }
      next = std::move(waiting_.front());
      waiting_.pop_front();
    }
    kept = next();
  }
  free_.notify_all();
}

void PostingOrder::wait_for_turn() const {
  if (!taken_) return;
  std::unique_lock<std::mutex> lock(mutex_);
  free_.wait(lock, [this] { return !taken_; });  // every round before ends by its own deadline
}

}  // namespace accel::comm
