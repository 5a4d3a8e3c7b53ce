// Moves the messages of all groups of a rank, over one worker of UCX. At any time one thread drives it: the caller of a
// blocking collective, a thread that waits, or else the engine's own. The others hand their calls over.
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
#include <vector>

#include <ATen/core/Tensor.h>

#include "base/file_descriptor.hpp"
#include "comm/ucx/futex.hpp"
#include "comm/ucx/session.hpp"
#include "comm/ucx/worker.hpp"

namespace accel::comm::ucx {

class Driver;

// What the messages of a group are in.
struct CallMemory {
  Session::Buffers buffers;
  std::vector<at::Tensor> abandoned;  // tensors of calls that failed
};

class ProgressEngine : public std::enable_shared_from_this<ProgressEngine> {
 public:
  // The engine ends with the last of them. Not to be given up while a call of the group's is open.
  using Membership = std::shared_ptr<ProgressEngine>;

  // An engine with its thread. `rank` and `size` are those of the first group.
  static Membership start(int rank, int size);
  // For another group; null when the engine has ended.
  Membership join() const;
  ProgressEngine(int rank, int size);
  ProgressEngine(const ProgressEngine&) = delete;
  ProgressEngine& operator=(const ProgressEngine&) = delete;
  ~ProgressEngine();

  // Calls `function` as the one who drives, and waits for its end; throws what it throws.
  void run(const std::function<void()>& function);
  // Which groups it serves.
  void add(const std::shared_ptr<Driver>& group);
  void remove(const Driver& group);
  // By which this process knows a group; not used again soon.
  uint32_t new_group_number();

  // The rest is for the groups. What several threads look at is under this mutex.
  std::mutex& mutex() { return mutex_; }
  bool is_driven() const { return driven_; }  // under the mutex
  bool is_driven_here() const { return driven_ && driver_ == std::this_thread::get_id(); }
  void claim();
  void release();
  void wake_up();
  void look_at_groups() { attention_.store(true); }  // one has something new
  // Drives until `enough`, or as long as there is something to do.
  template <typename Enough>
  void drive(const Enough& enough);

  // By the driving thread.
  Worker& worker() { return *worker_; }
  bool spins() const { return spin_.count() > 0; }
  // Progresses until `done`. `session` is the blocking collective that waits, or null.
  template <typename Done>
  void progress_until(const Done& done, Session* session);
  // What UCX may still touch after a failure stays until the engine ends.
  void keep(std::list<CallMemory> memory) noexcept { kept_.splice(kept_.end(), memory); }

 private:
  struct Request {
    const std::function<void()>* function;
    bool done = false;
    std::exception_ptr error = nullptr;
  };

  void run_thread();
  void stop();
  bool has_work() const;  // under the mutex, while nobody drives
  void serve_requests();
  // Lets all groups do what they can without waiting. True when something happened.
  bool serve_groups();
  bool progress() {
    const bool moved = worker_->progress();
    return (attention_.load(std::memory_order_relaxed) || busy_) ? serve_groups() || moved : moved;
  }
  void check(Session* session);
  void sleep(Session* session);
  bool wait_for_events(int timeout_ms);

  // Owned by the driving thread.
  const int rank_;
  std::unique_ptr<Worker> worker_;
  FileDescriptor events_, wake_up_;
  std::vector<std::shared_ptr<Driver>> served_;  // the groups as of the last look
  bool busy_ = false;                            // one of them has something under way beside a blocking call
  bool ticks_ = false;  // peers on other hosts: sent bytes may still have to be handed to the network
  int refusals_ = 0;    // of the worker to report events, one after the other
  std::chrono::microseconds spin_{20};
  std::vector<FutexWait> waits_;
  std::list<CallMemory> kept_;

  std::atomic<bool> attention_{false};  // something below changed
  std::atomic<bool> sleeping_{false};   // the driver has to be woken up
  // What it sleeps on, where that is memory: the first with others, or the second alone.
  std::atomic<uint32_t> wakes_{0};
  std::atomic<const std::atomic<uint32_t>*> single_wait_{nullptr};

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<Driver>> groups_;
  std::list<Request*> requests_;
  uint32_t latest_number_ = 0;
  bool driven_ = false;
  bool stop_ = false;
  std::weak_ptr<ProgressEngine> membership_;
  std::thread::id driver_;
  std::thread thread_;
};

}  // namespace accel::comm::ucx
