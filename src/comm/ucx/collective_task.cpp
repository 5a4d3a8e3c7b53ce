// SPDX-License-Identifier: Apache-2.0
#include "comm/ucx/collective_task.hpp"

#include <cstdint>
#include <numeric>
#include <utility>

#include "comm/ucx/progress/task_builder.hpp"

namespace accel::comm::ucx {
namespace {

using Kind = CollectiveKind;
using Tensors = std::vector<at::Tensor>;

// Splits of dimension 0; an empty list means equal parts.
std::vector<int64_t> split_sizes(const TaskBuilder& task, const at::Tensor& tensor, const std::vector<int64_t>& splits,
                                 const char* what) {
  const int64_t length = tensor.dim() ? tensor.size(0) : 0;
  if (splits.empty()) {
    task.require(length % task.size() == 0, what, " has ", length, " rows, which ", task.size(),
                 " ranks cannot share equally; pass splits");
    return std::vector<int64_t>(task.size(), length / task.size());
  }
  task.require(static_cast<int>(splits.size()) == task.size(), what, " has ", splits.size(),
               " splits, expected one for each of ", task.size(), " ranks");
  for (const int64_t split : splits)
    task.require(split >= 0, what, " has a split of ", split, "; splits are 0 or more");
  const int64_t sum = std::accumulate(splits.begin(), splits.end(), int64_t{0});
  task.require(sum == length, what, " has ", length, " rows and its splits add up to ", sum, "; they must be equal");
  return splits;
}

void require_one_each(const TaskBuilder& task, const Tensors& tensors, const char* what) {
  task.require(static_cast<int>(tensors.size()) == task.size(), "got ", tensors.size(), " ", what,
               ", expected one for each of ", task.size(), " ranks");
}

// The blocks for all ranks, each like the result of one.
void send_blocks(TaskBuilder& task, const CollectiveCall& call, size_t index) {
  const at::Tensor& result = call.outputs[index];
  if (!call.are_apart) {
    task.require_times(call.inputs[index], result, "the input");
    return task.send_parts(task.read(call.inputs[index]));
  }
  require_one_each(task, call.inputs, "inputs");
  for (int peer = 0; peer < task.size(); peer++) {
    task.require_like(call.inputs[peer], result, "an input");
    task.send_to(peer, task.read(call.inputs[peer]));
  }
}

// The blocks from all ranks, each like the input of one.
void receive_blocks(TaskBuilder& task, const CollectiveCall& call, size_t index) {
  const at::Tensor& input = call.inputs[index];
  if (!call.are_apart) {
    task.require_times(call.outputs[index], input, "the output");
    return task.receive_parts(task.write(call.outputs[index]));
  }
  require_one_each(task, call.outputs, "outputs");
  for (int peer = 0; peer < task.size(); peer++) {
    task.require_like(call.outputs[peer], input, "an output");
    task.receive_from(peer, task.write(call.outputs[peer]));
  }
}

void exchange_tensors(TaskBuilder& task, const CollectiveCall& call) {
  std::vector<int64_t> sent, received;
  for (int peer = 0; peer < task.size(); peer++) {
    task.send_to(peer, task.read(call.inputs[peer]));
    task.receive_from(peer, task.write(call.outputs[peer]));
    for (const auto* const tensor : {&call.inputs[peer], &call.outputs[peer]})
      task.require(tensor->scalar_type() == call.inputs[0].scalar_type(), "the tensors are of ",
                   dtype_name(call.inputs[0].scalar_type()), " and ", dtype_name(tensor->scalar_type()),
                   ", expected one dtype");
    sent.push_back(call.inputs[peer].numel());
    received.push_back(call.outputs[peer].numel());
  }
  task.set_splits(std::move(sent), received);
}

void exchange_rows(TaskBuilder& task, const CollectiveCall& call) {
  const at::Tensor &input = call.inputs[0], &output = call.outputs[0];
  auto incoming = task.write(output);
  auto outgoing = task.read(input);
  task.require(output.scalar_type() == input.scalar_type(), "the output is of ", dtype_name(output.scalar_type()),
               ", expected ", dtype_name(input.scalar_type()));
  auto sent = split_sizes(task, input, call.input_splits, "the input");
  auto received = split_sizes(task, output, call.output_splits, "the output");
  const int64_t sent_row = input.dim() && input.size(0) ? input.numel() / input.size(0) : 0;
  const int64_t received_row = output.dim() && output.size(0) ? output.numel() / output.size(0) : 0;
  for (int peer = 0; peer < task.size(); peer++) {
    sent[peer] *= sent_row;
    received[peer] *= received_row;
    const size_t out_bytes = sent[peer] * input.element_size(), in_bytes = received[peer] * output.element_size();
    task.send_to(peer, {outgoing.data, out_bytes});
    task.receive_from(peer, {incoming.data, in_bytes});
    outgoing.data += out_bytes;
    incoming.data += in_bytes;
  }
  task.set_splits(std::move(sent), received);
}

void add_blocks(TaskBuilder& task, const CollectiveCall& call, size_t index) {
  const int root = static_cast<int>(call.rank);
  const bool is_root = task.rank() == root;
  switch (call.kind) {
    case Kind::kAllReduce:
      task.combine(call.outputs[index], call.reduction);
      return task.combine_whole(task.update(call.outputs[index]));
    case Kind::kReduce:
      task.combine(call.outputs[index], call.reduction);
      if (is_root) return task.combine_whole(task.update(call.outputs[index]));
      return task.send_to(0, task.read(call.outputs[index]));
    case Kind::kBroadcast:
      if (is_root) return task.send_to_all(task.read(call.outputs[index]));
      return task.receive_from(root, task.write(call.outputs[index]));
    case Kind::kAllGather:
      task.send_to_all(task.read(call.inputs[index]));
      if (call.outputs.empty()) return task.show(call.inputs[index]);
      return receive_blocks(task, call, index);
    case Kind::kGather:
      task.send_to(root, task.read(call.inputs[index]));
      if (is_root) receive_blocks(task, call, index);
      return;
    case Kind::kReduceScatter:
      task.combine(call.outputs[index], call.reduction);
      send_blocks(task, call, index);
      return task.receive_from(0, task.write(call.outputs[index]));
    case Kind::kScatter:
      if (is_root) send_blocks(task, call, index);
      return task.receive_from(root, task.write(call.outputs[index]));
    case Kind::kAllToAll:
      return call.are_apart ? exchange_tensors(task, call) : exchange_rows(task, call);
    case Kind::kBarrier:
    case Kind::kSend:
    case Kind::kReceive:
      break;
  }
}

}  // namespace

Task make_task(CollectiveCall&& call, int rank, int size) {
  Task task(call.type);
  task.timeout = call.timeout;
  task.is_async = call.is_async;
  TaskBuilder builder(rank, size, call, task);
  if (call.kind == Kind::kBarrier) builder.begin_barrier();
  for (size_t index = 0; index < call.count(); index++) {
    builder.begin(call.described(index), call.rank);
    add_blocks(builder, call, index);
  }
  task.outputs = std::move(call.outputs);
  return task;
}

}  // namespace accel::comm::ucx
