#include "comm/communicator.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "base/error.hpp"
#include "base/torch_compat.hpp"
#include "comm/plugin.hpp"

namespace accel::comm {
namespace {

c10d::ReduceOp reduce_op(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
      return c10d::ReduceOp::SUM;
    case Reduction::kMean:
      return c10d::ReduceOp::AVG;
    case Reduction::kMin:
      return c10d::ReduceOp::MIN;
    case Reduction::kMax:
      return c10d::ReduceOp::MAX;
    case Reduction::kProduct:
      return c10d::ReduceOp::PRODUCT;
    case Reduction::kAnd:
      return c10d::ReduceOp::BAND;
    case Reduction::kOr:
      return c10d::ReduceOp::BOR;
    case Reduction::kXor:
      return c10d::ReduceOp::BXOR;
  }
  fail(Status::kInvalidArgument, "reduction is ", static_cast<int32_t>(reduction), "; expected one of ACCEL_REDUCE_*");
}

void check_reduction(const at::Tensor& tensor, Reduction reduction) {
  reduce_op(reduction);
  const bool bitwise = reduction == Reduction::kAnd || reduction == Reduction::kOr || reduction == Reduction::kXor;
  require(!bitwise || at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true), Status::kTypeMismatch,
          "a bitwise reduction of ", tensor.scalar_type(), "; expected an integer or bool tensor");
  const bool ordered = reduction == Reduction::kMin || reduction == Reduction::kMax;
  require(!ordered || !tensor.is_complex(), Status::kTypeMismatch, "the smallest or largest of ", tensor.scalar_type(),
          "; complex numbers have no order");
}

void check_contiguous(const at::Tensor& tensor, const char* name) {
  require(tensor.defined() && tensor.layout() == at::kStrided, Status::kTypeMismatch, name, " is not a dense tensor");
  require(tensor.is_contiguous(), Status::kInvalidArgument, name, " of shape ", tensor.sizes(),
          " is not contiguous; expected a contiguous tensor: copy it first");
}

// `whole` must have `parts` times the elements of `part`, in the same dtype.
void check_parts(const at::Tensor& whole, const char* whole_name, const at::Tensor& part, const char* part_name,
                 int64_t parts) {
  check_contiguous(whole, whole_name);
  check_contiguous(part, part_name);
  require(whole.scalar_type() == part.scalar_type(), Status::kTypeMismatch, whole_name, " is ", whole.scalar_type(),
          " and ", part_name, " is ", part.scalar_type(), "; expected the same dtype");
  require(whole.numel() == parts * part.numel(), Status::kShapeMismatch, whole_name, " has ", whole.numel(),
          " elements and ", part_name, " has ", part.numel(), "; expected ", parts, " times as many");
}

// Backends may finish at once and return nothing.
void finish(const c10::intrusive_ptr<c10d::Work>& work) {
  if (work) work->wait();
}

// A blocking call: the backend may run it on this thread.
template <typename Options>
Options blocking(std::chrono::milliseconds timeout) {
  Options options;
  options.timeout = timeout;
  options.asyncOp = false;
  return options;
}

}  // namespace

Communicator::Communicator() = default;

Communicator::Communicator(c10::intrusive_ptr<c10d::Store> store, int rank, int size, std::chrono::milliseconds timeout,
                           const std::string& backend_name)
    : rank_(rank), size_(size), timeout_(timeout), backend_name_(backend_name), store_(std::move(store)) {
  const auto environment = backend_environment();
  char error[512] = "";
  const BackendArguments arguments{store_.get(), rank, size, timeout.count(), "world"};
  c10d::Backend* made = load_plugin(backend_name)(&arguments, error, sizeof error);
  require(made != nullptr, Status::kBackend, "the ", backend_name,
          " backend does not start: ", static_cast<const char*>(error));
  backend_ = c10::intrusive_ptr<c10d::Backend>::reclaim(made);
  process_group_ = c10::make_intrusive<c10d::ProcessGroup>(store_, rank, size);
  const auto device = backend_name == "nccl" ? c10::DeviceType::CUDA : c10::DeviceType::CPU;
  process_group_->setBackend(device, c10d::ProcessGroup::BackendType::CUSTOM, backend_);
  process_group_->setDefaultBackend(c10d::ProcessGroup::BackendType::CUSTOM);
  process_group_->setGroupName("accel");
}

Communicator::~Communicator() {
  try {
    shutdown();
  } catch (const std::exception&) {
    // The group is left in any case.
  }
}

c10d::Backend& Communicator::backend() {
  require(!left_, Status::kInvalidState, "the process group was destroyed; make a new state");
  return *backend_;
}

void Communicator::check_rank(int rank, const char* name) const {
  require(rank >= 0 && rank < size_, Status::kInvalidArgument, name, " is ", rank, "; expected 0 to ", size_ - 1);
}

void Communicator::all_reduce(at::Tensor tensor, Reduction reduction) {
  check_contiguous(tensor, "tensor");
  check_reduction(tensor, reduction);
  if (size_ == 1) return;
  auto options = blocking<c10d::AllreduceOptions>(timeout_);
  options.reduceOp = reduce_op(reduction);
  std::vector<at::Tensor> tensors{std::move(tensor)};
  finish(backend().allreduce(tensors, options));
}

