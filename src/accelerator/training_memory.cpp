// SPDX-License-Identifier: Apache-2.0
#include "accelerator/training_memory.hpp"

#include <ATen/core/Tensor.h>

#include "accelerator/deepspeed_plugins.hpp"
#include "accelerator/prepared_model.hpp"
#include "accelerator/prepared_objects.hpp"
#include "accelerator/sharding_choice.hpp"
#include "base/error.hpp"
#include "config/generated/settings/prepare/prepare_model.hpp"

namespace accel::accelerator {
namespace {

int64_t shard_ranks(const EstimateMemorySettings& settings, const FsdpSettings& fsdp) {
  const int64_t parts = settings.tensor_parallel_size, ranks = settings.num_processes;
  const bool is_hybrid = fsdp.sharding_strategy == ShardingStrategy::kHybridShard ||
                         fsdp.sharding_strategy == ShardingStrategy::kHybridShardZero2;
  require(!is_hybrid || settings.data_parallel_shard_size.value, Status::kInvalidArgument,
          "sharding_strategy is HYBRID_SHARD and data_parallel_shard_size is not set; expected the number of ranks "
          "that share a copy");
  const int64_t shards = settings.data_parallel_shard_size.value_or(ranks);
  require(ranks % shards == 0, Status::kInvalidArgument, "data_parallel_shard_size is ", shards,
          "; expected a divisor of num_processes", parts > 1 ? " / tensor_parallel_size" : "", ", which is ", ranks);
  return shards;
}

// The rows and positions of a micro-batch, which ranks along the axis context share.
void require_sequences(const EstimateMemorySettings& settings) {
  const int64_t ranks = settings.context_parallel_size, length = settings.sequence_length;
  require(settings.num_processes % ranks == 0, Status::kInvalidArgument, "context_parallel_size is ", ranks,
          "; expected a divisor of num_processes / tensor_parallel_size, which is ", settings.num_processes.value);
  require((settings.batch_size > 0) == (length > 0), Status::kInvalidArgument, "batch_size is ",
          settings.batch_size.value, " and sequence_length is ", length, "; expected both, or neither");
  require(length % ranks == 0, Status::kInvalidArgument, "sequence_length is ", length,
          "; expected a multiple of context_parallel_size, which is ", ranks);
  constexpr int64_t kMostPositions = int64_t{1} << 40;
  require(length == 0 || settings.batch_size <= kMostPositions / length, Status::kInvalidArgument, "batch_size is ",
          settings.batch_size.value, " and sequence_length is ", length, "; expected at most 2^40 positions");
}

}  // namespace

parallel::MemoryEstimate estimate_memory(const nn::ModulePtr& module, const optim::Optimizer* optimizer,
                                         const EstimateMemorySettings& given) {
  EstimateMemorySettings settings = given;
  const int64_t parts = settings.tensor_parallel_size;
  require(settings.num_processes % parts == 0, Status::kInvalidArgument, "tensor_parallel_size is ", parts,
          "; expected a divisor of num_processes, which is ", settings.num_processes.value);
  settings.num_processes = settings.num_processes / parts;  // that average gradients
  require_sequences(settings);
  ShardingJob job;
  job.mixed_precision = settings.mixed_precision;
  job.accumulation.num_steps = settings.gradient_accumulation_steps;
  job.accumulation.sync_each_batch = settings.sync_each_batch;
  job.data_parallel_size = settings.num_processes;
  PrepareModelSettings& prepared = settings.model_options;
  prepared.deepspeed = find_deepspeed_plugin(prepared.deepspeed, {});
  ShardingChoice choice = choose_sharding(prepared, job);
  prepared.fsdp = std::move(choice.settings);
  settings.gradient_accumulation_steps = choice.accumulation.num_steps;
  settings.sync_each_batch = choice.accumulation.sync_each_batch;
  settings.data_parallel_shard_size = shard_ranks(settings, prepared.fsdp);
  const auto state_bytes = [optimizer](const at::Tensor& parameter) {
    return optimizer != nullptr ? optimizer->expected_state_bytes(parameter) : 0;
  };
  const parallel::MemoryEstimate estimate = parallel::estimate_memory(unwrap_model(module), settings, state_bytes);
  const bool is_whole = !estimate.is_sharded && parts == 1;
  require(is_whole || optimizer == nullptr || optimizer->is_elementwise(), Status::kUnsupported,
          "the optimizer computes an update from a whole parameter, of which a rank of a sharded or split model has a "
          "part; expected one that updates each element by itself, such as AdamW or SGD, or NO_SHARD");
  return estimate;
}

}  // namespace accel::accelerator
