// Progress engine: progresses the messages of all groups of a rank over one UCX worker. One thread at a time claims it:
// the caller of a blocking collective, a thread that waits, or otherwise the engine's own thread. Other threads queue
// their calls.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "comm/ucx/algorithms/session.hpp"
#include "comm/ucx/host/futex.hpp"
#include "comm/ucx/host/spin.hpp"
#include "comm/ucx/transport/peers.hpp"
#include "comm/ucx/transport/worker.hpp"
#include "os/file_descriptor.hpp"

namespace accel::comm::ucx {

// The events that a group waits for.
struct GroupWait {
  const Session* session = nullptr;  // of its running collective
  bool for_messages = false;
  bool is_over = false;  // its collective must be resumed
};

// A group, as the engine progresses it: by the thread that has claimed the engine.
class ProgressedGroup {
 public:
  ProgressedGroup() = default;
  ProgressedGroup(const ProgressedGroup&) = delete;
  ProgressedGroup& operator=(const ProgressedGroup&) = delete;
  virtual ~ProgressedGroup() = default;

  virtual uint32_t number() const = 0;  // identifies the group in the engine
  virtual const Peers& peers() const = 0;
  virtual bool has_work() const = 0;  // under the engine's mutex, while it is not claimed
  // Makes progress without waiting. True if something happened.
  virtual bool progress() noexcept = 0;
  virtual bool is_busy() const = 0;
  virtual GroupWait current_wait() const = 0;
  // Fails calls whose peers are lost or whose deadlines have passed.
  virtual void check_open_calls() noexcept = 0;
  // Becomes readable when the process of a peer ends.
  virtual int event_descriptor() const = 0;
  virtual void check_ended_processes(int timeout_ms) = 0;
};

// The buffers of a group's messages.
struct CallMemory {
  Session::Buffers buffers;
  std::vector<at::Tensor> abandoned;  // tensors of calls that failed
};

class ProgressEngine : public std::enable_shared_from_this<ProgressEngine> {
 public:
  // The engine ends with its last membership, which must outlive the group's open calls.
  using Membership = std::shared_ptr<ProgressEngine>;

  // Starts an engine and its thread. `rank` and `size` are those of the first group.
  static Membership start(int rank, int size);
  // For another group; null when the engine has ended.
  Membership join() const;
  ProgressEngine(int rank, int size);
  ProgressEngine(const ProgressEngine&) = delete;
  ProgressEngine& operator=(const ProgressEngine&) = delete;
  ~ProgressEngine();

  // Runs `function` on the thread that has claimed the engine, and waits; throws what it throws.
  void run(const std::function<void()>& function);
  // The groups whose messages it progresses.
  void add(const std::shared_ptr<ProgressedGroup>& group);
  void remove(const ProgressedGroup& group);
  // Identifies a group in this process; not reused soon.
  uint32_t new_group_number();

  // The rest is for the groups. The mutex guards the state that several threads use.
  std::mutex& mutex() { return mutex_; }
  bool is_claimed() const { return claimed_; }  // under the mutex
  bool is_claimed_here() const { return claimed_ && owner_ == std::this_thread::get_id(); }
  void claim();
  void release();
  void wake_up();
  void notify() { attention_.store(true); }  // a group has new work
  // Makes progress until `enough`, or until nothing is left to do.
  template <typename Enough>
  void progress_until_idle(const Enough& enough);

  // By the thread that has claimed the engine.
  Worker& worker() { return *worker_; }
  Spin& spin() { return spin_; }
  // Makes progress until `done`. `session` is the blocking collective that waits, or null.
  template <typename Done>
  void progress_until(const Done& done, Session* session);
  // Keeps memory that UCX may still access after a failure until the engine ends.
  void keep(std::list<CallMemory> memory) noexcept { kept_.splice(kept_.end(), memory); }

 private:
  struct Request {
    const std::function<void()>* function;
    Request* next = nullptr;  // in the queue, which needs no memory of its own: a group ends also without any
    bool done = false;
    std::exception_ptr error = nullptr;
  };

  void run_thread();
  void stop();
  bool has_work() const;  // under the mutex, while the engine is not claimed
  void run_requests();
  // Progresses all groups without waiting. True if something happened.
  bool progress_groups();
  bool progress() {
    const bool moved = worker_->progress();
    return (attention_.load(std::memory_order_relaxed) || busy_) ? progress_groups() || moved : moved;
  }
  void check(Session* session);
  void sleep(Session* session);
  bool wait_for_events(int timeout_ms);

  // Used by the thread that has claimed the engine.
  const int rank_;
  std::unique_ptr<Worker> worker_;
  FileDescriptor events_, wake_up_;
  std::vector<std::shared_ptr<ProgressedGroup>> active_groups_;  // a copy of groups_
  bool busy_ = false;   // one of them has a running call besides a blocking one
  bool ticks_ = false;  // there are peers on other hosts: bytes may still have to be handed to the network
  int refusals_ = 0;    // consecutive ones, of the worker to report events
  Spin spin_{std::chrono::microseconds(20)};
  std::vector<FutexWait> waits_;
  std::list<CallMemory> kept_;

  std::atomic<bool> attention_{false};  // the state below has changed
  std::atomic<bool> sleeping_{false};   // the owner has to be woken up
  // Futexes that the owner sleeps on: the first with others, or the second alone.
  std::atomic<uint32_t> wakes_{0};
  std::atomic<const std::atomic<uint32_t>*> single_wait_{nullptr};

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<ProgressedGroup>> groups_;
  Request* first_request_ = nullptr;
  uint32_t latest_number_ = 0;
  bool claimed_ = false;
  bool stop_ = false;
  std::weak_ptr<ProgressEngine> membership_;
  std::thread::id owner_;
  std::thread thread_;
};

// The loops are templates, so that the check for the end of a short collective is inlined.

// Spins for a moment if every rank has a core and that has brought something, then sleeps until something arrives.
template <typename Done>
void ProgressEngine::progress_until(const Done& done, Session* session) {
  using Clock = std::chrono::steady_clock;
  constexpr unsigned kRoundsBetweenChecks = 4096;
  Clock::time_point spin_end{};
  bool spinning = false;
  for (unsigned rounds = 1;; rounds++) {
    const bool progressed = progress();
    if (session != nullptr) session->throw_if_failed();
    if (done()) {
      if (spinning) spin_.ended_early();
      return;
    }
    if (progressed) {
      // Messages that keep arriving must not delay the detection of a lost rank.
      if (rounds % kRoundsBetweenChecks == 0) {
        wait_for_events(0);
        check(session);
      }
      refusals_ = 0;
      if (std::exchange(spinning, false)) spin_.ended_early();
      continue;
    }
    if (const auto spin = spin_.length(); spin.count() > 0) {
      const auto now = Clock::now();
      if (!spinning) spin_end = now + spin;
      spinning = true;
      if (now < spin_end) continue;
    }
    spin_.slept();
    sleep(session);
    spinning = false;
  }
}

template <typename Enough>
void ProgressEngine::progress_until_idle(const Enough& enough) {
  attention_.store(true);
  progress_until([&] { return enough() || (!busy_ && !attention_.load()); }, nullptr);
}

}  // namespace accel::comm::ucx
