// SPDX-License-Identifier: Apache-2.0
// Base class of backends: turns each function of c10d's interface into one call of start(), whatever its kind. Header
// only, because backends are plugins.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/torch_compat.hpp"
#include "comm/backend/collective_call.hpp"
#include "comm/collective_error.hpp"

namespace accel::comm {

class CollectiveBackend : public c10d::Backend {
 public:
  using Tensors = std::vector<at::Tensor>;
  using Work = c10d::Work;
  using WorkPointer = c10::intrusive_ptr<Work>;
  using Splits = std::vector<int64_t>;

  // Null for a part of a coalesced call.
  virtual WorkPointer start(CollectiveCall&& call) = 0;
  // Fails open and later calls, here and on the other ranks.
  virtual void fail(CollectiveFailure failure, const std::string& reason) = 0;

  WorkPointer broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    CollectiveCall call(CollectiveKind::kBroadcast, c10d::OpType::BROADCAST, options);
    call.outputs = only_tensor(call.kind, tensors);
    call.rank = options.rootRank;
    return start(std::move(call));
  }
  WorkPointer allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return all_reduce(only_tensor(CollectiveKind::kAllReduce, tensors), options, c10d::OpType::ALLREDUCE);
  }
  WorkPointer allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override {
    return all_reduce(tensors, options, c10d::OpType::ALLREDUCE_COALESCED);
  }
  WorkPointer reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    CollectiveCall call(CollectiveKind::kReduce, c10d::OpType::REDUCE, options);
    call.outputs = only_tensor(call.kind, tensors);
    call.reduction = options.reduceOp;
    call.rank = options.rootRank;
    return start(std::move(call));
  }
  WorkPointer allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                        const c10d::AllgatherOptions& options) override {
    CollectiveCall call(CollectiveKind::kAllGather, c10d::OpType::ALLGATHER, options);
    return start_with(call, only_tensor(call.kind, inputs), only_list(call.kind, outputs), /*are_apart=*/true);
  }
  WorkPointer allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions& options) override {
    CollectiveCall call(CollectiveKind::kAllGather, c10d::OpType::COALESCED, options);
    return start_with(call, inputs, outputs);
  }
  WorkPointer gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) override {
    CollectiveCall call(CollectiveKind::kGather, c10d::OpType::GATHER, options);
    call.rank = options.rootRank;
    return start_with(call, only_tensor(call.kind, inputs), list_at_root(call, outputs, "outputs"), /*are_apart=*/true);
  }
  WorkPointer scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) override {
    CollectiveCall call(CollectiveKind::kScatter, c10d::OpType::SCATTER, options);
    call.rank = options.rootRank;
    return start_with(call, list_at_root(call, inputs, "inputs"), only_tensor(call.kind, outputs), /*are_apart=*/true);
  }
  WorkPointer reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                             const c10d::ReduceScatterOptions& options) override {
    CollectiveCall call(CollectiveKind::kReduceScatter, c10d::OpType::REDUCE_SCATTER, options);
    call.reduction = options.reduceOp;
    return start_with(call, only_list(call.kind, inputs), only_tensor(call.kind, outputs), /*are_apart=*/true);
  }
  WorkPointer reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::ReduceScatterOptions& options) override {
    CollectiveCall call(CollectiveKind::kReduceScatter, c10d::OpType::ACCEL_TORCH_REDUCE_SCATTER_COALESCED, options);
    call.reduction = options.reduceOp;
    return start_with(call, inputs, outputs);
  }
  WorkPointer alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override {
    CollectiveCall call(CollectiveKind::kAllToAll, c10d::OpType::ALLTOALL, options);
    const auto size = static_cast<size_t>(getSize());
    check_call(inputs.size() == size && outputs.size() == size, call.kind, "got ", inputs.size(), " inputs and ",
               outputs.size(), " outputs, expected one of each for each of ", size, " ranks");
    return start_with(call, inputs, outputs, /*are_apart=*/true);
  }

  WorkPointer _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override {
    CollectiveCall call(CollectiveKind::kAllGather, c10d::OpType::_ALLGATHER_BASE, options);
    return start_with(call, {input}, {output});
  }
  WorkPointer _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                   const c10d::ReduceScatterOptions& options) override {
    CollectiveCall call(CollectiveKind::kReduceScatter, c10d::OpType::_REDUCE_SCATTER_BASE, options);
    call.reduction = options.reduceOp;
    return start_with(call, {input}, {output});
  }
  WorkPointer alltoall_base(at::Tensor& output, at::Tensor& input, Splits& output_splits, Splits& input_splits,
                            const c10d::AllToAllOptions& options) override {
    CollectiveCall call(CollectiveKind::kAllToAll, c10d::OpType::ALLTOALL_BASE, options);
    call.input_splits = input_splits;
    call.output_splits = output_splits;
    return start_with(call, {input}, {output});
  }
