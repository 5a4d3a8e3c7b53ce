#include "comm/communicator.hpp"

#include <ATen/core/Tensor.h>
#include <algorithm>
#include <optional>
#include <sstream>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>

#include "base/current_call.hpp"
#include "base/deadline.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/read_line.hpp"
#include "base/torch_compat.hpp"
#include "comm/call_report.hpp"
#include "comm/plugin.hpp"
#include "comm/recorded_backend.hpp"
#include "comm/reduce_op.hpp"
#include "tensor/access.hpp"

namespace accel::comm {
namespace {

constexpr std::chrono::milliseconds kReportTime(2000);  // for the ranks to tell each other what they called

void check_dense(const at::Tensor& tensor, const char* name) {
  require(tensor.defined() && tensor.layout() == at::kStrided, Status::kTypeMismatch, name, " is not a dense tensor");
}

void check_contiguous(const at::Tensor& tensor, const char* name) {
  check_dense(tensor, name);
  require(tensor.is_contiguous(), Status::kInvalidArgument, name, " of shape ", tensor.sizes(),
          " is not contiguous; expected a contiguous tensor: copy it first");
}

// A foreign tensor may say that it is on cpu:0, which is the only one.
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

c10::intrusive_ptr<c10d::Work> copy_of_one_rank(const at::Tensor& input, const at::Tensor& output) {
  output.view({-1}).copy_(input.view({-1}));
  return {};
}

// "cuda:nccl,cpu:ucx", first things first.
std::vector<std::pair<c10::DeviceType, std::string>> parse_backends(const std::string& names) {
  std::vector<std::pair<c10::DeviceType, std::string>> backends;
  std::istringstream stream(names);
  for (std::string item; read_line(stream, item, ',');) {
    const size_t colon = item.find(':');
    const std::string name = colon == std::string::npos ? item : item.substr(colon + 1);
    const std::string device = colon != std::string::npos ? item.substr(0, colon) : name == "nccl" ? "cuda" : "cpu";
    backends.emplace_back(c10::Device(device).type(), name);
  }
  return backends;
}

std::vector<c10::DeviceType> devices_of(const std::string& backend_names) {
  std::vector<c10::DeviceType> devices;
  for (const auto& [device, name] : parse_backends(backend_names)) devices.push_back(device);
  return devices;
}

std::optional<c10::DeviceType> streams_of(const std::vector<c10::DeviceType>& devices) {
  const auto place = std::find(devices.begin(), devices.end(), c10::DeviceType::CUDA);
  return place == devices.end() ? std::nullopt : std::optional(*place);
}

c10::intrusive_ptr<c10d::Backend> make_backend(const std::string& name, BackendArguments arguments) {
  const auto environment = backend_environment();
  char error[1024] = "";
  auto failure = CollectiveFailure::kBackend;
  arguments.failure = &failure;
  c10d::Backend* made = load_plugin(name)(&arguments, error, sizeof error);
  if (made == nullptr)
    throw CollectiveError(failure, arguments.rank,
                          text("the ", name, " backend does not start: ", static_cast<const char*>(error)));
  return c10::intrusive_ptr<c10d::Backend>::reclaim(made);
}

}  // namespace

void check_reduction(const at::Tensor& tensor, Reduction reduction) {
  reduce_op(reduction, 1);
  const bool bitwise = reduction == Reduction::kAnd || reduction == Reduction::kOr || reduction == Reduction::kXor;
  require(!bitwise || at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true), Status::kTypeMismatch,
          "a bitwise reduction of ", tensor.scalar_type(), "; expected an integer or bool tensor");
  const bool ordered = reduction == Reduction::kMin || reduction == Reduction::kMax;
  require(!ordered || !tensor.is_complex(), Status::kTypeMismatch, "the smallest or largest of ", tensor.scalar_type(),
          "; complex numbers have no order");
}

Communicator::Communicator(const std::vector<c10::DeviceType>& devices, std::shared_ptr<StepTimes> step_times)
    : flight_record_(std::make_shared<FlightRecord>(0, 1)),
      step_times_(step_times ? std::move(step_times) : std::make_shared<StepTimes>()),
      queue_(std::make_shared<WorkQueue>(streams_of(devices))) {
  for (const c10::DeviceType device : devices) lanes_.push_back({device, {}});
}

