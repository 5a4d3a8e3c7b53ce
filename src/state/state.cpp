// SPDX-License-Identifier: Apache-2.0
#include "state/state.hpp"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <c10/util/Flags.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <cmath>
#include <mutex>

#include "base/deadline.hpp"
#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/log_variable.hpp"
#include "comm/backend/backend_communicator.hpp"
#include "comm/backend/backend_names.hpp"
#include "comm/rendezvous/job_start.hpp"
#include "comm/rendezvous/rendezvous.hpp"
#include "comm/rendezvous/rendezvous_endpoints.hpp"
#include "config/generated/settings/state/state.hpp"
#include "config/precedence.hpp"
#include "config/precision_name.hpp"
#include "config/state_settings.hpp"
#include "kernels/attention/attention_dispatch.hpp"
#include "kernels/gelu_dispatch.hpp"
#include "kernels/matmul/convolution_dispatch.hpp"
#include "kernels/matmul/emulated_matmul.hpp"
#include "kernels/matmul/matmul_dispatch.hpp"
#include "kernels/memory/cpu_allocator.hpp"
#include "kernels/thread_count.hpp"
#include "launch/nvidia_gpus.hpp"
#include "machine/nvidia_driver.hpp"
#include "machine/processor_affinity.hpp"
#include "machine/processors.hpp"
#include "precision/autocast.hpp"
#include "state/device_choice.hpp"
#include "state/random.hpp"
#include "tensor/device/device.hpp"
#include "tensor/device/device_work.hpp"

C10_DECLARE_int(caffe2_log_level);

