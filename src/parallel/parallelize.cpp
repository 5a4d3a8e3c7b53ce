// Chooses the kind of parallelism; the only source above the kinds that knows them.
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <utility>

#include "parallel/ddp/distributed_data_parallel.hpp"
#include "parallel/ddp/replicated_memory.hpp"
#include "parallel/fsdp/auto_wrap.hpp"
#include "parallel/fsdp/fully_sharded_data_parallel.hpp"
#include "parallel/fsdp/sharded_gradients.hpp"
#include "parallel/fsdp/sharded_memory.hpp"
#include "parallel/memory_estimate.hpp"
#include "parallel/parallel_model.hpp"
#include "parallel/parameters/gradient_buckets.hpp"

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

}  // namespace

ParallelModelPtr parallelize(nn::ModulePtr module, const ModelRanks& ranks, const PrepareModelSettings& settings,
                             c10::Device device) {
  if (settings.fsdp.enabled.value_or(false) && settings.fsdp.activation_checkpointing)
    checkpoint_wrapped_modules(module, settings.fsdp);
  if (ranks.gradient->size() == 1 || settings.evaluation_mode) return single_process_model(std::move(module));
  if (is_sharded(ranks.gradient->size(), settings.fsdp))
    return FullyShardedDataParallel::create(std::move(module), ranks, settings.fsdp, device);
  if (!has_trainable_parameter(*module)) return single_process_model(std::move(module));
  return std::make_shared<DistributedDataParallel>(std::move(module), ranks.gradient, settings.ddp);
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
