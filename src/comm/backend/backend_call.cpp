// SPDX-License-Identifier: Apache-2.0
#include "comm/backend/backend_call.hpp"

#include <ATen/core/Tensor.h>

#include <exception>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/torch_compat.hpp"
#include "comm/backend/coalescing.hpp"
#include "comm/backend/collective_backend.hpp"
#include "comm/backend/job_group.hpp"
#include "comm/backend/queued_work.hpp"
#include "comm/reduce_op.hpp"
#include "tensor/lack_of_memory.hpp"

namespace accel::comm {
namespace {

using Kind = Collective::Kind;
using Tensors = std::vector<at::Tensor>;

template <typename Options>
Options options_of(const BackendCallOptions& given) {
  Options options;
  options.timeout = given.timeout;
  options.asyncOp = given.async;
  return options;
}

// Messages of c10d are asynchronous, whoever waits for them.
c10::intrusive_ptr<c10d::Work> post_message(c10d::Backend& backend, const Collective& message, bool is_async) {
  const bool sends = message.kind == Kind::kSend;
  Tensors tensors{message.tensor()};
  require(!message.may_be_shorter || dynamic_cast<JobGroup*>(&backend) != nullptr, Status::kInternal, "the backend ",
          backend.getBackendName(), " receives no message that is shorter than its tensor");
  const bool as_c10d = is_async && !message.may_be_shorter;
  if (auto* const own = as_c10d ? nullptr : dynamic_cast<CollectiveBackend*>(&backend)) {
    CollectiveCall call(message.kind, sends ? c10d::OpType::SEND : c10d::OpType::RECV);
    (sends ? call.inputs : call.outputs) = std::move(tensors);
    call.rank = message.rank;
    call.tag = message.tag;
    call.is_async = is_async;
    call.may_be_shorter = message.may_be_shorter;
    return own->start(std::move(call));
  }
  return sends ? backend.send(tensors, message.rank, message.tag) : backend.recv(tensors, message.rank, message.tag);
}

// Null as the backend gives it.
c10::intrusive_ptr<c10d::Work> post(c10d::Backend& backend, const Collective& collective,
                                    const BackendCallOptions& given) {
  const int size = backend.getSize();
  switch (collective.kind) {
    case Kind::kAllReduce: {
      auto options = options_of<c10d::AllreduceOptions>(given);
      options.reduceOp = reduce_op(collective.reduction, size, collective.scale);
      Tensors tensors{collective.output};
      return backend.allreduce(tensors, options);
    }
    case Kind::kBroadcast: {
      auto options = options_of<c10d::BroadcastOptions>(given);
      options.rootRank = collective.rank;
      Tensors tensors{collective.output};
      return backend.broadcast(tensors, options);
    }
    case Kind::kAllGather: {
      const auto options = options_of<c10d::AllgatherOptions>(given);
      at::Tensor input = collective.input, output = collective.output;
      if (!output.defined()) {  // in place, where there is a backend of ours
        CollectiveCall call(Kind::kAllGather, c10d::OpType::_ALLGATHER_BASE, options);
        call.inputs = {std::move(input)};
        return dynamic_cast<CollectiveBackend&>(backend).start(std::move(call));
      }
#if ACCEL_TORCH_HAS_SINGLE_COLLECTIVES
      return backend.all_gather_single(output, input, options);
#else
      return backend._allgather_base(output, input, options);
#endif
    }
    case Kind::kReduceScatter: {
      auto options = options_of<c10d::ReduceScatterOptions>(given);
      options.reduceOp = reduce_op(collective.reduction, size);
      at::Tensor input = collective.input, output = collective.output;
#if ACCEL_TORCH_HAS_SINGLE_COLLECTIVES
      return backend.reduce_scatter_single(output, input, options);
#else
      return backend._reduce_scatter_base(output, input, options);
#endif
    }
    case Kind::kAllToAll: {
      const auto options = options_of<c10d::AllToAllOptions>(given);
      at::Tensor source = collective.input.view({size, -1}), goal = collective.output.view({size, -1});
      std::vector<int64_t> even;
#if ACCEL_TORCH_HAS_SINGLE_COLLECTIVES
      return backend.all_to_all_single(goal, source, even, even, options);
#else
      return backend.alltoall_base(goal, source, even, even, options);
#endif
    }
    case Kind::kScatter: {
      auto options = options_of<c10d::ScatterOptions>(given);
      options.rootRank = collective.rank;
      Tensors outputs{collective.output};
      std::vector<Tensors> inputs;
      if (backend.getRank() == collective.rank) {
        inputs.emplace_back();
        for (const at::Tensor& part : collective.input.view({size, -1}).unbind(0))
          inputs[0].push_back(part.view(collective.output.sizes()));
      }
      return backend.scatter(outputs, inputs, options);
    }
    case Kind::kSend:
    case Kind::kReceive:
      return post_message(backend, collective, given.async);
    case Kind::kBarrier:
      return backend.barrier(options_of<c10d::BarrierOptions>(given));
    case Kind::kReduce:  // which Collective::check() turns away
    case Kind::kGather:
      break;
  }
  fail(Status::kInternal, collective.name(), " came to a backend");
}

// Behind an exception between startCoalescing() and endCoalescing().
void leave_coalescing(c10d::Backend& backend, const std::exception& error) {
  auto* const coalescing = dynamic_cast<Coalescing*>(&backend);
  if (coalescing != nullptr && tensor::means_no_memory(error))
    coalescing->cancel_coalescing();
  else
    backend.endCoalescing();  // so that the other ranks learn of it
}

c10::intrusive_ptr<c10d::Work> post_together(c10d::Backend& backend, c10::ArrayRef<const Collective*> collectives,
                                             const BackendCallOptions& options) {
  backend.startCoalescing();
  try {
    for (const Collective* collective : collectives) post(backend, *collective, options);
  } catch (const std::exception& error) {
    leave_coalescing(backend, error);
    throw;
  }
  return backend.endCoalescing();
}

}  // namespace

c10::intrusive_ptr<c10d::Work> call_backend(c10d::Backend& backend, c10::ArrayRef<const Collective*> collectives,
                                            const BackendCallOptions& options) {
  auto work =
      collectives.size() == 1 ? post(backend, *collectives[0], options) : post_together(backend, collectives, options);
  if (work) return work;
  Tensors used;
  for (const Collective* collective : collectives)
    if (collective->tensor().defined()) used.push_back(collective->tensor());
  return work_or_queued({}, used);
}

void run_alone(const Collective& collective) {
  if (collective.input.defined())
    collective.output.view({-1}).copy_(collective.input.view({-1}));
  else if (collective.scale != 1.0)
    collective.output.mul_(collective.scale);
}

}  // namespace accel::comm