Communicator::Communicator(c10::intrusive_ptr<c10d::Store> store, int rank, int size, std::chrono::milliseconds timeout,
                           const std::string& backend_name, std::shared_ptr<StepTimes> step_times)
    : rank_(rank),
      size_(size),
      timeout_(timeout),
      backend_name_(backend_name),
      store_(std::move(store)),
      process_group_(c10::make_intrusive<c10d::ProcessGroup>(store_, rank, size)),
      flight_record_(std::make_shared<FlightRecord>(rank, size)),
      step_times_(step_times ? std::move(step_times) : std::make_shared<StepTimes>()),
      queue_(std::make_shared<WorkQueue>(streams_of(devices_of(backend_name)))) {
  for (const auto& [device, name] : parse_backends(backend_name)) {
    lanes_.push_back(
        {device, make_backend(name, {store_.get(), rank, size, timeout.count(), "world", &CurrentCall::function})});
    process_group_->setBackend(
        device, c10d::ProcessGroup::BackendType::CUSTOM,
        c10::make_intrusive<RecordedBackend>(lanes_.back().backend, queue_, flight_record_, step_times_));
  }
  process_group_->setDefaultBackend(c10d::ProcessGroup::BackendType::CUSTOM);
  process_group_->setGroupName("accel");
  interruptible_.emplace([this] { abort(); });
}

Communicator::~Communicator() {
  interruptible_.reset();
  try {
    shutdown();
  } catch (const std::exception&) {
    // The group is left in any case.
  }
}

at::Device Communicator::device() const {
  const bool cpu =
      std::any_of(lanes_.begin(), lanes_.end(), [](const Lane& lane) { return lane.device == c10::DeviceType::CPU; });
  return cpu ? c10::DeviceType::CPU : lanes_[0].device;
}

std::vector<c10::DeviceType> Communicator::devices() const {
  std::vector<c10::DeviceType> devices;
  for (const Lane& lane : lanes_) devices.push_back(lane.device);
  return devices;
}

const Communicator::Lane& Communicator::lane_of(const at::Tensor& tensor) const {
  require(!left_ || size_ == 1, Status::kInvalidState, "the process group was destroyed; make a new state");
  const c10::DeviceType device = tensor.defined() ? tensor.device().type() : this->device().type();
  for (const Lane& lane : lanes_)
    if (lane.device == device) return lane;
  std::string known;
  for (const Lane& lane : lanes_) known += text(known.empty() ? "" : " or ", c10::DeviceTypeName(lane.device, true));
  accel::fail(Status::kInvalidArgument, "a tensor is on ", tensor.device(), "; this group sends tensors on ", known,
              ": move it there first");
}

void Communicator::check_tensor(const at::Tensor& tensor) const {
  check_dense(tensor, "a tensor");
  lane_of(tensor);
}

void Communicator::check_rank(int rank, const char* name) const {
  require(rank >= 0 && rank < size_, Status::kInvalidArgument, name, " is ", rank, "; expected 0 to ", size_ - 1);
}

bool scales_in_one_pass(const at::Tensor& tensor, Reduction reduction) {
  return (reduction == Reduction::kSum || reduction == Reduction::kMean) &&
         !at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true);
}

void Communicator::all_reduce(at::Tensor tensor, Reduction reduction, double scale) {
  check_contiguous(tensor, "tensor");
  check_reduction(tensor, reduction);
  require(scale == 1.0 || scales_in_one_pass(tensor, reduction), Status::kInvalidArgument, "scale is ", scale, " for ",
          tensor.scalar_type(), "; expected 1 where it is no sum or mean of floating-point numbers");
  tensor::count_write(tensor);
  run("all_reduce", tensor, [&](const Lane& lane) -> TorchWork {
    if (!lane.backend) {
      if (scale != 1.0) tensor.mul_(scale);
      return {};
    }
    auto options = options_for<c10d::AllreduceOptions>(lane);
    options.reduceOp = reduce_op(reduction, size_, scale);
    std::vector<at::Tensor> tensors{tensor};
    return lane.backend->allreduce(tensors, options);
  });
}

void Communicator::broadcast(at::Tensor tensor, int from) {
  check_contiguous(tensor, "tensor");
  check_rank(from, "from_process");
  tensor::count_write(tensor);
  run("broadcast", tensor, [&](const Lane& lane) -> TorchWork {
    if (!lane.backend) return {};
    auto options = options_for<c10d::BroadcastOptions>(lane);
    options.rootRank = from;
    std::vector<at::Tensor> tensors{tensor};
    return lane.backend->broadcast(tensors, options);
  });
}

