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

struct StateOptions {
  std::optional<bool> cpu;
  std::optional<Precision> mixed_precision;
  std::optional<int64_t> gradient_accumulation_steps;
  std::optional<bool> adjust_scheduler, sync_with_dataloader, sync_each_batch, true_divisor;
  std::optional<bool> step_scheduler_with_optimizer, split_batches, debug, keep_output_dtype, device_placement;
  std::optional<int64_t> timeout_ms, num_threads;
  std::optional<SchedulerSteps> scheduler_steps;
  std::optional<std::string> rng_types;
  ProcessOptions process;
};

struct StateSettings {
  Setting<bool> cpu;
  Setting<std::string> torch_device;  // ACCELERATE_TORCH_DEVICE; empty: choose
  Setting<Precision> mixed_precision;
  Setting<int64_t> gradient_accumulation_steps;
  Setting<bool> adjust_scheduler, sync_with_dataloader, sync_each_batch, true_divisor;
  Setting<bool> step_scheduler_with_optimizer, split_batches, debug, keep_output_dtype, device_placement;
  Setting<SchedulerSteps> scheduler_steps;
  Setting<int64_t> timeout_ms;
  Setting<int64_t> num_threads;    // 0: not decided by the program
  Setting<std::string> rng_types;  // joined by commas
  ProcessEnvironment process;
};

StateSettings resolve_state_settings(const StateOptions& options);

// "name = value (source)", a line each.
std::string describe(const StateSettings& settings);

}  // namespace accel
