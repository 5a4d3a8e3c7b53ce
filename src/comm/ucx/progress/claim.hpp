// Claim: one thread at a time progresses an engine, the one that has claimed it. The mutex guards the claim, and all
// state that the engine and its groups share with other threads.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

namespace accel::comm::ucx {

class Claim {
 public:
  std::mutex& mutex() { return mutex_; }
  // Notified when the claim is given back, when there is something to do, and when a request is done.
  std::condition_variable& changed() { return changed_; }

  // The rest is called under the mutex.
  bool is_taken() const { return taken_; }
  bool is_taken_here() const { return taken_ && owner_ == std::this_thread::get_id(); }
  void take() {
    taken_ = true;
    owner_ = std::this_thread::get_id();
  }
  void give_back() {
    taken_ = false;
    owner_ = {};
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool taken_ = false;
  std::thread::id owner_;
};

}  // namespace accel::comm::ucx
