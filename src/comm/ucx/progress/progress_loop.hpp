// SPDX-License-Identifier: Apache-2.0
// Progress loop: progresses the worker and all groups of an engine, and sleeps while nothing happens. By the thread
// that has claimed the engine, but where it says so.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "comm/ucx/algorithms/session.hpp"
#include "comm/ucx/host/spin.hpp"
#include "comm/ucx/progress/group_list.hpp"
#include "comm/ucx/progress/request_queue.hpp"
#include "comm/ucx/progress/wake_ups.hpp"
#include "comm/ucx/transport/worker.hpp"

namespace accel::comm::ucx {

class ProgressLoop {
 public:
  // `rank` stands in errors; `peers` is about how many processes there will be connections to.
  ProgressLoop(int rank, int peers, bool stays_on_host, Claim& claim, RequestQueue& requests, GroupList& groups);

  Worker& worker() { return *worker_; }
  Spin& spin() { return spin_; }
  void release_worker() { worker_.reset(); }

  // For a group that is added to the list, or removed from it.
  void watch(ProgressedGroup& group);
  void forget(ProgressedGroup& group);

  // Any thread: the groups or the requests have something new. wake_up() ends a sleep, too.
  void notify() { attention_.store(true); }
  bool is_notified() const { return attention_.load(); }
  void wake_up() { wake_ups_.wake(); }
  // Any thread, for the one that has lent its claim.
  void recall() const { wake_ups_.recall(); }
  // A group may have calls besides a blocking one.
  void expect_calls() { busy_ = true; }

  enum class Sleep : uint8_t {
    kClaimed,
    kLending,  // others may have the claim, while no collective is under way
  };
  // Makes progress until `done`. `session` is the blocking collective that waits, or null.
  template <typename Done>
  void progress_until(const Done& done, Session* session, Sleep sleep = Sleep::kClaimed);
  // Makes progress until `enough`, or until nothing is left to do.
  template <typename Enough>
  void progress_until_idle(const Enough& enough, Sleep sleep = Sleep::kClaimed);

 private:
  // Progresses all groups without waiting. True if something happened.
  bool progress_groups();
  bool progress() {
    const bool moved = worker_->progress();
    return (attention_.load(std::memory_order_relaxed) || busy_) ? progress_groups() || moved : moved;
  }
  void check(Session* session);
  void sleep(Session* session, Sleep kind);
  void sleep_lending(int timeout_ms);
  bool wait_for_events(int timeout_ms);

  Claim& claim_;
  RequestQueue& requests_;
  GroupList& groups_;
  WakeUps wake_ups_;
  std::unique_ptr<Worker> worker_;
  std::vector<GroupList::GroupPointer> active_groups_;  // a copy of groups_
  bool busy_ = false;                                   // one of them has a running call besides a blocking one
  int refusals_ = 0;                                    // consecutive ones, of the worker to report events
  Spin spin_{std::chrono::microseconds(20)};
  // A caller that waits for a message spins for as long as the other rank may need to wake up: two that sleep would
  // otherwise find each other asleep for ever.
  Spin message_spin_{std::chrono::microseconds(100)};
  std::atomic<bool> attention_{false};  // groups_ or requests_ have changed
};

// The loops are templates, so that the check for the end of a short collective is inlined.

// Spins for a moment if every rank has a core and that has brought something, then sleeps until something arrives.
template <typename Done>
void ProgressLoop::progress_until(const Done& done, Session* session, Sleep sleep) {
  using Clock = std::chrono::steady_clock;
  constexpr unsigned kRoundsBetweenChecks = 4096;
  Clock::time_point spin_end{};
  bool spinning = false;
  Spin& spin = session == nullptr && sleep == Sleep::kClaimed ? message_spin_ : spin_;
  for (unsigned rounds = 1;; rounds++) {
    const bool progressed = progress();
    if (session != nullptr) session->waiter().throw_if_failed();
    if (done()) {
      if (spinning) spin.ended_early();
      return;
    }
    if (progressed) {
      // Messages that keep arriving must not delay the detection of a lost rank.
      if (rounds % kRoundsBetweenChecks == 0) {
        wait_for_events(0);
        check(session);
      }
      refusals_ = 0;
      if (std::exchange(spinning, false)) spin.ended_early();
      continue;
    }
    if (const auto length = spin.length(); length.count() > 0) {
      const auto now = Clock::now();
      if (!spinning) spin_end = now + length;
      spinning = true;
      if (now < spin_end) continue;
    }
    spin.slept();
    this->sleep(session, sleep);
    spinning = false;
  }
}

template <typename Enough>
void ProgressLoop::progress_until_idle(const Enough& enough, Sleep sleep) {
  attention_.store(true);
  progress_until([&] { return enough() || (!busy_ && !attention_.load()); }, nullptr, sleep);
}

}  // namespace accel::comm::ucx
