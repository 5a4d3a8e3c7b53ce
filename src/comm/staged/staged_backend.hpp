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
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "base/torch_compat.hpp"
#include "comm/backend/device_waiter.hpp"
#include "comm/coalescing.hpp"
#include "comm/staged/staging_pipeline.hpp"

namespace accel::comm {

class StagedBackend final : public c10d::Backend, public Coalescing {
 public:
  using Tensors = std::vector<at::Tensor>;
  using Work = c10d::Work;

  // `host` is for this backend alone, and must implement ChunkedCalls.
  StagedBackend(c10::DeviceType device, c10::intrusive_ptr<c10d::Backend> host, std::chrono::milliseconds timeout);
  ~StagedBackend() override;

  const c10::intrusive_ptr<c10d::Backend>& host() const { return host_; }
  const std::string getBackendName() const override { return "staged"; }
  uint64_t getSequenceNumberForGroup() override { return sequence_; }
  void abort() override;
  void shutdown() override;

  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override;
  c10::intrusive_ptr<Work> endCoalescing() override;
  void cancel_coalescing() noexcept override;

  c10::intrusive_ptr<Work> allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  c10::intrusive_ptr<Work> broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
#if ACCEL_TORCH_HAS_SINGLE_COLLECTIVES
  c10::intrusive_ptr<Work> all_gather_single(at::Tensor& output, at::Tensor& input,
                                             const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<Work> reduce_scatter_single(at::Tensor& output, at::Tensor& input,
                                                 const c10d::ReduceScatterOptions& options) override;
  c10::intrusive_ptr<Work> all_to_all_single(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                                             std::vector<int64_t>& input_splits,
                                             const c10d::AllToAllOptions& options) override;
#else
  c10::intrusive_ptr<Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                           const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<Work> _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                const c10d::ReduceScatterOptions& options) override;
  c10::intrusive_ptr<Work> alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                                         std::vector<int64_t>& input_splits,
                                         const c10d::AllToAllOptions& options) override;
#endif
  c10::intrusive_ptr<Work> scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                   const c10d::ScatterOptions& options) override;
  c10::intrusive_ptr<Work> barrier(const c10d::BarrierOptions& options) override;
  c10::intrusive_ptr<Work> send(Tensors& tensors, int destination, int tag) override;
  c10::intrusive_ptr<Work> recv(Tensors& tensors, int source, int tag) override;

 private:
  struct Call {
    std::vector<StagedOperation> operations;
    Tensors outputs;
    bool async = false;
  };

  // The elements of a tensor of the device in one dimension.
  at::Tensor flat(const at::Tensor& tensor, const char* operation) const;
  // The elements in equal parts for the ranks.
  Tensors parts_of(const at::Tensor& tensor, const char* operation) const;
  c10::intrusive_ptr<Work> submit(StagedOperation operation, Tensors outputs, bool async);
  c10::intrusive_ptr<Work> submit(Call call);

  const c10::DeviceType device_;
  const c10::intrusive_ptr<c10d::Backend> host_;
  ChunkedCalls& chunks_;
  // Shared with open calls.
  const std::shared_ptr<StagingPipeline> pipeline_;
  const std::shared_ptr<std::mutex> turn_ = std::make_shared<std::mutex>();  // of the call that uses the pipeline
  std::shared_ptr<accel::comm::Work> latest_;                                // of the waiter
  DeviceWaiter waiter_;                                                      // runs asynchronous calls
  std::atomic<uint64_t> sequence_{0};  // of the host's backend, when the open calls have ended
  std::unique_ptr<Call> coalesced_;    // while they are collected, by one thread
  std::atomic<std::thread::id> coalescing_thread_{};
};

}  // namespace accel::comm
