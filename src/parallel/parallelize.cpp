// Chooses the kind of parallelism; the only source above the kinds that knows them.
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "config/generated/choices/sharding_strategy.hpp"
#include "config/generated/settings/prepare/fsdp.hpp"
#include "config/generated/settings/prepare/prepare_model.hpp"
#include "nn/module_walks.hpp"
#include "parallel/context/context_split.hpp"
#include "parallel/ddp/distributed_data_parallel.hpp"
#include "parallel/ddp/replicated_memory.hpp"
#include "parallel/fsdp/auto_wrap.hpp"
#include "parallel/fsdp/fully_sharded_data_parallel.hpp"
#include "parallel/fsdp/sharded_gradients.hpp"
#include "parallel/fsdp/sharded_memory.hpp"
#include "parallel/memory_estimate.hpp"
#include "parallel/parallel_model.hpp"
#include "parallel/parameters/gradient_buckets.hpp"
#include "parallel/sequence_split.hpp"
#include "parallel/strategy.hpp"
#include "parallel/tensor/split_model.hpp"

namespace accel::parallel {
namespace {

bool has_trainable_parameter(const nn::Module& module) {
  const auto parameters = module.parameters();
  return std::any_of(parameters.begin(), parameters.end(),
                     [](const at::Tensor& tensor) { return tensor.requires_grad(); });
}

bool is_sharded(int ranks, const FsdpSettings& settings) {
  return ranks > 1 && settings.enabled.value_or(false) && settings.sharding_strategy != ShardingStrategy::kNoShard;
}

// Gives each rank along the axis "tensor" parts of layers.
ParallelModelPtr split_layers(const StrategyInput& input) {
  const std::string& plan = input.settings.tensor_parallel.plan.value;
  const bool sequence_parallel = input.settings.tensor_parallel.sequence_parallel;
  if (input.settings.split_by_program || plan == "none") return nullptr;
  const bool has_axis = input.ranks.tensor != nullptr && input.ranks.tensor->size() > 1;
  if (plan != "auto") {
    const std::vector<SplitRule> rules = read_plan(plan);
    if (has_axis)
      split_model(*input.module, rules, input.ranks.tensor, sequence_parallel);
    else
      log(LogLevel::kWarning,
          "there is a plan of tensor parallelism, and tensor_parallel_size is 1: no layer is split");
    return nullptr;
  }
  if (!has_axis || input.settings.evaluation_mode) return nullptr;
  if (nn::placements(*input.module).have_axis(kTensorAxis)) return nullptr;  // the program has split it
  split_model(*input.module, plan_of(*input.module, sequence_parallel), input.ranks.tensor, sequence_parallel);
  return nullptr;
}

// Keeps inputs of modules instead of activations.
ParallelModelPtr recompute(const StrategyInput& input) {
  const FsdpSettings& settings = input.settings.fsdp;
  if (settings.enabled.value_or(false) && settings.activation_checkpointing)
    checkpoint_wrapped_modules(input.module, settings);
  return nullptr;
}

ParallelModelPtr shard(const StrategyInput& input) {
  if (!is_sharded(input.ranks.gradient->size(), input.settings.fsdp)) return nullptr;
  return FullyShardedDataParallel::create(input.module, input.ranks, input.settings.fsdp, input.device);
}

ParallelModelPtr replicate(const StrategyInput& input) {
  if (input.ranks.gradient->size() == 1 || !has_trainable_parameter(*input.module)) return nullptr;
  return std::make_shared<DistributedDataParallel>(input.module, input.ranks.gradient, input.settings.ddp);
}

// The order in which strategies are applied: each sees what those before it have made of the module.
constexpr Strategy kStrategies[] = {recompute, shard, replicate};

}  // namespace

ParallelModelPtr parallelize(const nn::ModulePtr& module, const ModelRanks& ranks, const PrepareModelSettings& settings,
                             c10::Device device) {
  const StrategyInput input{module, ranks, settings, device};
  split_layers(input);
  if (!settings.evaluation_mode)
    for (const Strategy apply : kStrategies)
      if (auto model = apply(input)) return model;
  return single_process_model(module);
}

ParallelGradients parallelize_gradients(nn::ModulePtr module, const ModelRanks& ranks, const FsdpSettings& settings,
                                        double bucket_cap_mb, c10::Device device) {
  if (is_sharded(ranks.gradient->size(), settings)) {
    const auto model = FullyShardedDataParallel::create(std::move(module), ranks, settings, device);
    return {model, std::make_shared<ShardedGradients>(model)};
  }
  auto gradients = std::make_shared<GradientBuckets>(*module, ranks.gradient, bucket_cap_mb);
  return {single_process_model(std::move(module)), std::move(gradients)};
}

SequenceSplitPtr split_sequences(const ContextParallelSettings& settings,
                                 const std::shared_ptr<comm::Communicator>& group) {
  return make_context_split(settings, group);
}

MemoryEstimate estimate_memory(const nn::ModulePtr& module, const PrepareModelSettings& settings,
                               const MemoryRequest& request) {
  if (is_sharded(request.ranks, settings.fsdp)) return estimate_sharded_memory(module, settings.fsdp, request);
  return estimate_replicated_memory(*module, settings.ddp, request);
}

}  // namespace accel::parallel
