// How a model that is prepared is shared out: as the settings of sharding say, or those of DeepSpeed.
#include <string>
#include <utility>

#include "accelerator/accelerator.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "config/deepspeed_config.hpp"
#include "config/fsdp_settings.hpp"

namespace accel::accelerator {

namespace {

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

}  // namespace

Accelerator::ShardingChoice Accelerator::choose_sharding(const PrepareModelSettings& preparation) const {
  state::AccumulationSettings accumulation = state_.gradient_state()->settings();
  const DeepspeedSettings deepspeed = resolve_deepspeed_settings(preparation.deepspeed);
  if (!deepspeed.enabled)
    return {resolve_fsdp_settings(preparation.fsdp, state_.mesh()->size("shard") > 1), 0, accumulation};
  require(!preparation.fsdp.enabled.value_or(false), Status::kInvalidArgument,
          "fsdp.enabled and deepspeed.enabled are both 1, and both say how a model is sharded; expected one of them");
  DeepspeedConfig config = read_deepspeed_config(
      deepspeed, {state_.mixed_precision(), accumulation.num_steps, state_.data_parallel()->size()});
  report_deepspeed(config, accumulation.num_steps, /*with_keys=*/models_.empty());
  accumulation.num_steps = config.gradient_accumulation_steps;
  accumulation.sync_each_batch = accumulation.sync_each_batch || config.shards_gradients;
  return {std::move(config.fsdp), config.gradient_clipping, accumulation};
}

}  // namespace accel::accelerator
