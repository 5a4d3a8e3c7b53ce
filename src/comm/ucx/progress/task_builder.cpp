// SPDX-License-Identifier: Apache-2.0
#include "comm/ucx/progress/task_builder.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>

#include "base/error.hpp"
#include "comm/collective_error.hpp"
#include "comm/ucx/host/huge_pages.hpp"

namespace accel::comm::ucx {
namespace {

// Results of this size are often fresh memory, and then most of the time would go into its page faults.
constexpr size_t kHugeOutput = 4 << 20;

std::optional<ReduceOp> reduction_of(const c10d::ReduceOp& reduction) {
  switch (static_cast<c10d::ReduceOp::RedOpType>(reduction)) {
    case c10d::ReduceOp::SUM:
      return ReduceOp::kSum;
    case c10d::ReduceOp::AVG:
      return ReduceOp::kMean;
    case c10d::ReduceOp::PRODUCT:
      return ReduceOp::kProduct;
    case c10d::ReduceOp::MIN:
      return ReduceOp::kMin;
    case c10d::ReduceOp::MAX:
      return ReduceOp::kMax;
    case c10d::ReduceOp::BAND:
      return ReduceOp::kAnd;
    case c10d::ReduceOp::BOR:
      return ReduceOp::kOr;
    case c10d::ReduceOp::BXOR:
      return ReduceOp::kXor;
    case c10d::ReduceOp::PREMUL_SUM:
      return ReduceOp::kScaledSum;
    default:
      return std::nullopt;
  }
}

// All ranks must pass the same. It is a number or a tensor, as with NCCL.
double factor_of(const c10d::ReduceOp& reduction) {
  if (reduction.op_ != c10d::ReduceOp::PREMUL_SUM) return 0;
  accel::require(reduction.supplement_.defined(), Status::kInvalidArgument, "a premul_sum has no factor; expected one");
  const auto& factor = static_cast<const c10d::NCCLPreMulSumSupplement&>(*reduction.supplement_);
  return factor.tensor_factor.defined() ? factor.tensor_factor.item<double>() : factor.double_factor;
}

}  // namespace

std::string defect_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return "a tensor is undefined; pass tensors only";
  if (!tensor.device().is_cpu())
    return text("a tensor is on ", tensor.device().str(), "; this group moves CPU tensors, copy it first");
  if (tensor.layout() != c10::kStrided) return "a tensor is sparse; make it dense first";
  if (tensor.is_conj() || tensor.is_neg()) return "a tensor is a lazy conjugate or negation; resolve it first";
  return {};
}

void TaskBuilder::refuse(const std::string& reason) const {
  throw CollectiveError(CollectiveFailure::kInvalid, rank(),
                        text(call_.traits().name, " on rank ", rank(), ": ", reason));
}

void TaskBuilder::require_rank(int64_t rank, const char* what) const {
  require(rank >= 0 && rank < size(), what, " ", rank, " is not a rank; the group has ", size());
}

void TaskBuilder::require_like(const at::Tensor& tensor, const at::Tensor& other, const char* what) const {
  check(tensor);
  require(tensor.scalar_type() == other.scalar_type() && tensor.numel() == other.numel(), what, " holds ",
          tensor.numel(), " ", dtype_name(tensor.scalar_type()), ", expected ", other.numel(), " ",
          dtype_name(other.scalar_type()));
}

void TaskBuilder::require_times(const at::Tensor& tensor, const at::Tensor& part, const char* what) const {
  check(tensor);
  require(tensor.scalar_type() == part.scalar_type() && tensor.numel() == part.numel() * size(), what, " holds ",
          tensor.numel(), " ", dtype_name(tensor.scalar_type()), ", expected ", size(), " x ", part.numel(), " ",
          dtype_name(part.scalar_type()));
}

void TaskBuilder::check(const at::Tensor& tensor) const {
  if (const std::string defect = defect_of(tensor); !defect.empty())
    throw CollectiveError(CollectiveFailure::kInvalid, rank(), text(call_.traits().name, ": ", defect));
}

