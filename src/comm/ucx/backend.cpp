#include "comm/ucx/backend.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>

#include <memory>
#include <numeric>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "base/torch_compat.hpp"
#include "comm/collective_error.hpp"
#include "comm/ucx/progress/call.hpp"
#include "os/background_thread.hpp"

namespace accel::comm::ucx {
namespace {

using c10d::OpType;

// Splits of dimension 0; an empty list means equal parts.
std::vector<int64_t> split_sizes(const Call& call, const at::Tensor& tensor, const std::vector<int64_t>& splits,
                                 const char* what) {
  const int64_t length = tensor.dim() ? tensor.size(0) : 0;
  if (splits.empty()) {
    call.require(length % call.size() == 0, what, " has ", length, " rows, which ", call.size(),
                 " ranks cannot share equally; pass splits");
    return std::vector<int64_t>(call.size(), length / call.size());
  }
  call.require(static_cast<int>(splits.size()) == call.size(), what, " has ", splits.size(),
               " splits, expected one for each of ", call.size(), " ranks");
  for (const int64_t split : splits)
    call.require(split >= 0, what, " has a split of ", split, "; splits are 0 or more");
  const int64_t sum = std::accumulate(splits.begin(), splits.end(), int64_t{0});
  call.require(sum == length, what, " has ", length, " rows and its splits add up to ", sum, "; they must be equal");
  return splits;
}

}  // namespace

UcxBackend::UcxBackend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                       std::chrono::milliseconds timeout, const std::string& group, const char* (*current_call)(),
                       const UcxBackend* parent)
    : Backend(rank, size), timeout_(timeout) {
  const Deadline deadline(timeout);
  ProgressEngine::Membership engine = parent != nullptr ? parent->group_->engine()->join() : nullptr;
  if (engine == nullptr) engine = ProgressEngine::start(rank, size);
  const uint32_t number = engine->new_group_number();
  auto transport = std::make_unique<Transport>(engine->worker(), number, rank, size);
  Peers peers(store, group, rank, size, Worker::version(), engine->worker().address(), number, deadline);
  engine->run([&] {
    for (int peer = 0; peer < size; peer++)
      if (peer != rank) transport->connect(peer, peers.address(peer), peers.number(peer), peers.same_host(peer));
  });
  std::unique_ptr<HostSegment> segment;
  const int neighbours = peers.hosts().neighbours().size();
  if (neighbours > 1 && neighbours <= HostSegment::kMaxRanks && peers.reaches_neighbours())
    segment = std::make_unique<HostSegment>(peers.regions(), peers.hosts().neighbours().position, rank);
  if (!peers.wait_until_all_connected(segment != nullptr || neighbours == 1, deadline)) segment.reset();
  group_ = std::make_shared<GroupProgress>(std::move(engine), number, std::move(transport), std::move(peers),
                                           std::move(segment), current_call);
  group_->engine()->add(group_);
  init();
}

UcxBackend::~UcxBackend() {
  if (group_) group_->shutdown();
}

c10::intrusive_ptr<c10d::Backend::Options> UcxBackend::getBackendOptions() {
  return c10::make_intrusive<Options>(getBackendName(), timeout_);
}

void UcxBackend::startCoalescing() {
  coalesced_ = std::make_unique<Task>();
  coalescing_thread_ = std::this_thread::get_id();
}

Call UcxBackend::begin_call(CollectiveKind kind) const { return Call(group_, coalesced(), kind, whole_call_); }

Task* UcxBackend::coalesced() const {
  return coalescing_thread_.load() == std::this_thread::get_id() ? coalesced_.get() : nullptr;
}

c10::intrusive_ptr<c10d::Work> UcxBackend::endCoalescing() {
  const auto task = std::move(coalesced_);
  coalescing_thread_ = std::thread::id();
  if (task == nullptr || task->parts.empty()) return {};
  return submit_task(group_, std::move(*task));
}

void UcxBackend::cancel_coalescing() noexcept {
  coalesced_.reset();
  coalescing_thread_ = std::thread::id();
}

void UcxBackend::abort() { group_->abort(text("rank ", getRank(), " aborted the group")); }
void UcxBackend::shutdown() { group_->shutdown(); }

c10::intrusive_ptr<c10d::Work> UcxBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  Call call = begin_call(CollectiveKind::kBroadcast);
  call.require(tensors.size() == 1, "got ", tensors.size(), " tensors, expected one");
  const int root = static_cast<int>(options.rootRank);
  call.begin(tensors[0], options.rootRank);
  if (getRank() != root)
    call.receive_from(root, call.write(tensors[0]));
  else
    call.send_to_all(call.read(tensors[0]));
  return call.submit(OpType::BROADCAST, tensors, options.asyncOp, deadline(options.timeout));
}

