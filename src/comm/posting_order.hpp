// SPDX-License-Identifier: Apache-2.0
// Posting order of a group's calls, which must be the same on all ranks. A call of several rounds keeps its turn until
// its last round is posted; calls made meanwhile are posted after it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <list>
#include <mutex>

namespace accel::comm {

class PostingOrder {
 public:
  // Posts a call, and returns whether it keeps its turn. Must not throw.
  using Post = std::function<bool()>;

  // Runs `post` now, or on the thread that ends the turn of the call before it.
  void post(Post post);
  // Called by the call that has its turn.
  void end_turn();
  // Blocks until it is the turn of a call that needs no turn of its own.
  void wait_for_turn() const;

 private:
  std::atomic<bool> taken_{false};
  mutable std::mutex mutex_;
  mutable std::condition_variable free_;
  std::list<Post> waiting_;
};

}  // namespace accel::comm
