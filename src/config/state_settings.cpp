#include "config/state_settings.hpp"

#include <sstream>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "config/unsupported_environment.hpp"

namespace accel {
namespace {

constexpr int64_t kDefaultTimeoutMs = 600000;
constexpr const char* kCpuKernels[] = {"auto", "default", "onednn"};
constexpr const char* kCpuMemory[] = {"auto", "default", "cached"};

std::optional<Precision> precision_from_environment() {
  const auto name = environment_text("ACCELERATE_MIXED_PRECISION");
  if (!name) return std::nullopt;
  return parse_precision(*name, "environment variable ACCELERATE_MIXED_PRECISION");
}

// One of the names of an enumeration, in its order.
template <typename Choice, size_t kCount>
std::optional<Choice> choice_from_environment(const char* variable, const char* const (&names)[kCount]) {
  const auto name = environment_text(variable);
  if (!name) return std::nullopt;
  std::string known;
  for (size_t index = 0; index < kCount; ++index) {
    if (*name == names[index]) return static_cast<Choice>(index);
    known += text(index == 0 ? "" : ", ", names[index]);
  }
  fail(Status::kInvalidArgument, "environment variable ", variable, " is '", *name, "'; expected one of ", known);
}

template <typename Choice, size_t kCount>
void line(std::ostream& out, const char* name, const Setting<Choice>& setting, const char* const (&names)[kCount]) {
  out << name << " = " << names[static_cast<size_t>(setting.value)] << " (" << setting.source << ")\n";
}

void line(std::ostream& out, const char* name, const Setting<bool>& setting) {
  out << name << " = " << (setting.value ? "yes" : "no") << " (" << setting.source << ")\n";
}

template <typename T>
void line(std::ostream& out, const char* name, const Setting<T>& setting) {
  out << name << " = " << setting.value << " (" << setting.source << ")\n";
}

// What each training of a job decides for itself.
void resolve_training(const StateOptions& options, StateSettings& result) {
  result.mixed_precision =
      resolve(options.mixed_precision, "ACCELERATE_MIXED_PRECISION", precision_from_environment(), Precision::kNo);
  result.gradient_accumulation_steps =
      resolve(options.gradient_accumulation_steps, "ACCELERATE_GRADIENT_ACCUMULATION_STEPS",
              environment_integer("ACCELERATE_GRADIENT_ACCUMULATION_STEPS"), int64_t{1});
  require(result.gradient_accumulation_steps >= 1, Status::kInvalidArgument, "gradient_accumulation_steps is ",
          result.gradient_accumulation_steps.value, " (from ", result.gradient_accumulation_steps.source,
          "); expected at least 1");
  result.adjust_scheduler = resolve(options.adjust_scheduler, false);
  result.sync_with_dataloader = resolve(options.sync_with_dataloader, true);
  result.sync_each_batch = resolve(options.sync_each_batch, false);
  result.true_divisor = resolve(options.true_divisor, false);
  result.step_scheduler_with_optimizer = resolve(options.step_scheduler_with_optimizer, true);
  result.scheduler_steps = resolve(options.scheduler_steps, SchedulerSteps::kPerBatch);
  result.split_batches = resolve(options.split_batches, false);
  result.keep_output_dtype = resolve(options.keep_output_dtype, false);
  result.device_placement = resolve(options.device_placement, true);
  result.rng_types = resolve<std::string>(options.rng_types, "");
}

}  // namespace

StateSettings resolve_state_settings(const StateOptions& options) {
  refuse_unsupported_environment();
  StateSettings result;
  resolve_training(options, result);
  result.cpu = resolve(options.cpu, "ACCELERATE_USE_CPU", environment_flag("ACCELERATE_USE_CPU"), false);
  result.cpu_affinity =
      resolve<bool>(std::nullopt, "ACCELERATE_CPU_AFFINITY", environment_flag("ACCELERATE_CPU_AFFINITY"), false);
  result.torch_device =
      resolve<std::string>(std::nullopt, "ACCELERATE_TORCH_DEVICE", environment_text("ACCELERATE_TORCH_DEVICE"), "");
  result.fork_launched = resolve<bool>(std::nullopt, "FORK_LAUNCHED", environment_flag("FORK_LAUNCHED"), false);
  result.debug = resolve(options.debug, "ACCELERATE_DEBUG_MODE", environment_flag("ACCELERATE_DEBUG_MODE"), false);
  result.timeout_ms =
      resolve(options.timeout_ms, "ACCEL_TIMEOUT_MS", environment_integer("ACCEL_TIMEOUT_MS"), kDefaultTimeoutMs);
  require(result.timeout_ms > 0, Status::kInvalidArgument, "timeout_ms is ", result.timeout_ms.value, " (from ",
          result.timeout_ms.source, "); expected a positive number of milliseconds");
  result.num_threads = resolve(options.num_threads, int64_t{0});
  require(!options.num_threads || *options.num_threads >= 1, Status::kInvalidArgument, "num_threads is ",
          result.num_threads.value, "; expected at least 1");
  result.cpu_kernels =
      resolve(options.cpu_kernels, "ACCEL_CPU_KERNELS",
              choice_from_environment<CpuKernels>("ACCEL_CPU_KERNELS", kCpuKernels), CpuKernels::kAuto);
  result.cpu_memory = resolve(options.cpu_memory, "ACCEL_CPU_MEMORY",
                              choice_from_environment<CpuMemory>("ACCEL_CPU_MEMORY", kCpuMemory), CpuMemory::kAuto);
  result.cpu_memory_kept = resolve(options.cpu_memory_kept, "ACCEL_CPU_MEMORY_KEPT",
                                   environment_integer("ACCEL_CPU_MEMORY_KEPT"), int64_t{-1});
  require(result.cpu_memory_kept.value >= 0 || result.cpu_memory_kept.source == "default", Status::kInvalidArgument,
          "cpu_memory_kept is ", result.cpu_memory_kept.value, " (from ", result.cpu_memory_kept.source,
          "); expected 0 or more bytes");
  result.process = resolve_process_environment(options.process);
  return result;
}

StateSettings share_settings(const StateSettings& job, const StateOptions& options) {
  const auto require_same = [](const char* name, const auto& given, const auto& decided) {
    require(!given || *given == decided, Status::kInvalidArgument, name,
            " differs from that of the job, which its first state decided; expected the same, or none");
  };
  require_same("debug", options.debug, job.debug.value);
  require_same("timeout_ms", options.timeout_ms, job.timeout_ms.value);
  require_same("num_threads", options.num_threads, job.num_threads.value);
  require_same("cpu_kernels", options.cpu_kernels, job.cpu_kernels.value);
  require_same("cpu_memory", options.cpu_memory, job.cpu_memory.value);
  require_same("cpu_memory_kept", options.cpu_memory_kept, job.cpu_memory_kept.value);
  require_same("process_index", options.process.process_index, job.process.process_index.value);
  require_same("num_processes", options.process.num_processes, job.process.num_processes.value);
  require_same("local_process_index", options.process.local_process_index, job.process.local_process_index.value);
  require_same("local_num_processes", options.process.local_num_processes, job.process.local_num_processes.value);
  require_same("main_process_ip", options.process.main_process_ip, job.process.main_process_ip.value);
  require_same("main_process_port", options.process.main_process_port, job.process.main_process_port.value);
  StateSettings result = job;
  resolve_training(options, result);
  return result;
}

std::string describe(const StateSettings& settings) {
  std::ostringstream out;
  line(out, "process_index", settings.process.process_index);
  line(out, "num_processes", settings.process.num_processes);
  line(out, "local_process_index", settings.process.local_process_index);
  line(out, "local_num_processes", settings.process.local_num_processes);
  line(out, "main_process_ip", settings.process.main_process_ip);
  line(out, "main_process_port", settings.process.main_process_port);
  line(out, "cpu", settings.cpu);
  line(out, "cpu_affinity", settings.cpu_affinity);
  out << "mixed_precision = " << precision_name(settings.mixed_precision) << " (" << settings.mixed_precision.source
      << ")\n";
  line(out, "gradient_accumulation_steps", settings.gradient_accumulation_steps);
  line(out, "adjust_scheduler", settings.adjust_scheduler);
  line(out, "sync_with_dataloader", settings.sync_with_dataloader);
  line(out, "sync_each_batch", settings.sync_each_batch);
  line(out, "true_divisor", settings.true_divisor);
  line(out, "step_scheduler_with_optimizer", settings.step_scheduler_with_optimizer);
  out << "scheduler_steps = " << (settings.scheduler_steps == SchedulerSteps::kPerBatch ? "per_batch" : "per_update")
      << " (" << settings.scheduler_steps.source << ")\n";
  line(out, "split_batches", settings.split_batches);
  line(out, "keep_output_dtype", settings.keep_output_dtype);
  line(out, "device_placement", settings.device_placement);
  line(out, "rng_types", settings.rng_types);
  line(out, "debug", settings.debug);
  line(out, "timeout_ms", settings.timeout_ms);
  line(out, "cpu_kernels", settings.cpu_kernels, kCpuKernels);
  line(out, "cpu_memory", settings.cpu_memory, kCpuMemory);
  return out.str();
}

}  // namespace accel
