// The order in which a group's calls are posted, which all ranks must agree on. A call of several rounds keeps its turn
// until it has posted the last of them; what is called meanwhile is posted after that.
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
  // By the call that has kept its turn.
  void end_turn();
  // For a call that is posted without a turn of its own, and blocks until then.
  void wait_for_turn() const;

 private:
  std::atomic<bool> taken_{false};
  mutable std::mutex mutex_;
  mutable std::condition_variable free_;
  std::list<Post> waiting_;
};

}  // namespace accel::comm
