// SPDX-License-Identifier: Apache-2.0
// Progress engine: progresses the messages of all groups of a rank over one UCX worker. One thread at a time claims it:
// the caller of a blocking collective, a thread that waits, or otherwise the engine's own thread. Other threads queue
// their calls.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <thread>

#include "comm/ucx/progress/call_memory.hpp"
#include "comm/ucx/progress/claim.hpp"
#include "comm/ucx/progress/group_list.hpp"
#include "comm/ucx/progress/progress_loop.hpp"
#include "comm/ucx/progress/request_queue.hpp"

namespace accel::comm::ucx {

class ProgressEngine : public std::enable_shared_from_this<ProgressEngine> {
 public:
  // The engine ends with its last membership, which must outlive the group's open calls.
  using Membership = std::shared_ptr<ProgressEngine>;

  // Starts an engine and its thread. `rank` and `size` are those of the first group.
  static Membership start(int rank, int size, bool stays_on_host);
  // For another group; null when the engine has ended.
  Membership join() const;
  ProgressEngine(int rank, int size, bool stays_on_host);
  ProgressEngine(const ProgressEngine&) = delete;
  ProgressEngine& operator=(const ProgressEngine&) = delete;
  ~ProgressEngine();

  // Runs `function` on the thread that has claimed the engine, and waits; throws what it throws.
  void run(const std::function<void()>& function);
  // The groups whose messages it progresses.
  uint32_t new_group_number();
  void add(uint32_t number, const std::shared_ptr<ProgressedGroup>& group);
  void remove(ProgressedGroup& group);

  // The rest is for the groups.
  Claim& claim() { return claim_; }
  // Gives the claim back, to the engine's thread if something is left to do.
  void release();
  void wake_up();
  ProgressLoop& loop() { return loop_; }
  // Keeps memory that UCX may still access after a failure until the engine ends. By the thread that has claimed it.
  void keep(std::list<CallMemory> memory) noexcept { kept_.splice(kept_.end(), memory); }

 private:
  void run_thread();
  void stop();
  // Under the mutex, while unclaimed.
  bool has_work() const { return !requests_.is_empty() || groups_.open_work() != OpenWork::kNone; }
  bool has_urgent_work() const { return stop_ || !requests_.is_empty() || groups_.open_work() == OpenWork::kUrgent; }

  Claim claim_;
  RequestQueue requests_{claim_};
  GroupList groups_;
  ProgressLoop loop_;
  std::list<CallMemory> kept_;
  bool stop_ = false;  // under the mutex
  std::weak_ptr<ProgressEngine> membership_;
  std::thread thread_;
};

}  // namespace accel::comm::ucx
