// SPDX-License-Identifier: Apache-2.0
// c10d backend for tensors of devices that have no collectives of their own: they are staged through host memory and a
// backend for CPU tensors.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceType.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/backend/coalesced_call.hpp"
#include "comm/backend/coalescing.hpp"
#include "comm/backend/collective_backend.hpp"
#include "comm/backend/device_waiter.hpp"
#include "comm/staged/staging_pipeline.hpp"

namespace accel::comm {

class StagedBackend final : public CollectiveBackend, public Coalescing {
 public:
  // `host` is for this backend alone, and must be a CollectiveBackend.
  StagedBackend(c10::DeviceType device, const c10::intrusive_ptr<c10d::Backend>& host,
                std::chrono::milliseconds timeout);
  ~StagedBackend() override;

  const c10::intrusive_ptr<CollectiveBackend>& host() const { return host_; }
  const std::string getBackendName() const override { return "staged"; }
  uint64_t getSequenceNumberForGroup() override { return sequence_; }
  void abort() override;
  void shutdown() override;

  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override { coalesced_.begin(); }
  WorkPointer endCoalescing() override;
  void cancel_coalescing() noexcept override { coalesced_.cancel(); }

  WorkPointer start(CollectiveCall&& call) override;
  void fail(CollectiveFailure failure, const std::string& reason) override { host_->fail(failure, reason); }

 private:
  // Collectives that are posted together.
  struct Batch {
    std::vector<StagedOperation> operations;
    Tensors outputs;
    bool is_async = false;
  };

  // The elements of a tensor of the device in one dimension.
  at::Tensor flat(const at::Tensor& tensor, const char* operation) const;
  // The tensors of one collective that are copied: one, or the blocks of all ranks.
  Tensors blocks_of(const CollectiveCall& call, const Tensors& tensors, size_t index, bool has_all_ranks) const;
  void require_equal_blocks(const StagedOperation& operation) const;
  StagedOperation make_operation(const CollectiveCall& call, size_t index) const;
  WorkPointer submit(Batch batch);
  WorkPointer start_message(CollectiveCall call);

  const c10::DeviceType device_;
  const c10::intrusive_ptr<CollectiveBackend> host_;
  // Shared with open calls.
  const std::shared_ptr<StagingPipeline> pipeline_;
  const std::shared_ptr<std::mutex> turn_ = std::make_shared<std::mutex>();  // of the call that uses the pipeline
  std::shared_ptr<accel::comm::Work> latest_;                                // of the waiter
  DeviceWaiter waiter_;                                                      // runs asynchronous calls
  std::atomic<uint64_t> sequence_{0};  // of the host's backend, when the open calls have ended
  CoalescedCall<Batch> coalesced_;
};

}  // namespace accel::comm