void Communicator::all_gather(const at::Tensor& input, at::Tensor output) {
  check_parts(output, "output", input, "input", size_);
  tensor::count_write(output);
  run("all_gather", input, [&](const Lane& lane) -> TorchWork {
    if (!lane.backend) return copy_of_one_rank(input, output);
    at::Tensor source = input;
    const auto options = options_for<c10d::AllgatherOptions>(lane);
#if ACCEL_TORCH_HAS_SINGLE_COLLECTIVES
    return lane.backend->all_gather_single(output, source, options);
#else
    return lane.backend->_allgather_base(output, source, options);
#endif
  });
}

void Communicator::reduce_scatter(const at::Tensor& input, Reduction reduction, at::Tensor output) {
  check_parts(input, "input", output, "output", size_);
  check_reduction(input, reduction);
  tensor::count_write(output);
  run("reduce_scatter", input, [&](const Lane& lane) -> TorchWork {
    if (!lane.backend) return copy_of_one_rank(input, output);
    auto options = options_for<c10d::ReduceScatterOptions>(lane);
    options.reduceOp = reduce_op(reduction, size_);
    at::Tensor source = input;
#if ACCEL_TORCH_HAS_SINGLE_COLLECTIVES
    return lane.backend->reduce_scatter_single(output, source, options);
#else
    return lane.backend->_reduce_scatter_base(output, source, options);
#endif
  });
}