void Communicator::broadcast(at::Tensor tensor, int from) {
  check_contiguous(tensor, "tensor");
  check_rank(from, "from_process");
  if (size_ == 1) return;
  auto options = blocking<c10d::BroadcastOptions>(timeout_);
  options.rootRank = from;
  std::vector<at::Tensor> tensors{std::move(tensor)};
  finish(backend().broadcast(tensors, options));
}

void Communicator::all_gather(const at::Tensor& input, at::Tensor output) {
  check_parts(output, "output", input, "input", size_);
  if (size_ == 1) {
    output.view({-1}).copy_(input.view({-1}));
    return;
  }
  at::Tensor source = input;
#if ACCEL_TORCH_HAS_SINGLE_COLLECTIVES
  finish(backend().all_gather_single(output, source, blocking<c10d::AllgatherOptions>(timeout_)));
#else
  finish(backend()._allgather_base(output, source, blocking<c10d::AllgatherOptions>(timeout_)));
#endif
}

void Communicator::reduce_scatter(const at::Tensor& input, Reduction reduction, at::Tensor output) {
  check_parts(input, "input", output, "output", size_);
  check_reduction(input, reduction);
  if (size_ == 1) {
    output.view({-1}).copy_(input.view({-1}));
    return;
  }
  auto options = blocking<c10d::ReduceScatterOptions>(timeout_);
  options.reduceOp = reduce_op(reduction);
  at::Tensor source = input;
#if ACCEL_TORCH_HAS_SINGLE_COLLECTIVES
  finish(backend().reduce_scatter_single(output, source, options));
#else
  finish(backend()._reduce_scatter_base(output, source, options));
#endif
}

void Communicator::all_to_all(const at::Tensor& input, at::Tensor output) {
  check_parts(input, "input", output, "output", 1);
  require(input.numel() % size_ == 0, Status::kShapeMismatch, "input has ", input.numel(),
          " elements; expected a multiple of ", size_, ", a part for each rank");
  if (size_ == 1) {
    output.view({-1}).copy_(input.view({-1}));
    return;
  }
  at::Tensor source = input.view({size_, -1}), goal = output.view({size_, -1});
  std::vector<int64_t> even;
#if ACCEL_TORCH_HAS_SINGLE_COLLECTIVES
  finish(backend().all_to_all_single(goal, source, even, even, blocking<c10d::AllToAllOptions>(timeout_)));
#else
  finish(backend().alltoall_base(goal, source, even, even, blocking<c10d::AllToAllOptions>(timeout_)));
#endif
}

void Communicator::scatter(const at::Tensor& input, int from, at::Tensor output) {
  check_rank(from, "from_process");
  check_contiguous(output, "output");
  if (rank_ == from) {
    require(input.defined(), Status::kInvalidArgument, "input is NULL on rank ", rank_,
            ", the source; expected its tensor");
    check_parts(input, "input", output, "output", size_);
  }
  if (size_ == 1) {
    output.view({-1}).copy_(input.view({-1}));
    return;
  }
  auto options = blocking<c10d::ScatterOptions>(timeout_);
  options.rootRank = from;
  std::vector<at::Tensor> outputs{output};
  std::vector<std::vector<at::Tensor>> inputs;
  if (rank_ == from) {
    inputs.emplace_back();
    for (const at::Tensor& part : input.view({size_, -1}).unbind(0)) inputs[0].push_back(part.view(output.sizes()));
  }
  finish(backend().scatter(outputs, inputs, options));
}

void Communicator::send(const at::Tensor& tensor, int to, int tag) {
  check_contiguous(tensor, "tensor");
  check_rank(to, "to_process");
  require(to != rank_, Status::kInvalidArgument, "to_process is ", to, ", this rank itself; expected another rank");
  require(tag >= 0, Status::kInvalidArgument, "tag is ", tag, "; expected 0 or more");
  std::vector<at::Tensor> tensors{tensor};
  const auto work = backend().send(tensors, to, tag);
  if (work) work->wait(timeout_);
}

void Communicator::receive(at::Tensor tensor, int from, int tag) {
  check_contiguous(tensor, "tensor");
  check_rank(from, "from_process");
  require(from != rank_, Status::kInvalidArgument, "from_process is ", from,
          ", this rank itself; expected another rank");
  require(tag >= 0, Status::kInvalidArgument, "tag is ", tag, "; expected 0 or more");
  std::vector<at::Tensor> tensors{std::move(tensor)};
  const auto work = backend().recv(tensors, from, tag);
  if (work) work->wait(timeout_);
}

void Communicator::barrier() {
  if (size_ == 1) return;
  finish(backend().barrier(blocking<c10d::BarrierOptions>(timeout_)));
}

void Communicator::shutdown() {
  if (left_) return;
  left_ = true;
  process_group_.reset();
  if (backend_) backend_->shutdown();
}

}  // namespace accel::comm
