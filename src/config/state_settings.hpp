// All settings of a state, resolved once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "config/precision_name.hpp"
#include "config/process_environment.hpp"
#include "config/setting.hpp"

namespace accel {

// How far an update of the parameters moves a prepared scheduler on.
enum class SchedulerSteps : int32_t { kPerBatch, kPerUpdate };

// Which kernels compute float32 products on the CPU. The order is that of ACCEL_CPU_KERNELS_*.
enum class CpuKernels : int32_t { kAuto, kDefault, kOnednn };
// Where the memory of large CPU tensors comes from. The order is that of ACCEL_CPU_MEMORY_*.
enum class CpuMemory : int32_t { kAuto, kDefault, kCached };

struct StateOptions {
  std::optional<bool> cpu;
  std::optional<Precision> mixed_precision;
  std::optional<int64_t> gradient_accumulation_steps;
  std::optional<bool> adjust_scheduler, sync_with_dataloader, sync_each_batch, true_divisor;
  std::optional<bool> step_scheduler_with_optimizer, split_batches, debug, keep_output_dtype, device_placement;
  std::optional<int64_t> timeout_ms, num_threads;
  std::optional<SchedulerSteps> scheduler_steps;
  std::optional<CpuKernels> cpu_kernels;
  std::optional<CpuMemory> cpu_memory;
  std::optional<int64_t> cpu_memory_kept;
  std::optional<std::string> rng_types;
  ProcessOptions process;
};

struct StateSettings {
  Setting<bool> cpu;
  Setting<bool> cpu_affinity;         // ACCELERATE_CPU_AFFINITY
  Setting<std::string> torch_device;  // ACCELERATE_TORCH_DEVICE; empty: choose
  Setting<bool> fork_launched;        // FORK_LAUNCHED, which launchers of notebooks set
  Setting<Precision> mixed_precision;
  Setting<int64_t> gradient_accumulation_steps;
  Setting<bool> adjust_scheduler, sync_with_dataloader, sync_each_batch, true_divisor;
  Setting<bool> step_scheduler_with_optimizer, split_batches, debug, keep_output_dtype, device_placement;
  Setting<SchedulerSteps> scheduler_steps;
  Setting<int64_t> timeout_ms;
  Setting<int64_t> num_threads;    // 0: not decided by the program
  Setting<std::string> rng_types;  // joined by commas
  Setting<CpuKernels> cpu_kernels;
  Setting<CpuMemory> cpu_memory;
  Setting<int64_t> cpu_memory_kept;  // bytes; -1: a part of the machine's
  ProcessEnvironment process;
};

StateSettings resolve_state_settings(const StateOptions& options);
// Settings of a training in a job that is there already: an option that the job has decided otherwise is an error.
StateSettings share_settings(const StateSettings& job, const StateOptions& options);

// "name = value (source)", a line each.
std::string describe(const StateSettings& settings);

}  // namespace accel
