// SPDX-License-Identifier: Apache-2.0
// The c10d backend: turns calls with tensors into collectives of blocks and submits them to the group's progress.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "comm/backend/coalesced_call.hpp"
#include "comm/backend/coalescing.hpp"
#include "comm/backend/collective_backend.hpp"
#include "comm/backend/job_group.hpp"
#include "comm/ucx/progress/group_progress.hpp"

namespace accel::comm::ucx {

class UcxBackend final : public CollectiveBackend, public Coalescing, public JobGroup {
 public:
  // `current_call` returns the function of the C API that the thread is in, and may be null.
  UcxBackend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, std::chrono::milliseconds timeout,
             const std::string& group, const char* (*current_call)(), const UcxBackend* parent, bool stays_on_host);
  ~UcxBackend() override;

  const std::string getBackendName() const override { return "ucx"; }
  c10::intrusive_ptr<Options> getBackendOptions() override;
  void setTimeout(std::chrono::milliseconds timeout) override { timeout_ = timeout; }
  void abort() override;
  void shutdown() override;
  void setSequenceNumberForGroup() override {}  // every rank counts from 0
  uint64_t getSequenceNumberForGroup() override { return group_->sequence(); }

  // Collectives between these two calls are coalesced into one.
  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override { coalesced_.begin(c10d::OpType::COALESCED); }
  WorkPointer endCoalescing() override;
  void cancel_coalescing() noexcept override { coalesced_.cancel(); }

  WorkPointer start(CollectiveCall&& call) override;
  void fail(CollectiveFailure failure, const std::string& reason) override { group_->fail(failure, reason); }

  // For gradient buckets, which are reduced in place.
  bool supportsTensorAlloc(c10::DeviceIndex) override { return shares_memory(); }
  bool shares_memory() const override { return group_->shared_memory() != nullptr; }
  int job_rank(int rank) const override { return group_->detector().peers().job_ranks()[rank]; }
  at::Tensor allocateTensor(long numel, at::TensorOptions options) override;

  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

 private:
  WorkPointer submit(PostedTask&& posted);
  WorkPointer start_message(const CollectiveCall& call);
  bool has_ended() const;  // the group
  std::chrono::milliseconds deadline(std::chrono::milliseconds timeout) const;

  std::chrono::milliseconds timeout_;
  const char* (*const current_call_)();
  std::shared_ptr<GroupProgress> group_;
  CoalescedCall<Task> coalesced_;
};

}  // namespace accel::comm::ucx
