// SPDX-License-Identifier: Apache-2.0
// Task queue of a group: its collectives, which run one after the other in the order of posting.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>

#include "comm/ucx/progress/call_queue.hpp"
#include "comm/ucx/progress/task_runner.hpp"

namespace accel::comm::ucx {

class TaskQueue {
 public:
  // `mutex` is the engine's.
  TaskQueue(std::mutex& mutex, Peers& peers, GroupFailure& failure, FailureDetector& detector, TaskRunner& runner)
      : mutex_(mutex), peers_(peers), failure_(failure), detector_(detector), runner_(runner) {}

  // The number of the next collective.
  uint64_t sequence() const { return sequence_; }

  // Under the mutex.
  bool is_empty() const { return waiting_.is_empty(); }
  void number(PostedTask& task);
  void push(PostedTask&& task) { waiting_.push(std::move(task)); }

  // The rest is called by the thread that has claimed the engine. On the stack of the caller:
  void run_here(PostedTask& task) noexcept;
  // Starts the next one, or resumes the running one. True if something happened. Throws if the group has failed.
  bool progress();
  // Once the group has failed, which ends the waits of the running one.
  void finish_running();
  void fail_waiting(const std::exception_ptr& error) noexcept;

 private:
  std::optional<PostedTask> next();
  void start_next();
  bool resume();
  void end(PostedTask& task, std::exception_ptr error) noexcept;
  // In an exception handler: the error for the caller. The group fails too, unless its ranks are still in step.
  std::exception_ptr fail(PostedTask& task) noexcept;
  // After a mismatch, which ends the task on all ranks, so that later calls have equal sequence numbers everywhere.
  void skip_rest_of(const PostedTask& task) noexcept;

  std::mutex& mutex_;
  Peers& peers_;
  GroupFailure& failure_;
  FailureDetector& detector_;
  TaskRunner& runner_;
  CallQueue<PostedTask> waiting_;
  std::atomic<uint64_t> sequence_{0};
};

}  // namespace accel::comm::ucx
