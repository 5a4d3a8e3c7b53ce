// Runs the calls of one group. At any time one thread, the driver, owns the transport: the caller of a synchronous
// collective, a thread that waits, or else the group's own thread. The others hand their calls over.
#pragma once

#include <ATen/ThreadLocalState.h>
#include <ATen/core/Tensor.h>

#include <atomic>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/ucx/collective.hpp"
#include "comm/ucx/host_segment.hpp"
#include "comm/ucx/peers.hpp"
#include "comm/ucx/session.hpp"
#include "comm/ucx/transport.hpp"
#include "comm/ucx/work.hpp"

namespace accel::comm::ucx {

// Collectives that belong to one call and one Work, run one after the other.
struct Task {
  c10::intrusive_ptr<UcxWork> work;
  std::vector<Collective> parts;
  const char* call = nullptr;    // the function of the C API that led to it; null where none is known
  std::vector<at::Tensor> held;  // keeps the memory that the parts point to
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;  // (to, from): results for tensors that are not contiguous
  std::chrono::milliseconds timeout{0};
  // Of the caller, for the future's callbacks. A pointer, so that a move cannot fail half-way.
  std::unique_ptr<at::ThreadLocalState> thread_state;
};

// A send or a receive. They complete in any order.
struct PointToPoint {
  c10::intrusive_ptr<UcxWork> work;
  int peer = 0;  // kAnyRank receives from whoever sends first
  uint64_t tag = 0;
  bool receives = false;
  at::Tensor memory;  // contiguous
  at::Tensor target;  // where the result is copied to; undefined when it is `memory`
  Deadline deadline{Deadline::Milliseconds(0)};
  std::unique_ptr<at::ThreadLocalState> thread_state;
  Message message;
};

class Driver : public std::enable_shared_from_this<Driver> {
 public:
  // `current_call` names the function of the C API that a thread is in, and may be null.
  Driver(std::unique_ptr<Transport> transport, Peers peers, std::unique_ptr<HostSegment> segment,
         const char* (*current_call)());
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;
  ~Driver();
  // Once, before anything else.
  void start();

  int rank() const { return peers_.rank(); }
  int size() const { return peers_.size(); }
  uint64_t sequence() const { return sequence_; }

  // Runs the task before it returns where nothing is in its way and `at_once` allows it; else hands it to the group's
  // thread. Both throw kAborted once the group has failed.
  void submit(Task task, bool at_once);
  void submit(PointToPoint call);

  // Drives until `work` is complete, where nobody else does.
  void help(UcxWork& work);

  // Tensors for all-reduces in place, where the ranks can reach each other's memory.
  bool shares_memory() const { return segment_ != nullptr && peers_.hosts().count() == 1; }
  at::Tensor allocate(int64_t numel, const at::TensorOptions& options) { return memory_.allocate(numel, options); }

  // Fails everything that is open, here and (through the store) on the peers.
  void abort(const std::string& reason);
  // Ends the group's thread. Open calls are aborted.
  void shutdown();

 private:
  friend class Session;

  // Progresses until `done`. `session` is the collective that waits, null when only point-to-point calls are open.
  template <typename Done>
  void progress_until(const Done& done, Session* session);
  void sleep(Session* session);
  // Throws when there is nothing to wait for any more: a rank is lost, a deadline has passed, the process ends.
  void check(Session* session);
  void check_peers(Session* session);
  void check_deadlines(Session* session);
  void wait_for_events(int timeout_ms);

  void wake_up();
  bool has_work() const;  // under mutex_, while nobody drives
  void claim();           // under mutex_
  void release();
  template <typename Done>
  void drive(const Done& enough) noexcept;
  void run_thread();
  void run_task(Task& task) noexcept;
  std::optional<Task> next_task();
  std::optional<PointToPoint> next_submission();

  void service();
  void post(PointToPoint call);
  void finish_posted();
  void complete(PointToPoint& call, std::exception_ptr error) noexcept;
  void take_received(PointToPoint& call);
  Failure from_peer(const Failure& failure) const;
  std::optional<Failure> failure_of_neighbour() const;
  // Where there is one.
  void throw_failure_of_others();
  // Empty where nothing is known of the others.
  std::string where_ranks_are();
  Failure explain(Failure failure, const std::string& title);
  // In a handler of an exception: what it means for the group.
  Failure current_failure(const std::string& what) const;
  // In the same place: what the caller is told. The group ends with it, but for what leaves the ranks in step.
  std::exception_ptr fail_task(Task& task) noexcept;
  // After a mismatch, which ends the task on all ranks: they agree on the sequence numbers of what comes next.
  void skip_rest_of(const Task& task) noexcept;
  void give_up_for_exception() noexcept;
  Failure end_of_group(const char* when) const noexcept;
  void give_up(Failure failure) noexcept;
  void fail_open_calls() noexcept;
  std::exception_ptr error_for_open_calls() const noexcept;
  // UCX may still touch it after a failure.
  void keep(at::Tensor memory) noexcept;
  [[noreturn]] void throw_failure(const Failure& cause) const;

  // Owned by the driving thread.
  std::unique_ptr<Transport> transport_;
  Peers peers_;
  const char* (*const current_call_)();
  SharedMemory memory_;
  std::unique_ptr<HostSegment> segment_;  // null where the ranks cannot reach each other's memory
  Session::Buffers buffers_;
  std::vector<PointToPoint> posted_;
  std::vector<at::Tensor> abandoned_;
  std::vector<int> gone_;  // ranks whose process ended
  struct Loss {
    int rank;
    std::chrono::steady_clock::time_point since;
  };
  std::optional<Loss> loss_;  // the first of them that did not leave in order
  std::chrono::steady_clock::time_point last_look_;
  std::chrono::microseconds spin_;
  FileDescriptor events_, wake_up_;
  int refusals_ = 0;  // of the transport to report events, one after the other

  std::atomic<bool> attention_{false};  // something below changed
  std::atomic<bool> sleeping_{false};   // the driver has to be woken up through wake_up_
  std::atomic<bool> tasks_waiting_{false};
  std::atomic<uint64_t> sequence_{0};

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Lists need no memory to be emptied.
  std::list<Task> tasks_;
  std::list<PointToPoint> submissions_;
  std::optional<Failure> failure_;
  bool driven_ = false;
  bool stop_ = false;
  bool ticks_ = false;  // peers on other hosts: sent bytes may still have to be handed to the network
  std::thread::id driver_;
  std::thread thread_;
};

}  // namespace accel::comm::ucx