namespace accel::state {
namespace {

void check_precision(Precision precision, c10::Device device) {
  require(
      precision != Precision::kFp16 || !device.is_cpu(), Status::kUnsupported,
      "mixed_precision is fp16 and the device is the CPU, where fp16 is never faster than bf16 and needs loss scaling; "
      "use bf16");
  if (precision == Precision::kNo) return;
  // Under fp8 everything but linear layers is as under bf16.
  const c10::ScalarType dtype = precision == Precision::kFp16 ? at::kHalf : at::kBFloat16;
  const std::string name = precision_name(precision);
  require(tensor::supports_dtype(device, dtype), Status::kUnsupported, "mixed_precision is ", name,
          ", which the device ", device, " cannot compute in; use 'no'");
  require(precision::has_autocast(device.type()), Status::kUnsupported, "mixed_precision is ", name, " and the device ",
          device, " has no autocast: its plugin registers no operators for it; use 'no'");
}

bool is_nvidia(c10::Device device) { return tensor::device_kind(device) == tensor::DeviceKind::kCuda; }

// Whether the driver says that no GPU here computes in 8 bits.
bool lacks_fp8(c10::Device device) {
  if (!is_nvidia(device)) return false;
  bool is_told = false;
  const Json gpus = launch::nvidia_gpus();
  for (const Json& gpu : *gpus.items()) {
    if (json_flag(gpu, "fp8", false)) return false;
    is_told = is_told || json_member(gpu, "fp8") != nullptr;
  }
  return is_told;
}

// @accelerate AcceleratorState: fp8 on GPUs without it is fp16.
void choose_precision(StateSettings& settings, c10::Device device) {
  if (settings.mixed_precision != Precision::kFp8 || !lacks_fp8(device)) return;
  settings.mixed_precision.value = Precision::kFp16;
  static std::once_flag once;
  std::call_once(once, [] {
    log(LogLevel::kWarning,
        "mixed_precision is fp8, and the GPUs have a compute capability below 8.9, which cannot compute in 8 bits; it "
        "is fp16");
  });
}

// GPUs whose driver cannot copy from one to another, although it says so: ranks would hang.
void check_peer_copies(const StateSettings& settings, c10::Device device) {
  if (*settings.num_processes == 1 || !is_nvidia(device)) return;
  if (environment_text("NCCL_P2P_DISABLE") && environment_text("NCCL_IB_DISABLE")) return;
  const std::string driver = driver_without_peer_copies();
  require(driver.empty(), Status::kUnsupported, "the GPUs are of the RTX 40 series and their driver is ", driver,
          ", which cannot copy between them; expected driver 550.40.07 or later, or NCCL_P2P_DISABLE=1 and "
          "NCCL_IB_DISABLE=1, which accel launch sets");
}

// Divides the physical cores among the ranks of a host. By the first state of a process, unless the user has set it,
// because LibTorch does not allow later changes.
void share_cores(const StateSettings& settings, c10::Device device) {
  if (settings.num_threads.value) return kernels::set_num_threads(*settings.num_threads);
  static std::once_flag once;
  std::call_once(once, [&] {
    const int64_t local_processes = *settings.local_num_processes;
    if (local_processes <= 1) return;
    if (const auto given = environment_text("OMP_NUM_THREADS")) {
      // OpenMP reads this when it is loaded, so that it must be set before the process starts.
      const bool spins = !environment_text("OMP_WAIT_POLICY") && !environment_text("GOMP_SPINCOUNT");
      const int64_t processors = usable_processors();
      if (spins && at::get_num_threads() > 1 && at::get_num_threads() * local_processes > processors)
        log(LogLevel::kWarning, "OMP_NUM_THREADS is ", *given, " for each of ", local_processes, " processes on ",
            processors,
            " processors, where threads that spin at a barrier take the processors from others; start the processes "
            "with OMP_WAIT_POLICY=passive or fewer threads");
      return;
    }
    const int64_t cores = launch::usable_cores(), threads = std::max<int64_t>(cores / local_processes, 1);
    kernels::set_num_threads(threads);
    // Once on a host, and of threads that compute the models.
    const bool warns = device.is_cpu() && *settings.local_process_index == 0;
    log(warns ? LogLevel::kWarning : LogLevel::kInfo, "OMP_NUM_THREADS is not set: each of ", local_processes,
        " processes computes with ", threads, threads == 1 ? " thread" : " threads", ", its share of ", cores,
        " physical cores; set it, or num_threads, for another number");
  });
}

// If the user asks for it; once per process, because states on other threads are ranks of their own.
void bind_processors(const StateSettings& settings) {
  if (!settings.cpu_affinity.value) return;
  static std::once_flag once;
  std::call_once(once, [&] {
    const auto ranks = static_cast<int>(*settings.local_num_processes);
    const size_t processors =
        launch::set_numa_affinity(static_cast<int>(*settings.local_process_index), ranks, !settings.cpu.value).size();
    log(LogLevel::kInfo, "ACCELERATE_CPU_AFFINITY: this process has ",
        processors > 0 ? text(processors, " processors of its own")
                       : text("no processors of its own: fewer than ", ranks));
  });
}

// c10d prints a stack trace for a lost store on standard error. Our errors report it, and a library must not print; set
// TORCH_CPP_LOG_LEVEL for the trace.
void quiet_torch_log() {
  constexpr int kFatal = 3;
  static const bool is_quiet = [] {  // states may be made on several threads
    if (!environment_text("TORCH_CPP_LOG_LEVEL")) FLAGS_caffe2_log_level = kFatal;
    return true;
  }();
  (void)is_quiet;
}

// Tensors on the state's device can be sent, and those on the CPU.
std::vector<c10::DeviceType> device_types(c10::Device device) {
  if (device.is_cpu()) return {c10::DeviceType::CPU};
  return {device.type(), c10::DeviceType::CPU};
}

std::string chosen_backends(const StateSettings& settings, c10::Device device) {
  try {
    return comm::choose_backends(device.type(), settings.backend.value);
  } catch (const Error& error) {
    fail(error.status(), error.message(),
         settings.backend.source == "call" ? "" : text(" (from ", settings.backend.source, ")"));
  }
}

std::shared_ptr<comm::Communicator> connect(const StateSettings& settings, const LauncherEnvironment& launcher,
                                            c10::Device device) {
  if (*settings.num_processes == 1) {
    static_cast<void>(chosen_backends(settings, device));  // a wrong one is an error with one rank, too
    return std::make_shared<comm::BackendCommunicator>(device_types(device));
  }
  quiet_torch_log();
  const std::chrono::milliseconds timeout(*settings.timeout_ms);
  comm::RendezvousOptions options;
  options.host = settings.main_process_ip;
  options.port = static_cast<int>(settings.main_process_port.value);
  options.rank = static_cast<int>(*settings.process_index);
  options.size = static_cast<int>(*settings.num_processes);
  options.serve = !launcher.agent_store || settings.main_process_port.source == "call";
  options.attempt = launcher.restart_count;
  options.token = launcher.job_token;
  const std::string backends = chosen_backends(settings, device), staged = comm::staged_devices(backends);
  if (!staged.empty() && *settings.local_process_index == 0)
    log(LogLevel::kInfo, "collectives of ", staged, " tensors are staged through host memory: ",
        settings.backend.is_default()
            ? text("no plugin has their own")
            : text("backend is '", settings.backend.value, "' (", settings.backend.source, ")"));
  log(LogLevel::kInfo, "rank ", options.rank, " of ", options.size, " meets the others at ", options.host, ":",
      options.port);
  const comm::RendezvousResult rendezvous = comm::rendezvous(options, Deadline(timeout));
  std::shared_ptr<comm::Communicator> communicator;
  try {
    communicator = std::make_shared<comm::BackendCommunicator>(rendezvous.store, options.rank, options.size, timeout,
                                                               backends, nullptr, rendezvous.endpoints->stay_on_host());
    rendezvous.start->end();
  } catch (const std::exception& error) {
    rendezvous.start->give_up(error);
  }
  communicator->group().rendezvous_endpoints = rendezvous.endpoints;
  return communicator;
}

// Members of a group share a host if their hosts have the same first rank in the parent.
void place_on_host(StateSettings& settings, comm::Communicator& group, int64_t first_of_host) {
  const auto integers = at::TensorOptions().dtype(at::kLong).device(group.device());
  at::Tensor hosts = at::empty({group.size()}, integers);
  group.all_gather(at::full({1}, first_of_host, integers), hosts);
  hosts = hosts.cpu();
  const int64_t* const host = hosts.const_data_ptr<int64_t>();
  settings.local_process_index.value = std::count(host, host + group.rank(), first_of_host);
  settings.local_num_processes.value = std::count(host, host + group.size(), first_of_host);
}

// Applies the settings for the CPU; the first call installs the overrides in this process.
kernels::ComputePolicy prepare_cpu(const StateSettings& settings) {
  kernels::ComputePolicy policy;
  policy.use_tuned_kernels = settings.cpu_kernels != CpuKernels::kDefault;
  policy.use_cached_memory = settings.cpu_memory == CpuMemory::kCached ||
                             (settings.cpu_memory == CpuMemory::kAuto && !kernels::application_uses_libtorch());
  if (policy.use_tuned_kernels) {
    kernels::install_matmul_dispatch(settings.cpu_kernels == CpuKernels::kOnednn ? kernels::MatmulChoice::kAll
                                                                                 : kernels::MatmulChoice::kMeasured);
    kernels::install_attention_dispatch();
    kernels::install_convolution_dispatch();
    kernels::install_gelu_dispatch();
  }
  if (policy.use_cached_memory) kernels::install_caching_allocator();
  if (settings.cpu_memory != CpuMemory::kDefault) {
    const std::optional<int64_t>& kept = settings.cpu_memory_kept;
    const auto local_processes = static_cast<size_t>(*settings.local_num_processes);
    kernels::set_max_cached_memory(kept ? static_cast<size_t>(*kept)
                                        : kernels::default_max_cached_memory(local_processes));
  }
  kernels::set_first_policy(policy);
  return policy;
}

// The cost of emulated bf16; empty if the processor has instructions for it.
std::string cost_of_bfloat16(const StateSettings& settings, c10::Device device, kernels::ComputePolicy policy) {
  const bool is_bfloat16 = settings.mixed_precision == Precision::kBf16 || settings.mixed_precision == Precision::kFp8;
  const bool is_emulated = is_bfloat16 && device.is_cpu() && bfloat16_support() == Bfloat16Support::kNone;
  if (!is_emulated) return "";
  if (!policy.use_tuned_kernels) return "LibTorch's kernels compute it, mostly slower than cpu_kernels 'auto'";
  static const double percent = std::round(100 * kernels::emulated_speed());
  return text("products run in float32 with values rounded to bf16, at ", percent, " % of the speed of float32");
}

void log_emulation(const StateSettings& settings, c10::Device device, kernels::ComputePolicy policy) {
  const std::string cost = cost_of_bfloat16(settings, device, policy);
  if (!cost.empty())
    log(LogLevel::kWarning, "mixed_precision is ", precision_name(settings.mixed_precision),
        ", which is emulated on this processor without bf16 instructions: ", cost, "; mixed_precision 'no' is faster");
}

DistributedType distributed_type_of(tensor::DeviceKind kind) {
  using tensor::DeviceKind;
  switch (kind) {
    case DeviceKind::kCpu:
      return DistributedType::kMultiCpu;
    case DeviceKind::kNpu:
      return DistributedType::kMultiNpu;
    case DeviceKind::kMlu:
      return DistributedType::kMultiMlu;
    case DeviceKind::kSdaa:
      return DistributedType::kMultiSdaa;
    case DeviceKind::kMusa:
      return DistributedType::kMultiMusa;
    case DeviceKind::kXpu:
      return DistributedType::kMultiXpu;
    case DeviceKind::kHpu:
      return DistributedType::kMultiHpu;
    case DeviceKind::kNeuron:
      return DistributedType::kMultiNeuron;
    case DeviceKind::kXla:
      return DistributedType::kXla;
    default:
      return DistributedType::kMultiGpu;
  }
}

AccumulationSettings accumulation(const StateSettings& settings) {
  return {settings.gradient_accumulation_steps, settings.adjust_scheduler, settings.sync_with_dataloader,
          settings.sync_each_batch, settings.true_divisor};
}

}  // namespace

State::State(const StateSettings& given)
    : settings_(std::make_shared<StateSettings>(resolve_state_settings(given))),
      launcher_(launcher_environment()),
      device_(choose_device(*settings_)) {
  set_log_rank(*settings_->process_index);
  if (!settings_->timeout_ms.value) settings_->timeout_ms.value = device_.is_cpu() ? 1800000 : 600000;
  if (device_.is_cpu() && names_device(*settings_)) host_choice_ = std::make_shared<tensor::HostChoice>();
  seed_late_accelerator(device_);
  choose_precision(*settings_, device_);
  check_precision(settings_->mixed_precision, device_);
  check_peer_copies(*settings_, device_);
  share_cores(*settings_, device_);
  bind_processors(*settings_);
  compute_policy_ = prepare_cpu(*settings_);
  if (is_local_main_process()) log_emulation(*settings_, device_, compute_policy_);
  communicator_ = connect(*settings_, launcher_, device_);
  communicator_->group().debug = settings_->debug.value;
  groups_ = std::make_shared<const ParallelGroups>(communicator_, *settings_);
  gradient_state_ = std::make_shared<GradientState>(accumulation(*settings_));
}

State::State(const State& parent, std::shared_ptr<comm::Communicator> group)
    : settings_(std::make_shared<StateSettings>(*parent.settings_)),
      launcher_(parent.launcher_),
      device_(parent.device_),
      communicator_(std::move(group)),
      gradient_state_(std::make_shared<GradientState>(accumulation(*settings_))),
      compute_policy_(parent.compute_policy_) {
  communicator_->group().debug = settings_->debug.value;
  settings_->process_index.value = communicator_->rank();
  settings_->num_processes.value = communicator_->size();
  place_on_host(*settings_, *communicator_, parent.process_index() - parent.local_process_index());
  // The parent's mesh is of its own ranks. Here all ranks are replicas.
  for (auto* const size :
       {&settings_->pipeline_parallel_size, &settings_->data_parallel_shard_size, &settings_->context_parallel_size,
        &settings_->tensor_parallel_size, &settings_->expert_parallel_size})
    size->value = 1;
  settings_->data_parallel_replicate_size.value.reset();
  groups_ = std::make_shared<const ParallelGroups>(communicator_, *settings_);
}

State::State(const State& parent, const StateSettings& given)
    : settings_(std::make_shared<StateSettings>(share_settings(*parent.settings_, given))),
      launcher_(parent.launcher_),
      device_(parent.device_),
      communicator_(parent.communicator_),
      groups_(parent.groups_),
      gradient_state_(parent.gradient_state_),
      compute_policy_(parent.compute_policy_) {
  require(!given.cpu || device_.is_cpu(), Status::kInvalidArgument, "cpu is 1 and the job computes on ", device_,
          "; expected none, or a job of its own");
  choose_precision(*settings_, device_);
  check_precision(settings_->mixed_precision, device_);
  gradient_state_->set_settings(accumulation(*settings_));
}

int State::process_index() const { return static_cast<int>(*settings_->process_index); }
int State::num_processes() const { return static_cast<int>(*settings_->num_processes); }
int State::local_process_index() const { return static_cast<int>(*settings_->local_process_index); }
int State::local_num_processes() const { return static_cast<int>(*settings_->local_num_processes); }

DistributedType State::distributed_type() const {
  if (!use_distributed()) return DistributedType::kNo;
  return distributed_type_of(tensor::device_kind(device_));
}

std::string State::describe() const {
  const bool tuned = compute_policy_.use_tuned_kernels;
  const std::string cost = cost_of_bfloat16(*settings_, device_, compute_policy_);
  const std::string& backends = communicator_->group().backend_name;
  const std::string staged = comm::staged_devices(backends);
  return text("device = ", device_, "\nbackend = ", use_distributed() ? backends : "none",
              staged.empty() ? "" : text("\ncollectives of ", staged, " tensors = staged through host memory"),
              "\nmesh = ", groups_->mesh()->describe(), "\n", describe_settings(*settings_),
              "float32 products = ", tuned ? kernels::describe_matmul_dispatch() : "LibTorch's kernels",
              "\nbf16 products = ", tuned ? kernels::describe_emulation(at::kBFloat16) : "LibTorch's kernels", "\n",
              cost.empty() ? "" : "bf16 is emulated = " + cost + "\n", "memory of large CPU tensors = ",
              compute_policy_.use_cached_memory ? "cached for the next" : "the C library's", "\n");
}

}  // namespace accel::state
