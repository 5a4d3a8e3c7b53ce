// SPDX-License-Identifier: Apache-2.0
#include "accelerator/sharding_choice.hpp"

#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "config/deepspeed_config.hpp"
#include "config/fsdp_settings.hpp"
#include "config/generated/choices/sharding_strategy.hpp"
#include "config/generated/settings/prepare/deepspeed.hpp"
#include "parallel/schedule/sharding_schedule.hpp"

namespace accel::accelerator {
namespace {

// Parameters are gathered in the precision of the model's computation, unless the settings say another one.
FsdpSettings in_precision(FsdpSettings settings, Precision precision) {
  if (!settings.enabled.value_or(false) || !settings.param_dtype.value.empty()) return settings;
  if (precision == Precision::kBf16 || precision == Precision::kFp8)
    settings.param_dtype.set("bfloat16", "mixed_precision");
  if (precision == Precision::kFp16) settings.param_dtype.set("float16", "mixed_precision");
  return settings;
}

// Stages use their parameters in each micro-batch.
FsdpSettings for_stages(FsdpSettings settings, bool has_stages) {
  if (!has_stages || !settings.enabled.value_or(false)) return settings;
  if (settings.sharding_strategy.is_default() && !settings.reshard_after_forward.value)
    settings.sharding_strategy.set(ShardingStrategy::kShardGradOp, "pipeline_parallel_size");
  if (parallel::reshards_after_forward(settings))
    log(LogLevel::kWarning,
        "the model is in stages, whose parameters are gathered in each micro-batch by FULL_SHARD and "
        "reshard_after_forward 1; SHARD_GRAD_OP, the default of stages, gathers them once a step");
  return settings;
}

void report_deepspeed(const DeepspeedConfig& config, int64_t steps_of_state, bool with_keys) {
  if (with_keys && !config.without_effect.empty()) {
    std::string lines;
    for (const std::string& line : config.without_effect) lines += (lines.empty() ? "" : "; ") + line;
    log(LogLevel::kWarning, "DeepSpeed's settings that change nothing here: ", lines);
  }
  if (config.gradient_accumulation_steps != steps_of_state)
    log(LogLevel::kWarning, "gradient_accumulation_steps of the state is ", steps_of_state,
        " and that of DeepSpeed's settings ", config.gradient_accumulation_steps, ", which counts");
}

// In the names of DeepSpeed's fields.
std::string describe(const DeepspeedConfig& config) {
  const FsdpSettings& fsdp = config.fsdp;
  const char* const place = fsdp.offload_folder.value.empty() ? "cpu" : "nvme";
  std::string result = text("zero_stage ", config.zero_stage, ", gradient_accumulation_steps ",
                            config.gradient_accumulation_steps, ", gradient_clipping ", config.gradient_clipping);
  if (fsdp.offload_optimizer) result += text(", offload_optimizer_device ", place);
  if (fsdp.cpu_offload) result += text(", offload_param_device ", place);
  if (!fsdp.offload_folder.value.empty()) result += text(" in '", fsdp.offload_folder.value, "'");
  if (config.train_batch_size)
    result += text(", train_micro_batch_size_per_gpu ", *config.train_micro_batch_size_per_gpu, ", train_batch_size ",
                   *config.train_batch_size);
  return result;
}

}  // namespace

ShardingChoice choose_sharding(const PrepareModelSettings& preparation, const ShardingJob& job) {
  const DeepspeedSettings deepspeed = resolve_deepspeed_settings(preparation.deepspeed);
  if (!deepspeed.enabled)
    return {for_stages(in_precision(resolve_fsdp_settings(preparation.fsdp, job.has_shards), job.mixed_precision),
                       job.has_stages),
            0, std::nullopt, job.accumulation, ""};
  require(!preparation.fsdp.enabled.value_or(false), Status::kInvalidArgument,
          "fsdp.enabled and deepspeed.enabled are both 1, and both say how a model is sharded; expected one of them");
  state::AccumulationSettings accumulation = job.accumulation;
  DeepspeedConfig config = read_deepspeed_config(
      deepspeed, {job.mixed_precision, accumulation.num_steps, job.data_parallel_size, job.batch_sizes});
  report_deepspeed(config, accumulation.num_steps, job.reports_keys);
  accumulation.num_steps = config.gradient_accumulation_steps;
  accumulation.sync_each_batch = accumulation.sync_each_batch || config.shards_gradients;
  const std::string& name = deepspeed.plugin_name;
  std::string description = (name.empty() ? "" : text("plugin '", name, "', ")) + describe(config);
  return {for_stages(in_precision(std::move(config.fsdp), job.mixed_precision), job.has_stages),
          config.gradient_clipping, config.loss_scale, accumulation, std::move(description)};
}

}  // namespace accel::accelerator
