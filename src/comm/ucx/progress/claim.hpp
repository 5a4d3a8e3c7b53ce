// SPDX-License-Identifier: Apache-2.0
// Claim: one thread at a time progresses an engine, the one that has claimed it. The mutex guards the claim, and all
// state that the engine and its groups share with other threads. The engine's own thread lends its claim while it
// sleeps: a thread that posts a message or waits for one then needs no other thread to be woken.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <utility>

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
    uses_++;
  }
  void give_back() {
    taken_ = false;
    owner_ = {};
  }
  // How often it was taken.
  uint64_t uses() const { return uses_; }

  void lend() {
    give_back();
    is_lent_ = lender_sleeps_ = true;
  }
  bool is_lent() const { return is_lent_; }
  // Whether the lender sleeps and is to be notified that its claim was used: once.
  bool recall_lender() { return std::exchange(lender_sleeps_, false); }
  void take_back() {
    take();
    is_lent_ = lender_sleeps_ = false;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool taken_ = false;
  bool is_lent_ = false, lender_sleeps_ = false;
  uint64_t uses_ = 0;
  std::thread::id owner_;
};

}  // namespace accel::comm::ucx
