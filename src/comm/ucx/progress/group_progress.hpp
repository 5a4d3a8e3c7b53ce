// Progress of one group: queues its collectives, which run one after the other, and its sends and receives, progresses
// them on the progress engine, and fails them when the group fails.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <exception>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/ucx/algorithms/session.hpp"
#include "comm/ucx/host/host_segment.hpp"
#include "comm/ucx/progress/fiber.hpp"
#include "comm/ucx/progress/posted_calls.hpp"
#include "comm/ucx/progress/progress_engine.hpp"
#include "comm/ucx/transport/peers.hpp"
#include "comm/ucx/transport/transport.hpp"

namespace accel::comm::ucx {

class GroupProgress final : public ProgressedGroup, public WorkProgress, private Waiter {
 public:
  // `current_call` returns the function of the C API that the thread is in, and may be null. `number` identifies the
  // group in the engine.
  GroupProgress(ProgressEngine::Membership membership, uint32_t number, std::unique_ptr<Transport> transport,
                Peers peers, std::unique_ptr<HostSegment> segment, const char* (*current_call)());
  ~GroupProgress() override;

  int rank() const { return peers_.rank(); }
  int size() const { return peers_.size(); }
  uint64_t sequence() const { return sequence_; }
  const std::shared_ptr<ProgressEngine>& engine() const { return engine_; }

  // Runs the task before it returns if the engine is free and the task is not async; otherwise queues it. Both throw
  // kAborted once the group has failed.
  void submit(PostedTask task);
  void submit(PointToPoint call);

  void progress_until_complete(UcxWork& work) override;

  // Memory for in-place all-reduces, if the ranks can map each other's memory.
  bool shares_memory() const { return segment_ != nullptr && peers_.hosts().count() == 1; }
  at::Tensor allocate(int64_t numel, const at::TensorOptions& options) { return memory_.allocate(numel, options); }

  // Both fail all open calls, here and (through the store) on the peers.
  void fail(CollectiveFailure failure, const std::string& reason);
  void abort(const std::string& reason) override { fail(CollectiveFailure::kAborted, reason); }
  // Leaves the group and its engine. Aborts open calls.
  void shutdown();

  // For the engine.
  uint32_t number() const override { return number_; }
  const Peers& peers() const override { return peers_; }
  bool has_work() const override;
  bool progress() noexcept override;
  bool is_busy() const override { return running_ != nullptr || !posted_.empty(); }
  GroupWait current_wait() const override;
  void check_open_calls() noexcept override;
  int event_descriptor() const override { return events_.number(); }
  void check_ended_processes(int timeout_ms) override;

 private:
  // A task that runs on a fiber.
  struct Running {
    explicit Running(GroupProgress& group);
    PostedTask task;
    Session* session = nullptr;       // while the task waits
    std::exception_ptr interruption;  // thrown from its wait()
    std::exception_ptr error;         // of the task
    Fiber fiber;
  };

  // The waiter of its collectives.
  void wait(Session& session) override;
  void check(Session& session) override;
  void throw_if_failed() const override;
  void suspend(Session& session);
  bool resume_running();
  void start_next_task();
  void end_failed_calls();
  // Throws if a rank is lost or a deadline has passed, that of the session or those of messages.
  void check_calls(Session* session);
  void check_peers(Session* session);
  void check_deadlines(Session* session);

  void run_parts(PostedTask& task);
  void end_task(PostedTask& task, std::exception_ptr error) noexcept;
  std::optional<PostedTask> next_task();
  std::optional<PointToPoint> next_submission();
  bool leave();

  void post(PointToPoint call);
  bool finish_posted();
  void complete(PointToPoint& call, std::exception_ptr error) noexcept;
  void take_received(PointToPoint& call);
  Failure from_peer(const Failure& failure) const;
  std::optional<Failure> failure_of_neighbour() const;
  // If a peer has failed.
  void throw_failure_of_others();
  // Empty if nothing is known of the others.
  std::string where_ranks_are();
  Failure explain(Failure failure, const std::string& title);
  // In an exception handler: the failure of the group that the exception means.
  Failure current_failure(const std::string& what) const;
  // In an exception handler: the error for the caller. The group fails too, unless its ranks are still in step.
  std::exception_ptr fail_task(PostedTask& task) noexcept;
  // After a mismatch, which ends the task on all ranks, so that later calls have equal sequence numbers everywhere.
  void skip_rest_of(const PostedTask& task) noexcept;
  void fail_group_for_exception() noexcept;
  Failure end_of_group(const char* when) const noexcept;
  void fail_group(Failure failure) noexcept;
  void fail_open_calls() noexcept;
  std::exception_ptr error_for_open_calls() const noexcept;
  // Keeps memory that UCX may still access after a failure.
  void keep(at::Tensor memory) noexcept;
  [[noreturn]] void throw_failure(const Failure& cause) const;

  const std::shared_ptr<ProgressEngine> engine_;
  ProgressEngine::Membership membership_;
  const uint32_t number_;
  const char* (*const current_call_)();

  // Used by the thread that has claimed the engine.
  std::unique_ptr<Transport> transport_;
  Peers peers_;
  SharedMemory memory_;
  std::unique_ptr<HostSegment> segment_;      // null if the ranks cannot map each other's memory
  std::list<CallMemory> memory_of_calls_{1};  // one; a list, so that handing it over needs no memory
  std::unique_ptr<Running> running_, spare_;  // spare_ keeps a stack for reuse
  bool runs_here_ = false;                    // a task runs on the stack of its caller
  std::vector<PointToPoint> posted_;
  std::vector<int> ended_peers_;  // ranks whose process has ended
  struct Loss {
    int rank;
    std::chrono::steady_clock::time_point since;
  };
  std::optional<Loss> loss_;  // the first of them that did not leave the group first
  std::chrono::steady_clock::time_point last_check_;
  const FileDescriptor events_;  // ends of processes

  std::atomic<bool> failed_{false};  // failure_ is set
  std::atomic<bool> tasks_waiting_{false}, submissions_waiting_{false};
  std::atomic<uint64_t> sequence_{0};

  // Under the engine's mutex. Lists, because emptying them needs no memory.
  std::list<PostedTask> tasks_;
  std::list<PointToPoint> submissions_;
  std::optional<Failure> failure_;
  bool stop_ = false;
};

}  // namespace accel::comm::ucx