void Communicator::all_to_all(const at::Tensor& input, at::Tensor output) {
  check_parts(input, "input", output, "output", 1);
  require(input.numel() % size_ == 0, Status::kShapeMismatch, "input has ", input.numel(),
          " elements; expected a multiple of ", size_, ", a part for each rank");
  tensor::count_write(output);
  run("all_to_all", input, [&](const Lane& lane) -> TorchWork {
    if (!lane.backend) return copy_of_one_rank(input, output);
    at::Tensor source = input.view({size_, -1}), goal = output.view({size_, -1});
    std::vector<int64_t> even;
    const auto options = options_for<c10d::AllToAllOptions>(lane);
#if ACCEL_TORCH_HAS_SINGLE_COLLECTIVES
    return lane.backend->all_to_all_single(goal, source, even, even, options);
#else
    return lane.backend->alltoall_base(goal, source, even, even, options);
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
  tensor::count_write(output);
  run("scatter", output, [&](const Lane& lane) -> TorchWork {
    if (!lane.backend) return copy_of_one_rank(input, output);
    auto options = options_for<c10d::ScatterOptions>(lane);
    options.rootRank = from;
    std::vector<at::Tensor> outputs{output};
    std::vector<std::vector<at::Tensor>> inputs;
    if (rank_ == from) {
      inputs.emplace_back();
      for (const at::Tensor& part : input.view({size_, -1}).unbind(0)) inputs[0].push_back(part.view(output.sizes()));
    }
    return lane.backend->scatter(outputs, inputs, options);
  });
}

void Communicator::barrier() {
  run("wait_for_everyone", at::Tensor(), [&](const Lane& lane) -> TorchWork {
    if (!lane.backend) return {};
    return lane.backend->barrier(options_for<c10d::BarrierOptions>(lane));
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
  return post("send", tensor, [&](const Lane& lane) {
    std::vector<at::Tensor> tensors{tensor};
    return lane.backend->send(tensors, to, tag);
  });
}

Communicator::Message Communicator::post_receive(at::Tensor tensor, int from, int tag) {
  check_contiguous(tensor, "tensor");
  check_rank(from, "from_process");
  require(from != rank_, Status::kInvalidArgument, "from_process is ", from,
          ", this rank itself; expected another rank");
  require(tag >= 0, Status::kInvalidArgument, "tag is ", tag, "; expected 0 or more");
  tensor::count_write(tensor);
  return post("recv", tensor, [&](const Lane& lane) {
    std::vector<at::Tensor> tensors{tensor};
    return lane.backend->recv(tensors, from, tag);
  });
}

template <typename Post>
Communicator::Message Communicator::post(const char* operation, const at::Tensor& tensor, const Post& start) {
  const Lane& lane = lane_of(tensor);
  Message message{{}, &lane, begin(operation, lane, tensor)};
  try {
    message.work = start(lane);
  } catch (const std::exception& error) {
    flight_record_->fail(message.number, error);
    throw;
  }
  return message;
}

void Communicator::wait(const Message& message) {
  try {
    if (message.work) finish(*message.work, *message.lane);
    flight_record_->end(message.number, FlightEntry::State::kDone);
  } catch (const CollectiveError& error) {
    throw fail(error, message.number, /*collective=*/false);
  } catch (const std::exception& error) {
    flight_record_->fail(message.number, error);
    throw;
  }
}

std::shared_ptr<Work> Communicator::follow(const Message& message) {
  auto work = std::make_shared<Work>();
  queue_->watch(work);
  const auto end = [work, queue = queue_, record = flight_record_, number = message.number](std::exception_ptr error) {
    if (error)
      record->fail(number, error);
    else
      record->end(number, FlightEntry::State::kDone);
    queue->end_watched(*work, std::move(error));
  };
  if (!message.work)
    end(nullptr);
  else
    message.work->getFuture()->addCallback(
        [end](c10::ivalue::Future& future) { end(future.hasError() ? future.exception_ptr() : nullptr); });
  return work;
}

uint64_t Communicator::begin(const char* operation, const Lane& lane, const at::Tensor& tensor) {
  return flight_record_->begin(operation, lane.backend ? lane.backend->getSequenceNumberForGroup() : 0, tensor);
}

// On the CPU a blocking call may run on this thread. On other devices it is followed until the device has done it,
// since else a rank that does not come would be met where nobody expects a wait.
template <typename Options>
Options Communicator::options_for(const Lane& lane) const {
  Options options;
  options.timeout = timeout_;
  options.asyncOp = lane.device != c10::DeviceType::CPU;
  return options;
}

void Communicator::finish(c10d::Work& work, const Lane& lane) const {
  if (lane.device == c10::DeviceType::CPU) {
    work.wait();  // its deadline is the backend's
    return;
  }
  const Deadline deadline(timeout_);
  while (!work.isCompleted()) {
    if (deadline.passed())
      throw CollectiveError(
          CollectiveFailure::kTimeout, rank_,
          text("the ", c10::DeviceTypeName(lane.device), " has not done it after ", timeout_.count(), " ms"));
    std::this_thread::yield();
  }
  if (const auto error = work.exception()) std::rethrow_exception(error);
  work.wait();  // what follows on this thread's stream comes after it
}

template <typename Start>
void Communicator::run(const char* operation, const at::Tensor& tensor, const Start& start) {
  const StepTimes::Section waiting(*step_times_, StepPart::kCommunication);
  queue_->wait_until_idle();
  const Lane& lane = lane_of(tensor);
  const uint64_t number = begin(operation, lane, tensor);
  try {
    if (const TorchWork work = start(lane)) finish(*work, lane);  // backends may finish at once and return nothing
    flight_record_->end(number, FlightEntry::State::kDone);
  } catch (const CollectiveError& error) {
    throw fail(error, number, /*collective=*/true);
  } catch (const std::exception& error) {
    flight_record_->fail(number, error);
    throw;
  }
}

CollectiveError Communicator::fail(const CollectiveError& error, uint64_t number, bool collective) {
  const auto entry = flight_record_->find(number);
  std::string line;
  if (entry && collective && error.failure() == CollectiveFailure::kMismatch) {
    line = report_calls(*store_, rank_, size_, entry->sequence, entry->title(), std::min(timeout_, kReportTime));
    if (!line.empty()) line += text("; ", error.what());
  }
  if (entry && error.failure() == CollectiveFailure::kTimeout) {  // who did not answer is in the transport's message
    const auto before = flight_record_->latest_done(number);
    line = text("rank ", rank_, " waits in ", entry->title(), ": ", error.what(),
                before ? text("; the last operation that ended here was ", before->title()) : std::string());
  }
  const CollectiveError told = line.empty() ? error : CollectiveError(error.failure(), rank_, line);
  flight_record_->fail(number, told);
  return told;
}

void Communicator::abort() noexcept {
  for (const Lane& lane : lanes_) {
    try {
      if (lane.backend) lane.backend->abort();
    } catch (const std::exception& error) {
      try {
        log(LogLevel::kWarning, "a process group cannot be aborted: ", error.what());
      } catch (const std::exception&) {
        // No memory to tell it.
      }
    }
  }
}

void Communicator::shutdown() {
  if (left_) return;
  left_ = true;
  process_group_.reset();
  queue_->close();
  for (const Lane& lane : lanes_)
    if (lane.backend) lane.backend->shutdown();
  queue_->join();
}

}  // namespace accel::comm
