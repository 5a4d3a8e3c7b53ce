#include "state/state.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/util/Flags.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <mutex>
#include <thread>

#include "base/deadline.hpp"
#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "comm/meeting_places.hpp"
#include "comm/plugin.hpp"
#include "comm/rendezvous.hpp"
#include "state/device_choice.hpp"

C10_DECLARE_int(caffe2_log_level);

namespace accel::state {
namespace {

void check_precision(Precision precision, c10::Device device) {
  require(precision != Precision::kFp16 || !device.is_cpu(), Status::kUnsupported,
          "mixed_precision is fp16 and the device is the CPU, where fp16 products run about 400 times slower than bf16 "
          "ones; "
          "use bf16");
  require(precision != Precision::kFp8, Status::kUnsupported,
          "mixed_precision is fp8, which this version cannot compute in; use bf16");
}

// Several ranks on one host must share its cores. The first state of a process decides, unless the user did; LibTorch
// refuses to change its mind later.
void share_cores(int64_t local_processes, int64_t num_threads) {
  if (num_threads > 0) return at::set_num_threads(static_cast<int>(num_threads));
  static std::once_flag once;
  std::call_once(once, [&] {
    if (local_processes <= 1 || environment_text("OMP_NUM_THREADS")) return;
    const int64_t cores = std::max<int64_t>(std::thread::hardware_concurrency(), 1);
    const int64_t threads = std::max<int64_t>(cores / local_processes, 1);
    at::set_num_threads(static_cast<int>(threads));
    log(LogLevel::kInfo, "OMP_NUM_THREADS is not set: ", threads, " threads for each of ", local_processes,
        " processes");
  });
}

// c10d reports a lost store with a stack trace on standard error. Our errors say it, and a library does not print; who
// wants the trace sets TORCH_CPP_LOG_LEVEL.
void quiet_torch_log() {
  constexpr int kFatal = 3;
  if (!environment_text("TORCH_CPP_LOG_LEVEL")) FLAGS_caffe2_log_level = kFatal;
}

// Tensors on the state's device can be sent, and those on the CPU.
std::vector<c10::DeviceType> device_types(c10::Device device) {
  if (device.is_cpu()) return {c10::DeviceType::CPU};
  return {device.type(), c10::DeviceType::CPU};
}

std::string backend_names(c10::Device device) {
  if (!device.is_cuda()) return "ucx";
  return comm::plugin_path("ucx") ? "cuda:nccl,cpu:ucx" : "nccl";
}

std::shared_ptr<comm::Communicator> connect(const StateSettings& settings, c10::Device device) {
  const ProcessEnvironment& process = settings.process;
  if (process.num_processes == 1) return std::make_shared<comm::Communicator>(device_types(device));
  quiet_torch_log();
  const std::chrono::milliseconds timeout(settings.timeout_ms.value);
  comm::RendezvousOptions options;
  options.host = process.main_process_ip;
  options.port = static_cast<int>(process.main_process_port.value);
  options.rank = static_cast<int>(process.process_index.value);
  options.size = static_cast<int>(process.num_processes.value);
  options.serve = !process.agent_store;
  options.attempt = process.restart_count;
  options.token = process.job_token;
  const auto store = comm::rendezvous(options, Deadline(timeout));
  auto communicator =
      std::make_shared<comm::Communicator>(store, options.rank, options.size, timeout, backend_names(device));
  communicator->set_meeting_places(std::make_shared<comm::MeetingPlaces>(*store, options));
  return communicator;
}

// The members of a group that share a host are those whose hosts began with the same rank of the parent.
void place_on_host(ProcessEnvironment& process, comm::Communicator& group, int64_t first_of_host) {
  const auto integers = at::TensorOptions().dtype(at::kLong).device(group.device());
  at::Tensor hosts = at::empty({group.size()}, integers);
  group.all_gather(at::full({1}, first_of_host, integers), hosts);
  hosts = hosts.cpu();
  const int64_t* const host = hosts.const_data_ptr<int64_t>();
  process.local_process_index.value = std::count(host, host + group.rank(), first_of_host);
  process.local_num_processes.value = std::count(host, host + group.size(), first_of_host);
}

AccumulationSettings accumulation(const StateSettings& settings) {
  return {settings.gradient_accumulation_steps, settings.adjust_scheduler, settings.sync_with_dataloader,
          settings.sync_each_batch, settings.true_divisor};
}

}  // namespace

State::State(const StateOptions& options)
    : settings_(resolve_state_settings(options)), device_(choose_device(settings_)) {
  check_precision(settings_.mixed_precision, device_);
  share_cores(settings_.process.local_num_processes, settings_.num_threads);
  communicator_ = connect(settings_, device_);
  communicator_->set_debug(settings_.debug.value);
  gradient_state_ = std::make_shared<GradientState>(accumulation(settings_));
}

State::State(const State& parent, std::shared_ptr<comm::Communicator> group)
    : settings_(parent.settings_),
      device_(parent.device_),
      communicator_(std::move(group)),
      gradient_state_(std::make_shared<GradientState>(accumulation(settings_))) {
  communicator_->set_debug(settings_.debug.value);
  settings_.process.process_index.value = communicator_->rank();
  settings_.process.num_processes.value = communicator_->size();
  place_on_host(settings_.process, *communicator_, parent.process_index() - parent.local_process_index());
}

DistributedType State::distributed_type() const {
  if (!use_distributed()) return DistributedType::kNo;
  return device_.is_cpu() ? DistributedType::kMultiCpu : DistributedType::kMultiGpu;
}

bool State::check_trigger() {
  at::Tensor flag =
      at::full({1}, trigger_ ? 1 : 0, at::TensorOptions().dtype(at::kInt).device(communicator_->device()));
  communicator_->all_reduce(flag, comm::Reduction::kMax);
  const bool raised = flag.item<int32_t>() != 0;
  if (raised) trigger_ = false;
  return raised;
}

std::string State::describe() const {
  std::ostringstream out;
  out << "device = " << device_ << "\n"
      << "backend = " << (use_distributed() ? communicator_->backend_name() : "none") << "\n"
      << accel::describe(settings_);
  return out.str();
}

}  // namespace accel::state