c10::intrusive_ptr<c10d::Work> UcxBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  Call call = begin_call(CollectiveKind::kAllReduce);
  call.require(tensors.size() == 1, "got ", tensors.size(), " tensors, expected one");
  return reduce_all(call, tensors, options, OpType::ALLREDUCE);
}

c10::intrusive_ptr<c10d::Work> UcxBackend::allreduce_coalesced(Tensors& tensors,
                                                               const c10d::AllreduceCoalescedOptions& options) {
  Call call = begin_call(CollectiveKind::kAllReduce);
  return reduce_all(call, tensors, options, OpType::ALLREDUCE_COALESCED);
}

c10::intrusive_ptr<c10d::Work> UcxBackend::reduce_all(Call& call, Tensors& tensors,
                                                      const c10d::AllreduceOptions& options, c10d::OpType type) {
  for (const auto& tensor : tensors) {
    call.begin(tensor);
    call.combine(tensor, options.reduceOp);
    call.combine_whole(call.update(tensor));
  }
  return call.submit(type, tensors, options.asyncOp, deadline(options.timeout));
}

c10::intrusive_ptr<c10d::Work> UcxBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  Call call = begin_call(CollectiveKind::kReduce);
  call.require(tensors.size() == 1, "got ", tensors.size(), " tensors, expected one");
  call.begin(tensors[0], options.rootRank);
  call.combine(tensors[0], options.reduceOp);
  if (getRank() == options.rootRank)
    call.combine_whole(call.update(tensors[0]));
  else
    call.send_to(0, call.read(tensors[0]));
  return call.submit(OpType::REDUCE, tensors, options.asyncOp, deadline(options.timeout));
}

c10::intrusive_ptr<c10d::Work> UcxBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                                     const c10d::AllgatherOptions& options) {
  Call call = begin_call(CollectiveKind::kAllGather);
  call.require(inputs.size() == 1 && outputs.size() == 1, "got ", inputs.size(), " inputs and ", outputs.size(),
               " lists of outputs, expected one of each");
  call.begin(inputs[0]);
  call.send_to_all(call.read(inputs[0]));
  receive_list(call, outputs[0], inputs[0]);
  return call.submit(OpType::ALLGATHER, outputs[0], options.asyncOp, deadline(options.timeout));
}

c10::intrusive_ptr<c10d::Work> UcxBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                           const c10d::AllgatherOptions& options) {
  Tensors outputs{output}, inputs{input};
  return gather_into(outputs, inputs, options, OpType::_ALLGATHER_BASE);
}

c10::intrusive_ptr<c10d::Work> UcxBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                           const c10d::AllgatherOptions& options) {
  return gather_into(outputs, inputs, options, OpType::COALESCED);
}

c10::intrusive_ptr<c10d::Work> UcxBackend::gather_into(Tensors& outputs, Tensors& inputs,
                                                       const c10d::AllgatherOptions& options, c10d::OpType type) {
  Call call = begin_call(CollectiveKind::kAllGather);
  call.require(inputs.size() == outputs.size(), "got ", inputs.size(), " inputs and ", outputs.size(),
               " outputs, expected as many");
  for (size_t i = 0; i < inputs.size(); i++) {
    call.begin(inputs[i]);
    call.require_times(outputs[i], inputs[i], "the output");
    call.send_to_all(call.read(inputs[i]));
    call.receive_parts(call.write(outputs[i]));
  }
  return call.submit(type, outputs, options.asyncOp, deadline(options.timeout));
}

c10::intrusive_ptr<c10d::Work> UcxBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                                  const c10d::GatherOptions& options) {
  Call call = begin_call(CollectiveKind::kGather);
  call.require(inputs.size() == 1, "got ", inputs.size(), " inputs, expected one");
  call.begin(inputs[0], options.rootRank);
  call.send_to(static_cast<int>(options.rootRank), call.read(inputs[0]));
  Tensors results;
  if (getRank() == options.rootRank) {
    call.require(outputs.size() == 1, "the root got ", outputs.size(), " lists of outputs, expected one");
    receive_list(call, outputs[0], inputs[0]);
    results = outputs[0];
  } else {
    call.require(outputs.empty() || outputs[0].empty(), "a rank that is not the root got outputs; pass none");
  }
  return call.submit(OpType::GATHER, std::move(results), options.asyncOp, deadline(options.timeout));
}

