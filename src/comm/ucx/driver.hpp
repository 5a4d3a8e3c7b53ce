// The calls of one group: its collectives run one after the other, beside its messages and what other groups do. Who
// drives the progress engine owns what moves them.
#pragma once

#include <ATen/ThreadLocalState.h>
#include <ATen/core/Tensor.h>

#include <atomic>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/ucx/collective.hpp"
#include "comm/ucx/fiber.hpp"
#include "comm/ucx/host_segment.hpp"
#include "comm/ucx/peers.hpp"
#include "comm/ucx/progress_engine.hpp"
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
  // `current_call` names the function of the C API that a thread is in, and may be null. `number` is the engine's for
  // the group.
  Driver(ProgressEngine::Membership membership, uint32_t number, std::unique_ptr<Transport> transport, Peers peers,
         std::unique_ptr<HostSegment> segment, const char* (*current_call)());
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;
  ~Driver();

  int rank() const { return peers_.rank(); }
  int size() const { return peers_.size(); }
  uint64_t sequence() const { return sequence_; }
  const std::shared_ptr<ProgressEngine>& engine() const { return engine_; }

  // Runs the task before it returns where nothing is in its way and `at_once` allows it; else hands it to who drives.
  // Both throw kAborted once the group has failed.
  void submit(Task task, bool at_once);
  void submit(PointToPoint call);

  // Drives until `work` is complete, where nobody else does.
  void help(UcxWork& work);

  // Tensors for all-reduces in place, where the ranks can reach each other's memory.
  bool shares_memory() const { return segment_ != nullptr && peers_.hosts().count() == 1; }
  at::Tensor allocate(int64_t numel, const at::TensorOptions& options) { return memory_.allocate(numel, options); }

  // Fails everything that is open, here and (through the store) on the peers.
  void abort(const std::string& reason);
  // Leaves the group, and its engine. Open calls are aborted.
  void shutdown();

  // What follows is for the engine; but for the first two, by the driving thread.
  uint32_t number() const { return number_; }
  bool has_work() const;  // under the engine's mutex, while nobody drives
  // Does what can be done without waiting. True when something happened.
  bool serve() noexcept;
  bool is_busy() const { return running_ != nullptr || !posted_.empty(); }
  bool has_messages() const { return !posted_.empty(); }
  bool must_go_on() const { return running_ != nullptr && running_->interruption != nullptr; }
  // Of the collective that runs beside others; null when none waits.
  const Session* waiting_session() const { return running_ ? running_->session : nullptr; }
  // Ends what waits in vain.
  void check_open_calls() noexcept;
  // Readable when a process of the group's has ended.
  int event_descriptor() const { return events_.number(); }
  void look_for_ended_processes(int timeout_ms);
  bool has_other_hosts() const;
  bool cores_suffice() const { return peers_.cores_suffice(); }

 private:
  friend class Session;

  // A task that runs beside others, on a stack of its own.
  struct Running {
    explicit Running(Driver& driver);
    Task task;
    Session* session = nullptr;       // that waits, while it does
    std::function<bool()> is_ready;   // the end of its wait
    std::exception_ptr interruption;  // thrown from its wait
    std::exception_ptr error;         // of the task
    Fiber fiber;
  };

  // Waits in a collective, until `done`.
  template <typename Done>
  void wait_until(const Done& done, Session& session);
  void suspend(std::function<bool()> is_ready, Session& session);
  bool resume_running();
  void start_next_task();
  void end_given_up();
  // Throws when there is nothing to wait for any more: a rank is lost, or a deadline has passed.
  void check(Session* session);
  void check_peers(Session* session);
  void check_deadlines(Session* session);
  void throw_if_given_up() const;

  void run_parts(Task& task);
  void end_task(Task& task, std::exception_ptr error) noexcept;
  std::optional<Task> next_task();
  std::optional<PointToPoint> next_submission();
  bool leave();

  void post(PointToPoint call);
  bool finish_posted();
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

  const std::shared_ptr<ProgressEngine> engine_;
  ProgressEngine::Membership membership_;
  const uint32_t number_;
  const char* (*const current_call_)();

  // Owned by the driving thread.
  std::unique_ptr<Transport> transport_;
  Peers peers_;
  SharedMemory memory_;
  std::unique_ptr<HostSegment> segment_;      // null where the ranks cannot reach each other's memory
  std::list<CallMemory> memory_of_calls_{1};  // one, which needs no memory to be handed over
  std::unique_ptr<Running> running_, spare_;  // the latter has a stack to use again
  bool runs_here_ = false;                    // a task, on the stack of the thread that drives
  std::vector<PointToPoint> posted_;
  std::vector<int> gone_;  // ranks whose process ended
  struct Loss {
    int rank;
    std::chrono::steady_clock::time_point since;
  };
  std::optional<Loss> loss_;  // the first of them that did not leave in order
  std::chrono::steady_clock::time_point last_look_;
  const FileDescriptor events_;  // of the ends of processes

  std::atomic<bool> given_up_{false};  // failure_ is there
  std::atomic<bool> tasks_waiting_{false}, submissions_waiting_{false};
  std::atomic<uint64_t> sequence_{0};

  // Under the engine's mutex. Lists need no memory to be emptied.
  std::list<Task> tasks_;
  std::list<PointToPoint> submissions_;
  std::optional<Failure> failure_;
  bool stop_ = false;
};

template <typename Done>
void Driver::wait_until(const Done& done, Session& session) {
  if (running_ != nullptr)
    suspend([&done] { return done(); }, session);
  else
    engine_->progress_until(done, &session);
}

}  // namespace accel::comm::ucx