void TaskBuilder::begin_barrier() {
  Collective collective;
  collective.header.kind = call_.kind;
  if (call_.whole) {
    collective.header.part = call_.whole->part;
    collective.header.parts = call_.whole->parts;
  }
  task_.parts.push_back(std::move(collective));
}

void TaskBuilder::begin(const at::Tensor& described, int64_t root) {
  check(described);
  if (root >= 0) require_rank(root, "root");
  begin_barrier();
  Header& header = current().header;
  header.root = static_cast<int32_t>(root);
  header.dtype = static_cast<int8_t>(described.scalar_type());
  current().element_size = described.element_size();
  const bool may_differ = call_.traits().shapes_may_differ();  // then there are splits
  if (!may_differ) header.numel = described.numel();
  if (!may_differ || call_.whole) {
    const c10::IntArrayRef shape = call_.whole ? call_.whole->shape : described.sizes();
    header.dimensions = static_cast<uint8_t>(std::min<size_t>(shape.size(), 255));
    for (int i = 0; i < std::min<int>(header.dimensions, Header::kShownDimensions); i++) header.sizes[i] = shape[i];
  }
  current().outgoing.resize(size());
  current().incoming.resize(size());
}

void TaskBuilder::combine(const at::Tensor& described, const c10d::ReduceOp& reduction) {
  const auto known = reduction_of(reduction);
  require(known.has_value(),
          "this reduction is not supported; use sum, mean, premul_sum, product, min, max, band, bor or bxor");
  const auto dtype = described.scalar_type();
  const double factor = factor_of(reduction);
  current().reduce = find_reducer(dtype, *known, size(), factor);
  current().combine = find_combiner(dtype, *known);
  current().header.factor = factor;
  require(current().reduce.function, "the ", reduction_name(*known), " of ", dtype_name(dtype),
          " is not defined; convert the tensor first");
  current().header.reduction = *known;
}

Outgoing TaskBuilder::read(const at::Tensor& tensor) {
  check(tensor);
  const at::Tensor memory = tensor.contiguous();
  task_.held.push_back(memory);
  return {static_cast<const char*>(memory.const_data_ptr()), memory.nbytes()};
}

Incoming TaskBuilder::write(const at::Tensor& tensor) {
  check(tensor);
  at::Tensor memory = tensor;
  if (!tensor.is_contiguous()) {
    memory = at::empty_like(tensor, at::MemoryFormat::Contiguous);
    task_.copies.emplace_back(tensor, memory);
  }
  task_.held.push_back(memory);
  const size_t bytes = memory.nbytes();
  if (bytes >= kHugeOutput) ask_for_huge_pages(memory.data_ptr(), bytes);
  return {static_cast<char*>(memory.data_ptr()), bytes};
}

Incoming TaskBuilder::update(const at::Tensor& tensor) {
  const Incoming block = write(tensor);
  if (!tensor.is_contiguous()) {
    const at::NoGradGuard no_grad;
    task_.held.back().copy_(tensor);
  }
  return block;
}

void TaskBuilder::send_to_all(Outgoing block) {
  std::fill(current().outgoing.begin(), current().outgoing.end(), block);
}

void TaskBuilder::combine_whole(Incoming block) {
  send_to(0, {block.data, block.bytes});
  receive_from(0, block);
}

void TaskBuilder::send_parts(Outgoing whole) {
  const size_t part = whole.bytes / size();
  for (int peer = 0; peer < size(); peer++) send_to(peer, {whole.data + part * peer, part});
}

void TaskBuilder::receive_parts(Incoming whole) {
  const size_t part = whole.bytes / size();
  for (int peer = 0; peer < size(); peer++) receive_from(peer, {whole.data + part * peer, part});
}

void TaskBuilder::show(const at::Tensor& own) {
  task_.blocks = std::make_shared<std::vector<at::Tensor>>();
  current().shown = {own, task_.blocks};
}

void TaskBuilder::set_splits(std::vector<int64_t> sent, const std::vector<int64_t>& received) {
  sent.insert(sent.end(), received.begin(), received.end());
  current().splits = std::move(sent);
}

}  // namespace accel::comm::ucx
