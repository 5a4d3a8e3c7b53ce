// Chooses the kind of parallelism; the only source above the kinds that knows them.
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <utility>

#include "config/generated/settings/prepare/prepare_model.hpp"
#include "parallel/ddp/distributed_data_parallel.hpp"
#include "parallel/ddp/replicated_memory.hpp"
#include "parallel/fsdp/auto_wrap.hpp"
#include "parallel/fsdp/fully_sharded_data_parallel.hpp"
#include "parallel/fsdp/sharded_gradients.hpp"
#include "parallel/fsdp/sharded_memory.hpp"
#include "parallel/memory_estimate.hpp"
#include "parallel/parallel_model.hpp"
#include "parallel/parameters/gradient_buckets.hpp"
#include "parallel/strategy.hpp"

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
  if (!settings.evaluation_mode)
    for (const Strategy apply : kStrategies)
      if (auto model = apply({module, ranks, settings, device})) return model;
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

MemoryEstimate estimate_memory(const nn::ModulePtr& module, const PrepareModelSettings& settings,
                               const MemoryRequest& request) {
  if (is_sharded(request.ranks, settings.fsdp)) return estimate_sharded_memory(module, settings.fsdp, request);
  return estimate_replicated_memory(*module, settings.ddp, request);
}

}  // namespace accel::parallel
