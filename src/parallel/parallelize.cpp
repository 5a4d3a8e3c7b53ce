// Chooses the kind of parallelism; the only source above the kinds that knows them.
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <utility>

#include "parallel/ddp/distributed_data_parallel.hpp"
#include "parallel/fsdp/auto_wrap.hpp"
#include "parallel/fsdp/fully_sharded_data_parallel.hpp"
#include "parallel/fsdp/sharded_gradients.hpp"
#include "parallel/parallel_model.hpp"
#include "parallel/parameters/gradient_buckets.hpp"

namespace accel::parallel {
namespace {

bool has_trainable_parameter(const nn::Module& module) {
  const auto parameters = module.parameters();
  return std::any_of(parameters.begin(), parameters.end(),
                     [](const at::Tensor& tensor) { return tensor.requires_grad(); });
}

bool is_sharded(const FsdpSettings& settings) {
  return settings.enabled.value_or(false) && settings.sharding_strategy != ShardingStrategy::kNoShard;
}

}  // namespace

ParallelModelPtr parallelize(nn::ModulePtr module, const ModelRanks& ranks, const PrepareModelSettings& settings,
                             c10::Device device) {
  if (settings.fsdp.enabled.value_or(false) && settings.fsdp.activation_checkpointing)
    checkpoint_wrapped_modules(module, settings.fsdp);
  if (ranks.gradient->size() == 1) return single_process_model(std::move(module));
  if (is_sharded(settings.fsdp))
    return FullyShardedDataParallel::create(std::move(module), ranks, settings.fsdp, device);
  if (settings.evaluation_mode || !has_trainable_parameter(*module)) return single_process_model(std::move(module));
  return std::make_shared<DistributedDataParallel>(std::move(module), ranks.gradient, settings.ddp);
}

ParallelGradients parallelize_gradients(nn::ModulePtr module, const ModelRanks& ranks, const FsdpSettings& settings,
                                        double bucket_cap_mb, c10::Device device) {
  if (is_sharded(settings) && ranks.gradient->size() > 1) {
    const auto model = FullyShardedDataParallel::create(std::move(module), ranks, settings, device);
    return {model, std::make_shared<ShardedGradients>(model)};
  }
  auto gradients = std::make_shared<GradientBuckets>(*module, ranks.gradient, bucket_cap_mb);
  return {single_process_model(std::move(module)), std::move(gradients)};
}

}  // namespace accel::parallel
