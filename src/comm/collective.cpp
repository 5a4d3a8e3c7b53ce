// SPDX-License-Identifier: Apache-2.0
#include "comm/collective.hpp"

#include <ATen/core/Tensor.h>

#include <utility>

#include "base/error.hpp"
#include "comm/reduce_op.hpp"

namespace accel::comm {
namespace {

void check_contiguous(const at::Tensor& tensor, const char* name) {
  check_dense(tensor, name);
  require(tensor.is_contiguous(), Status::kInvalidArgument, name, " of shape ", tensor.sizes(),
          " is not contiguous; expected a contiguous tensor: copy it first");
}

// Imported tensors may be on "cpu:0" instead of "cpu".
bool on_one_device(const at::Tensor& a, const at::Tensor& b) {
  return a.device() == b.device() || (a.is_cpu() && b.is_cpu());
}

// `whole` must have `parts` times the elements of `part`, in the same dtype.
void check_parts(const at::Tensor& whole, const char* whole_name, const at::Tensor& part, const char* part_name,
                 int64_t parts) {
  check_contiguous(whole, whole_name);
  check_contiguous(part, part_name);
  require(on_one_device(whole, part), Status::kInvalidArgument, whole_name, " is on ", whole.device(), " and ",
          part_name, " is on ", part.device(), "; expected the same device: move one of them");
  require(whole.scalar_type() == part.scalar_type(), Status::kTypeMismatch, whole_name, " is ", whole.scalar_type(),
          " and ", part_name, " is ", part.scalar_type(), "; expected the same dtype");
  require(whole.numel() == parts * part.numel(), Status::kShapeMismatch, whole_name, " has ", whole.numel(),
          " elements and ", part_name, " has ", part.numel(), "; expected ", parts, " times as many");
}

void check_message(const at::Tensor& tensor, int peer, const char* peer_name, int tag, int own_rank, int size) {
  check_contiguous(tensor, "tensor");
  check_rank(peer, size, peer_name);
  require(peer != own_rank, Status::kInvalidArgument, peer_name, " is ", peer,
          ", this rank itself; expected another rank");
  require(tag >= 0, Status::kInvalidArgument, "tag is ", tag, "; expected 0 or more");
}

}  // namespace

void check_dense(const at::Tensor& tensor, const char* name) {
  require(tensor.defined() && tensor.layout() == at::kStrided, Status::kTypeMismatch, name, " is not a dense tensor");
}

void check_rank(int rank, int size, const char* name) {
  require(rank >= 0 && rank < size, Status::kInvalidArgument, name, " is ", rank, "; expected 0 to ", size - 1);
}

void check_reduction(const at::Tensor& tensor, ReduceOp reduction) {
  reduce_op(reduction, 1);
  const bool bitwise = reduction == ReduceOp::kAnd || reduction == ReduceOp::kOr || reduction == ReduceOp::kXor;
  require(!bitwise || at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true), Status::kTypeMismatch,
          "a bitwise reduction of ", tensor.scalar_type(), "; expected an integer or bool tensor");
  const bool ordered = reduction == ReduceOp::kMin || reduction == ReduceOp::kMax;
  require(!ordered || !tensor.is_complex(), Status::kTypeMismatch, "the smallest or largest of ", tensor.scalar_type(),
          "; complex numbers have no order");
}

bool scales_in_one_pass(const at::Tensor& tensor, ReduceOp reduction) {
  return (reduction == ReduceOp::kSum || reduction == ReduceOp::kMean) &&
         !at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true);
}

Collective Collective::all_reduce(at::Tensor tensor, ReduceOp reduction, double scale) {
  return {Kind::kAllReduce, {}, std::move(tensor), reduction, scale};
}

Collective Collective::broadcast(at::Tensor tensor, int from) {
  return {Kind::kBroadcast, {}, std::move(tensor), ReduceOp::kSum, 1.0, from};
}

Collective Collective::all_gather(at::Tensor input, at::Tensor output) {
  return {Kind::kAllGather, std::move(input), std::move(output)};
}

Collective Collective::reduce_scatter(at::Tensor input, ReduceOp reduction, at::Tensor output) {
  return {Kind::kReduceScatter, std::move(input), std::move(output), reduction};
}

Collective Collective::all_to_all(at::Tensor input, at::Tensor output) {
  return {Kind::kAllToAll, std::move(input), std::move(output)};
}

Collective Collective::scatter(at::Tensor input, int from, at::Tensor output) {
  return {Kind::kScatter, std::move(input), std::move(output), ReduceOp::kSum, 1.0, from};
}

Collective Collective::barrier(std::optional<c10::DeviceType> device) {
  Collective barrier;
  barrier.device = device;
  return barrier;
}

Collective Collective::without_tensors() {
  Collective barrier;
  barrier.replaces_exchange = true;
  return barrier;
}

Collective Collective::send(at::Tensor tensor, int to, int tag) {
  return {Kind::kSend, std::move(tensor), {}, ReduceOp::kSum, 1.0, to, tag};
}

Collective Collective::receive(at::Tensor tensor, int from, int tag) {
  return {Kind::kReceive, {}, std::move(tensor), ReduceOp::kSum, 1.0, from, tag};
}

const char* Collective::name() const { return replaces_exchange ? "a collective" : traits_of(kind).name; }

void Collective::check(int own_rank, int size) const {
  switch (kind) {
    case Kind::kAllReduce:
      check_contiguous(output, "tensor");
      check_reduction(output, reduction);
      return require(scale == 1.0 || scales_in_one_pass(output, reduction), Status::kInvalidArgument, "scale is ",
                     scale, " for ", output.scalar_type(),
                     "; expected 1 where it is not a sum or mean of floating-point numbers");
    case Kind::kBroadcast:
      check_contiguous(output, "tensor");
      return check_rank(rank, size, "from_process");
    case Kind::kAllGather:
      if (!output.defined()) return check_contiguous(input, "input");  // in place
      return check_parts(output, "output", input, "input", size);
    case Kind::kReduceScatter:
      check_parts(input, "input", output, "output", size);
      return check_reduction(input, reduction);
    case Kind::kAllToAll:
      check_parts(input, "input", output, "output", 1);
      return require(input.numel() % size == 0, Status::kShapeMismatch, "input has ", input.numel(),
                     " elements; expected a multiple of ", size, ", a part for each rank");
    case Kind::kScatter:
      check_rank(rank, size, "from_process");
      check_contiguous(output, "output");
      if (own_rank != rank) return;
      require(input.defined(), Status::kInvalidArgument, "input is NULL on rank ", own_rank,
              ", the source; expected its tensor");
      return check_parts(input, "input", output, "output", size);
    case Kind::kBarrier:
      return;
    case Kind::kSend:
      return check_message(input, rank, "to_process", tag, own_rank, size);
    case Kind::kReceive:
      return check_message(output, rank, "from_process", tag, own_rank, size);
    case Kind::kReduce:
    case Kind::kGather:
      break;
  }
  fail(Status::kUnsupported, name(), " is not posted as a call of its own; expected all_reduce or all_gather");
}

}  // namespace accel::comm
