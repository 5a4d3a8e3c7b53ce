// SPDX-License-Identifier: Apache-2.0
// Task runner of a group: runs one task at a time, on the stack of its caller or on a fiber, and waits for its
// collectives. By the thread that has claimed the engine.
#pragma once

#include <exception>
#include <list>
#include <memory>
#include <optional>

#include "comm/ucx/algorithms/session.hpp"
#include "comm/ucx/host/host_segment.hpp"
#include "comm/ucx/host/shared_memory.hpp"
#include "comm/ucx/progress/call_memory.hpp"
#include "comm/ucx/progress/failure_detector.hpp"
#include "comm/ucx/progress/fiber.hpp"
#include "comm/ucx/progress/group_failure.hpp"
#include "comm/ucx/progress/message_queue.hpp"
#include "comm/ucx/progress/posted_calls.hpp"
#include "comm/ucx/progress/progress_loop.hpp"
#include "comm/ucx/progress/progressed_group.hpp"

namespace accel::comm::ucx {

// The parts of its group and of the engine that the runner uses.
struct TaskRunnerLinks {
  ProgressLoop& loop;
  Transport& transport;
  Peers& peers;
  const GroupFailure& failure;
  FailureDetector& detector;
  const MessageQueue& messages;
};

class TaskRunner final : private Waiter {
 public:
  struct Ended {
    PostedTask task;
    std::exception_ptr error;
  };

  // `segment` is null if the ranks cannot map each other's memory.
  TaskRunner(const TaskRunnerLinks& links, std::unique_ptr<HostSegment> segment)
      : links_(links), tensors_(links.peers.rank()), segment_(std::move(segment)) {}
  TaskRunner(const TaskRunner&) = delete;
  TaskRunner& operator=(const TaskRunner&) = delete;

  // On the stack of the caller. Throws the error of the task.
  void run_here(PostedTask& task);
  bool runs_here() const { return runs_here_; }

  // On a fiber. prepare() makes one if there is none: std::bad_alloc when there is no stack.
  void prepare();
  void begin(PostedTask task);
  bool is_running() const { return running_ != nullptr; }
  // Whether it was resumed: it is not while it waits for something that has not arrived.
  bool resume();
  // The task of the fiber, once it has ended.
  std::optional<Ended> take_ended();
  // Interrupts the task of the fiber if it waits in vain.
  void check_running() noexcept;
  void add_to(GroupWait& wait) const;

  // For tensors that are reduced in place; null if the ranks do not share memory.
  SharedMemory* shared_memory();
  CallMemory& memory() { return memory_.front(); }
  // At the end of the group: what UCX may still access.
  std::list<CallMemory> release_memory();

 private:
  struct Running {
    explicit Running(TaskRunner& runner);
    std::optional<PostedTask> task;
    Session* session = nullptr;       // while the task waits
    std::exception_ptr interruption;  // thrown from its wait()
    std::exception_ptr error;         // of the task
    Fiber fiber;
  };

  void wait(Session& session) override;
  void check(Session& session) override { links_.detector.check(&session, links_.messages.posted()); }
  void throw_if_failed() const override { links_.failure.throw_if_set(); }
  void suspend(Session& session);
  void run_parts(PostedTask& task);

  const TaskRunnerLinks links_;
  SharedMemory tensors_;
  std::unique_ptr<HostSegment> segment_;
  std::list<CallMemory> memory_{1};           // one; a list, so that handing it over needs no memory
  std::unique_ptr<Running> running_, spare_;  // spare_ keeps a stack for reuse
  bool runs_here_ = false;
};

}  // namespace accel::comm::ucx