#if ACCEL_TORCH_HAS_SINGLE_COLLECTIVES
  WorkPointer all_gather_single(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override {
    return _allgather_base(output, input, options);
  }
  WorkPointer reduce_scatter_single(at::Tensor& output, at::Tensor& input,
                                    const c10d::ReduceScatterOptions& options) override {
    return _reduce_scatter_base(output, input, options);
  }
  WorkPointer all_to_all_single(at::Tensor& output, at::Tensor& input, Splits& output_splits, Splits& input_splits,
                                const c10d::AllToAllOptions& options) override {
    return alltoall_base(output, input, output_splits, input_splits, options);
  }
#endif

  WorkPointer barrier(const c10d::BarrierOptions& options) override {
    return start({CollectiveKind::kBarrier, c10d::OpType::BARRIER, options});
  }

  WorkPointer send(Tensors& tensors, int destination, int tag) override {
    return start_message(CollectiveKind::kSend, c10d::OpType::SEND, tensors, destination, tag);
  }
  WorkPointer recv(Tensors& tensors, int source, int tag) override {
    return start_message(CollectiveKind::kReceive, c10d::OpType::RECV, tensors, source, tag);
  }
  WorkPointer recvAnysource(Tensors& tensors, int tag) override {
    return start_message(CollectiveKind::kReceive, c10d::OpType::RECVANYSOURCE, tensors, CollectiveCall::kNoRank, tag);
  }

 protected:
  using Backend::Backend;

 private:
  template <typename Options>
  WorkPointer all_reduce(Tensors tensors, const Options& options, c10d::OpType type) {
    CollectiveCall call(CollectiveKind::kAllReduce, type, options);
    call.outputs = std::move(tensors);
    call.reduction = options.reduceOp;
    return start(std::move(call));
  }
  // Each pair of tensors is a collective, unless the tensors are the blocks of one.
  WorkPointer start_with(CollectiveCall& call, Tensors inputs, Tensors outputs, bool are_apart = false) {
    check_call(are_apart || inputs.size() == outputs.size(), call.kind, "got ", inputs.size(), " inputs and ",
               outputs.size(), " outputs, expected as many");
    call.inputs = std::move(inputs);
    call.outputs = std::move(outputs);
    call.are_apart = are_apart;
    return start(std::move(call));
  }
  WorkPointer start_message(CollectiveKind kind, c10d::OpType type, const Tensors& tensors, int64_t peer, int tag) {
    CollectiveCall call(kind, type);
    (call.kind == CollectiveKind::kSend ? call.inputs : call.outputs) = tensors;
    call.rank = peer;
    call.tag = tag;
    return start(std::move(call));
  }

  template <typename... Parts>
  void check_call(bool condition, CollectiveKind kind, const Parts&... parts) const {
    if (!condition)
      throw CollectiveError(CollectiveFailure::kInvalid, getRank(),
                            text(traits_of(kind).name, " on rank ", getRank(), ": ", parts...));
  }
  // A list has the tensors of the devices of a rank, which has one.
  Tensors only_tensor(CollectiveKind kind, const Tensors& tensors) const {
    check_call(tensors.size() == 1, kind, "got ", tensors.size(), " tensors, expected one");
    return tensors;
  }
  Tensors only_list(CollectiveKind kind, const std::vector<Tensors>& lists) const {
    check_call(lists.size() == 1, kind, "got ", lists.size(), " lists of tensors, expected one");
    check_call(static_cast<int>(lists[0].size()) == getSize(), kind, "got ", lists[0].size(),
               " tensors, expected one for each of ", getSize(), " ranks");
    return lists[0];
  }
  Tensors list_at_root(const CollectiveCall& call, const std::vector<Tensors>& lists, const char* what) const {
    check_call(call.rank >= 0 && call.rank < getSize(), call.kind, "root ", call.rank, " is not a rank; expected 0 to ",
               getSize() - 1);
    if (getRank() == call.rank) return only_list(call.kind, lists);
    check_call(lists.empty() || lists[0].empty(), call.kind, "a rank that is not the root got ", what, "; pass none");
    return {};
  }
};

}  // namespace accel::comm
