// SPDX-License-Identifier: Apache-2.0
#include "comm/work_list.hpp"

#include <algorithm>
#include <iterator>

namespace accel::comm {

void WorkList::add(const std::shared_ptr<Work>& work) {
  add_again(work);
  work->on_end([list = weak_from_this()](const std::exception_ptr&) {
    const auto self = list.lock();
    if (!self) return;
    // A thread that saw the work open holds the mutex until it waits.
    { const std::lock_guard<std::mutex> lock(self->mutex_); }
    self->changed_.notify_all();
  });
}

void WorkList::add_again(const std::shared_ptr<Work>& work) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto forgotten = [&](const std::shared_ptr<Work>& other) {
    return other == work || (other->ended() && !other->has_callbacks());
  };
  works_.erase(std::remove_if(works_.begin(), works_.end(), forgotten), works_.end());
  works_.push_back(work);
}

bool WorkList::progress(std::chrono::microseconds longest) {
  const auto end = std::chrono::steady_clock::now() + longest;
  std::vector<std::shared_ptr<Work>> ended;
  std::unique_lock<std::mutex> lock(mutex_);
  const auto ready = [this] {
    return std::any_of(works_.begin(), works_.end(),
                       [](const auto& work) { return work->ended() && work->has_callbacks(); });
  };
  const auto under_way = [this] {
    return std::any_of(works_.begin(), works_.end(), [](const auto& work) { return !work->ended(); });
  };
  changed_.wait_until(lock, end, [&] { return ready() || !under_way(); });
  std::copy_if(works_.begin(), works_.end(), std::back_inserter(ended), [](const auto& work) { return work->ended(); });
  lock.unlock();
  for (const auto& work : ended) work->deliver();
  lock.lock();
  return ready() || under_way();  // one may have ended meanwhile
}

}  // namespace accel::comm
