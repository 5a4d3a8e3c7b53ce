// SPDX-License-Identifier: Apache-2.0
// Progress of one group: submits its collectives, sends and receives, progresses them on the progress engine, and fails
// them when the group fails.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "comm/ucx/host/host_segment.hpp"
#include "comm/ucx/host/shared_memory.hpp"
#include "comm/ucx/progress/failure_detector.hpp"
#include "comm/ucx/progress/group_failure.hpp"
#include "comm/ucx/progress/message_queue.hpp"
#include "comm/ucx/progress/posted_calls.hpp"
#include "comm/ucx/progress/progress_engine.hpp"
#include "comm/ucx/progress/progressed_group.hpp"
#include "comm/ucx/progress/task_queue.hpp"
#include "comm/ucx/progress/task_runner.hpp"
#include "comm/ucx/transport/peers.hpp"
#include "comm/ucx/transport/transport.hpp"

namespace accel::comm::ucx {

class GroupProgress final : public ProgressedGroup, public WorkProgress {
 public:
  GroupProgress(ProgressEngine::Membership membership, std::unique_ptr<Transport> transport, Peers peers,
                std::unique_ptr<HostSegment> segment);
  ~GroupProgress() override;

  uint64_t sequence() const { return tasks_.sequence(); }
  const std::shared_ptr<ProgressEngine>& engine() const { return engine_; }
  // Memory for in-place all-reduces; null if the ranks cannot map each other's.
  SharedMemory* shared_memory() { return runner_.shared_memory(); }

  // Runs the task before it returns if the engine is free and the task is not async; otherwise queues it. Both throw
  // kAborted once the group has failed.
  void submit(PostedTask&& task);
  void submit(PointToPoint&& call);

  void progress_until_complete(UcxWork& work) override;

  // Both fail all open calls, here and (through the store) on the peers.
  void fail(CollectiveFailure failure, const std::string& reason);
  void abort(const std::string& reason) override { fail(CollectiveFailure::kAborted, reason); }
  // Leaves the group and its engine. Aborts open calls.
  void shutdown();

  // For the engine.
  OpenWork open_work() const override;
  bool progress() noexcept override;
  bool is_busy() const override { return runner_.is_running() || !messages_.posted().empty(); }
  GroupWait current_wait() const override;
  void check_open_calls() noexcept override;
  FailureDetector& detector() override { return detector_; }

 private:
  bool leave();
  void end_failed_calls();
  void fail_open_calls() noexcept;

  const std::shared_ptr<ProgressEngine> engine_;
  ProgressEngine::Membership membership_;
  const std::unique_ptr<Transport> transport_;
  Peers peers_;
  GroupFailure failure_;
  FailureDetector detector_;
  MessageQueue messages_;
  TaskRunner runner_;
  TaskQueue tasks_;
  bool stop_ = false;  // under the engine's mutex
};

}  // namespace accel::comm::ucx
