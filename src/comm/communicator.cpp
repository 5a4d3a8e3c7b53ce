#include "comm/communicator.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "base/current_call.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/torch_compat.hpp"
#include "comm/call_report.hpp"
#include "comm/plugin.hpp"

namespace accel::comm {
namespace {

constexpr std::chrono::milliseconds kReportTime(2000);  // for the ranks to tell each other what they called

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

c10::intrusive_ptr<c10d::Work> copy_of_one_rank(const at::Tensor& input, const at::Tensor& output) {
  output.view({-1}).copy_(input.view({-1}));
  return {};
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
  const BackendArguments arguments{store_.get(), rank, size, timeout.count(), "world", &CurrentCall::function};
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
  run("all_reduce", tensor, [&]() -> TorchWork {
    if (size_ == 1) return {};
    auto options = blocking<c10d::AllreduceOptions>(timeout_);
    options.reduceOp = reduce_op(reduction);
    std::vector<at::Tensor> tensors{tensor};
    return backend().allreduce(tensors, options);
  });
}

void Communicator::broadcast(at::Tensor tensor, int from) {
  check_contiguous(tensor, "tensor");
  check_rank(from, "from_process");
  run("broadcast", tensor, [&]() -> TorchWork {
    if (size_ == 1) return {};
    auto options = blocking<c10d::BroadcastOptions>(timeout_);
    options.rootRank = from;
    std::vector<at::Tensor> tensors{tensor};
    return backend().broadcast(tensors, options);
  });
}

void Communicator::all_gather(const at::Tensor& input, at::Tensor output) {
  check_parts(output, "output", input, "input", size_);
  run("all_gather", input, [&]() -> TorchWork {
    if (size_ == 1) return copy_of_one_rank(input, output);
    at::Tensor source = input;
    const auto options = blocking<c10d::AllgatherOptions>(timeout_);
#if ACCEL_TORCH_HAS_SINGLE_COLLECTIVES
    return backend().all_gather_single(output, source, options);
#else
    return backend()._allgather_base(output, source, options);
#endif
  });
}

void Communicator::reduce_scatter(const at::Tensor& input, Reduction reduction, at::Tensor output) {
  check_parts(input, "input", output, "output", size_);
  check_reduction(input, reduction);
  run("reduce_scatter", input, [&]() -> TorchWork {
    if (size_ == 1) return copy_of_one_rank(input, output);
    auto options = blocking<c10d::ReduceScatterOptions>(timeout_);
    options.reduceOp = reduce_op(reduction);
    at::Tensor source = input;
#if ACCEL_TORCH_HAS_SINGLE_COLLECTIVES
    return backend().reduce_scatter_single(output, source, options);
#else
    return backend()._reduce_scatter_base(output, source, options);
#endif
  });
}

void Communicator::all_to_all(const at::Tensor& input, at::Tensor output) {
  check_parts(input, "input", output, "output", 1);
  require(input.numel() % size_ == 0, Status::kShapeMismatch, "input has ", input.numel(),
          " elements; expected a multiple of ", size_, ", a part for each rank");
  run("all_to_all", input, [&]() -> TorchWork {
    if (size_ == 1) return copy_of_one_rank(input, output);
    at::Tensor source = input.view({size_, -1}), goal = output.view({size_, -1});
    std::vector<int64_t> even;
    const auto options = blocking<c10d::AllToAllOptions>(timeout_);
#if ACCEL_TORCH_HAS_SINGLE_COLLECTIVES
    return backend().all_to_all_single(goal, source, even, even, options);
#else
    return backend().alltoall_base(goal, source, even, even, options);
#endif
  });
}

void Communicator::scatter(const at::Tensor& input, int from, at::Tensor output) {
  check_rank(from, "from_process");
  check_contiguous(output, "output");
  if (rank_ == from) {
    require(input.defined(), Status::kInvalidArgument, "input is NULL on rank ", rank_,
            ", the source; expected its tensor");
    check_parts(input, "input", output, "output", size_);
  }
  run("scatter", output, [&]() -> TorchWork {
    if (size_ == 1) return copy_of_one_rank(input, output);
    auto options = blocking<c10d::ScatterOptions>(timeout_);
    options.rootRank = from;
    std::vector<at::Tensor> outputs{output};
    std::vector<std::vector<at::Tensor>> inputs;
    if (rank_ == from) {
      inputs.emplace_back();
      for (const at::Tensor& part : input.view({size_, -1}).unbind(0)) inputs[0].push_back(part.view(output.sizes()));
    }
    return backend().scatter(outputs, inputs, options);
  });
}

void Communicator::barrier() {
  run("barrier", at::Tensor(), [&]() -> TorchWork {
    if (size_ == 1) return {};
    return backend().barrier(blocking<c10d::BarrierOptions>(timeout_));
  });
}

void Communicator::send(const at::Tensor& tensor, int to, int tag) { wait(post_send(tensor, to, tag)); }

void Communicator::receive(at::Tensor tensor, int from, int tag) { wait(post_receive(std::move(tensor), from, tag)); }

std::shared_ptr<Work> Communicator::start_send(const at::Tensor& tensor, int to, int tag) {
  return follow(post_send(tensor, to, tag));
}

std::shared_ptr<Work> Communicator::start_receive(at::Tensor tensor, int from, int tag) {
  return follow(post_receive(std::move(tensor), from, tag));
}

Communicator::Message Communicator::post_send(const at::Tensor& tensor, int to, int tag) {
  check_contiguous(tensor, "tensor");
  check_rank(to, "to_process");
  require(to != rank_, Status::kInvalidArgument, "to_process is ", to, ", this rank itself; expected another rank");
  require(tag >= 0, Status::kInvalidArgument, "tag is ", tag, "; expected 0 or more");
  return post("send", tensor, [&] {
    std::vector<at::Tensor> tensors{tensor};
    return backend().send(tensors, to, tag);
  });
}

Communicator::Message Communicator::post_receive(at::Tensor tensor, int from, int tag) {
  check_contiguous(tensor, "tensor");
  check_rank(from, "from_process");
  require(from != rank_, Status::kInvalidArgument, "from_process is ", from,
          ", this rank itself; expected another rank");
  require(tag >= 0, Status::kInvalidArgument, "tag is ", tag, "; expected 0 or more");
  return post("recv", tensor, [&] {
    std::vector<at::Tensor> tensors{tensor};
    return backend().recv(tensors, from, tag);
  });
}

template <typename Post>
Communicator::Message Communicator::post(const char* operation, const at::Tensor& tensor, const Post& start) {
  Message message{{}, describe(operation, tensor), 0};
  message.number = flight_record_->begin(message.entry);
  try {
    message.work = start();
  } catch (...) {
    flight_record_->end(message.number, FlightEntry::State::kFailed);
    throw;
  }
  return message;
}

void Communicator::wait(const Message& message) {
  try {
    if (message.work) message.work->wait(timeout_);
    flight_record_->end(message.number, FlightEntry::State::kDone);
  } catch (const CollectiveError& error) {
    flight_record_->end(message.number, FlightEntry::State::kFailed);
    throw explain(error, message.entry, message.number);
  }
}

std::shared_ptr<Work> Communicator::follow(const Message& message) {
  auto work = std::make_shared<Work>();
  queue_->watch(work);
  const auto end = [work, queue = queue_, record = flight_record_, number = message.number](std::exception_ptr error) {
    record->end(number, error ? FlightEntry::State::kFailed : FlightEntry::State::kDone);
    queue->end_watched(*work, std::move(error));
  };
  if (!message.work)
    end(nullptr);
  else
    message.work->getFuture()->addCallback(
        [end](c10::ivalue::Future& future) { end(future.hasError() ? future.exception_ptr() : nullptr); });
  return work;
}

FlightEntry Communicator::describe(const char* operation, const at::Tensor& tensor) const {
  FlightEntry entry;
  entry.call = CurrentCall::function();
  entry.operation = operation;
  entry.sequence = backend_ ? backend_->getSequenceNumberForGroup() : 0;
  if (tensor.defined()) {
    entry.bytes = static_cast<int64_t>(tensor.nbytes());
    entry.dtype = tensor.scalar_type();
  }
  return entry;
}

template <typename Start>
void Communicator::run(const char* operation, const at::Tensor& tensor, const Start& start) {
  queue_->wait_until_idle();
  const FlightEntry entry = describe(operation, tensor);
  const uint64_t number = flight_record_->begin(entry);
  try {
    if (const TorchWork work = start()) work->wait();  // backends may finish at once and return nothing
    flight_record_->end(number, FlightEntry::State::kDone);
  } catch (const CollectiveError& error) {
    flight_record_->end(number, FlightEntry::State::kFailed);
    const std::string report =
        error.failure() == CollectiveFailure::kMismatch
            ? report_calls(*store_, rank_, size_, entry.sequence, entry.title(), std::min(timeout_, kReportTime))
            : std::string();
    if (!report.empty()) throw CollectiveError(error.failure(), rank_, text(report, "; ", error.what()));
    throw explain(error, entry, number);
  } catch (...) {
    flight_record_->end(number, FlightEntry::State::kFailed);
    throw;
  }
}

// Who did not answer is in the transport's message. Where this rank and the others were is added.
CollectiveError Communicator::explain(const CollectiveError& error, const FlightEntry& entry, uint64_t number) const {
  if (error.failure() != CollectiveFailure::kTimeout) return error;
  const auto before = flight_record_->latest_done(number);
  const std::string line =
      text("rank ", rank_, " waits in ", entry.title(), ": ", error.what(),
           before ? text("; the last operation that ended here was ", before->title()) : std::string());
  log(LogLevel::kError, line, "; ", flight_record_->summary());
  return CollectiveError(error.failure(), error.rank(), line);
}

void Communicator::shutdown() {
  if (left_) return;
  left_ = true;
  process_group_.reset();
  queue_->close();
  if (backend_) backend_->shutdown();
  queue_->join();
}

}  // namespace accel::comm
