// The c10d backend: turns calls with tensors into collectives of blocks and submits them to the group's progress.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "comm/chunked_calls.hpp"
#include "comm/coalescing.hpp"
#include "comm/ucx/progress/group_progress.hpp"

namespace accel::comm::ucx {

class Call;

class UcxBackend final : public c10d::Backend, public ChunkedCalls, public Coalescing {
 public:
  using Tensors = std::vector<at::Tensor>;
  using Work = c10d::Work;

  UcxBackend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, std::chrono::milliseconds timeout,
             const std::string& group, const char* (*current_call)(), const UcxBackend* parent);
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
  void startCoalescing() override;
  c10::intrusive_ptr<Work> endCoalescing() override;
  void cancel_coalescing() noexcept override;

  void set_whole_call(const WholeCall* whole) override { whole_call_ = whole; }
  void fail(CollectiveFailure failure, const std::string& reason) override { group_->fail(failure, reason); }

  // For gradient buckets, which are reduced in place.
  bool supportsTensorAlloc(c10::DeviceIndex) override { return group_->shares_memory(); }
  at::Tensor allocateTensor(long numel, at::TensorOptions options) override { return group_->allocate(numel, options); }

  c10::intrusive_ptr<Work> broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  c10::intrusive_ptr<Work> allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  c10::intrusive_ptr<Work> allreduce_coalesced(Tensors& tensors,
                                               const c10d::AllreduceCoalescedOptions& options) override;
  c10::intrusive_ptr<Work> reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  c10::intrusive_ptr<Work> allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                     const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                           const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<Work> allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                           const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<Work> gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                  const c10d::GatherOptions& options) override;
  c10::intrusive_ptr<Work> scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                   const c10d::ScatterOptions& options) override;
  c10::intrusive_ptr<Work> reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                          const c10d::ReduceScatterOptions& options) override;
  c10::intrusive_ptr<Work> _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                const c10d::ReduceScatterOptions& options) override;
  c10::intrusive_ptr<Work> reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                           const c10d::ReduceScatterOptions& options) override;
  c10::intrusive_ptr<Work> alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  c10::intrusive_ptr<Work> alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                                         std::vector<int64_t>& input_splits,
                                         const c10d::AllToAllOptions& options) override;
  c10::intrusive_ptr<Work> barrier(const c10d::BarrierOptions& options) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

  c10::intrusive_ptr<Work> send(Tensors& tensors, int destination, int tag) override;
  c10::intrusive_ptr<Work> recv(Tensors& tensors, int source, int tag) override;
  c10::intrusive_ptr<Work> recvAnysource(Tensors& tensors, int tag) override;

 private:
  Call begin_call(CollectiveKind kind) const;
  Task* coalesced() const;  // null where calls are posted by themselves
  c10::intrusive_ptr<Work> reduce_all(Call& call, Tensors& tensors, const c10d::AllreduceOptions& options,
                                      c10d::OpType type);
  c10::intrusive_ptr<Work> gather_into(Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options,
                                       c10d::OpType type);
  c10::intrusive_ptr<Work> reduce_into(Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options,
                                       c10d::OpType type);
  c10::intrusive_ptr<Work> point_to_point(Tensors& tensors, int peer, int tag, bool receives);
  void receive_list(Call& call, const Tensors& outputs, const at::Tensor& input) const;
  void send_list(Call& call, const Tensors& inputs, const at::Tensor& output) const;
  std::chrono::milliseconds deadline(std::chrono::milliseconds timeout) const;

  std::chrono::milliseconds timeout_;
  std::shared_ptr<GroupProgress> group_;
  std::unique_ptr<Task> coalesced_;  // while they are collected, by one thread
  std::atomic<std::thread::id> coalescing_thread_{};
  const WholeCall* whole_call_ = nullptr;  // see ChunkedCalls
};

}  // namespace accel::comm::ucx