c10::intrusive_ptr<c10d::Work> UcxBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                                   const c10d::ScatterOptions& options) {
  Call call = begin_call(CollectiveKind::kScatter);
  call.require(outputs.size() == 1, "got ", outputs.size(), " outputs, expected one");
  call.begin(outputs[0], options.rootRank);
  if (getRank() == options.rootRank) {
    call.require(inputs.size() == 1, "the root got ", inputs.size(), " lists of inputs, expected one");
    send_list(call, inputs[0], outputs[0]);
  } else {
    call.require(inputs.empty() || inputs[0].empty(), "a rank that is not the root got inputs; pass none");
  }
  call.receive_from(static_cast<int>(options.rootRank), call.write(outputs[0]));
  return call.submit(OpType::SCATTER, outputs, options.asyncOp, deadline(options.timeout));
}

c10::intrusive_ptr<c10d::Work> UcxBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                                          const c10d::ReduceScatterOptions& options) {
  Call call = begin_call(CollectiveKind::kReduceScatter);
  call.require(outputs.size() == 1 && inputs.size() == 1, "got ", outputs.size(), " outputs and ", inputs.size(),
               " lists of inputs, expected one of each");
  call.begin(outputs[0]);
  call.combine(outputs[0], options.reduceOp);
  send_list(call, inputs[0], outputs[0]);
  call.receive_from(0, call.write(outputs[0]));
  return call.submit(OpType::REDUCE_SCATTER, outputs, options.asyncOp, deadline(options.timeout));
}

c10::intrusive_ptr<c10d::Work> UcxBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                                const c10d::ReduceScatterOptions& options) {
  Tensors outputs{output}, inputs{input};
  return reduce_into(outputs, inputs, options, OpType::_REDUCE_SCATTER_BASE);
}

c10::intrusive_ptr<c10d::Work> UcxBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                           const c10d::ReduceScatterOptions& options) {
  return reduce_into(outputs, inputs, options, OpType::ACCEL_TORCH_REDUCE_SCATTER_COALESCED);
}

c10::intrusive_ptr<c10d::Work> UcxBackend::reduce_into(Tensors& outputs, Tensors& inputs,
                                                       const c10d::ReduceScatterOptions& options, c10d::OpType type) {
  Call call = begin_call(CollectiveKind::kReduceScatter);
  call.require(inputs.size() == outputs.size(), "got ", inputs.size(), " inputs and ", outputs.size(),
               " outputs, expected as many");
  for (size_t i = 0; i < outputs.size(); i++) {
    call.begin(outputs[i]);
    call.combine(outputs[i], options.reduceOp);
    call.require_times(inputs[i], outputs[i], "the input");
    call.send_parts(call.read(inputs[i]));
    call.receive_from(0, call.write(outputs[i]));
  }
  return call.submit(type, outputs, options.asyncOp, deadline(options.timeout));
}

c10::intrusive_ptr<c10d::Work> UcxBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                                    const c10d::AllToAllOptions& options) {
  Call call = begin_call(CollectiveKind::kAllToAll);
  const auto size = static_cast<size_t>(getSize());
  call.require(inputs.size() == size && outputs.size() == size, "got ", inputs.size(), " inputs and ", outputs.size(),
               " outputs, expected one of each for each of ", size, " ranks");
  call.begin(inputs[0]);
  std::vector<int64_t> sent, received;
  for (int peer = 0; peer < getSize(); peer++) {
    call.send_to(peer, call.read(inputs[peer]));
    call.receive_from(peer, call.write(outputs[peer]));
    for (const auto* const tensor : {&inputs[peer], &outputs[peer]})
      call.require(tensor->scalar_type() == inputs[0].scalar_type(), "the tensors are of ",
                   dtype_name(inputs[0].scalar_type()), " and ", dtype_name(tensor->scalar_type()),
                   ", expected one dtype");
    sent.push_back(inputs[peer].numel());
    received.push_back(outputs[peer].numel());
  }
  call.set_splits(std::move(sent), received);
  return call.submit(OpType::ALLTOALL, outputs, options.asyncOp, deadline(options.timeout));
}

c10::intrusive_ptr<c10d::Work> UcxBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                         std::vector<int64_t>& output_splits,
                                                         std::vector<int64_t>& input_splits,
                                                         const c10d::AllToAllOptions& options) {
  Call call = begin_call(CollectiveKind::kAllToAll);
  call.begin(input);
  auto incoming = call.write(output);
  auto outgoing = call.read(input);
  call.require(output.scalar_type() == input.scalar_type(), "the output is of ", dtype_name(output.scalar_type()),
               ", expected ", dtype_name(input.scalar_type()));
  auto sent = split_sizes(call, input, input_splits, "the input");
  auto received = split_sizes(call, output, output_splits, "the output");
  const int64_t sent_row = input.dim() && input.size(0) ? input.numel() / input.size(0) : 0;
  const int64_t received_row = output.dim() && output.size(0) ? output.numel() / output.size(0) : 0;
  for (int peer = 0; peer < getSize(); peer++) {
    sent[peer] *= sent_row;
    received[peer] *= received_row;
    const size_t out_bytes = sent[peer] * input.element_size(), in_bytes = received[peer] * output.element_size();
    call.send_to(peer, {outgoing.data, out_bytes});
    call.receive_from(peer, {incoming.data, in_bytes});
    outgoing.data += out_bytes;
    incoming.data += in_bytes;
  }
  call.set_splits(std::move(sent), received);
  return call.submit(OpType::ALLTOALL_BASE, {output}, options.asyncOp, deadline(options.timeout));
}

c10::intrusive_ptr<c10d::Work> UcxBackend::barrier(const c10d::BarrierOptions& options) {
  Call call = begin_call(CollectiveKind::kBarrier);
  call.begin_barrier();
  return call.submit(OpType::BARRIER, {}, options.asyncOp, deadline(options.timeout));
}

void UcxBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool) {
  auto at_once = options;
  at_once.asyncOp = false;
  barrier(at_once)->wait();  // its error names all ranks that are missing
}

c10::intrusive_ptr<c10d::Work> UcxBackend::send(Tensors& tensors, int destination, int tag) {
  return point_to_point(tensors, destination, tag, false);
}

c10::intrusive_ptr<c10d::Work> UcxBackend::recv(Tensors& tensors, int source, int tag) {
  return point_to_point(tensors, source, tag, true);
}

c10::intrusive_ptr<c10d::Work> UcxBackend::recvAnysource(Tensors& tensors, int tag) {
  return point_to_point(tensors, kAnyRank, tag, true);
}

c10::intrusive_ptr<c10d::Work> UcxBackend::point_to_point(Tensors& tensors, int peer, int tag, bool receives) {
  const std::string name =
      receives ? text("recv from ", peer == kAnyRank ? "any rank" : text("rank ", peer), " with tag ", tag)
               : text("send to rank ", peer, " with tag ", tag);
  const auto require = [&](bool condition, const std::string& reason) {
    if (!condition)
      throw CollectiveError(CollectiveFailure::kInvalid, getRank(), text(name, " on rank ", getRank(), ": ", reason));
  };
  require(tensors.size() == 1, text("got ", tensors.size(), " tensors, expected one"));
  require(peer == kAnyRank ? receives : peer >= 0 && peer < getSize() && peer != getRank(),
          text("the peer must be another rank of the group, which has ", getSize()));
  require(tag >= 0, "the tag must be 0 or more");
  const at::Tensor& tensor = tensors[0];
  require_dense_cpu(tensor, getRank(), name.c_str());

  PointToPoint call;
  call.peer = peer;
  call.tag = static_cast<uint64_t>(tag);
  call.receives = receives;
  call.memory = tensor;
  if (!tensor.is_contiguous()) {
    call.memory = receives ? at::empty_like(tensor, at::MemoryFormat::Contiguous) : tensor.contiguous();
    if (receives) call.target = tensor;
  }
  call.deadline = Deadline(timeout_);
  call.thread_state = std::make_unique<at::ThreadLocalState>();
  const auto type = !receives ? OpType::SEND : peer == kAnyRank ? OpType::RECVANYSOURCE : OpType::RECV;
  auto work = c10::make_intrusive<UcxWork>(group_, getRank(), type, name, tensors);
  call.work = work;
  group_->submit(std::move(call));
  return work;
}

std::chrono::milliseconds UcxBackend::deadline(std::chrono::milliseconds timeout) const {
  return timeout == c10d::kUnsetTimeout || timeout == kNoTimeout ? timeout_ : timeout;
}

void UcxBackend::receive_list(Call& call, const Tensors& outputs, const at::Tensor& input) const {
  call.require(static_cast<int>(outputs.size()) == getSize(), "got ", outputs.size(),
               " outputs, expected one for each of ", getSize(), " ranks");
  for (int peer = 0; peer < getSize(); peer++) {
    call.require_like(outputs[peer], input, "an output");
    call.receive_from(peer, call.write(outputs[peer]));
  }
}

void UcxBackend::send_list(Call& call, const Tensors& inputs, const at::Tensor& output) const {
  call.require(static_cast<int>(inputs.size()) == getSize(), "got ", inputs.size(),
               " inputs, expected one for each of ", getSize(), " ranks");
  for (int peer = 0; peer < getSize(); peer++) {
    call.require_like(inputs[peer], output, "an input");
    call.send_to(peer, call.read(inputs[peer]));
  }
}

}  // namespace accel::comm::ucx
