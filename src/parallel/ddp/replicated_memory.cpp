// SPDX-License-Identifier: Apache-2.0
#include "parallel/ddp/replicated_memory.hpp"

#include "config/generated/choices/precision.hpp"
#include "config/generated/settings/prepare/estimate_memory.hpp"
#include "nn/module_walks.hpp"
#include "parallel/fp8_estimate.hpp"

#include <ATen/core/Tensor.h>

#include <algorithm>

namespace accel::parallel {
namespace {

int64_t bytes_of(const at::Tensor& tensor) { return static_cast<int64_t>(tensor.nbytes()); }

// Which weights an operator casts is only known when it runs: taken are all but vectors.
int64_t autocast_copy(const at::Tensor& parameter, Precision precision) {
  const bool casts = precision != Precision::kNo && parameter.scalar_type() == at::kFloat && parameter.dim() > 1;
  return casts ? bytes_of(parameter) / 2 : 0;
}

}  // namespace

MemoryEstimate estimate_replicated_memory(const nn::Module& module, const EstimateMemorySettings& settings,
                                          const StateBytes& state_bytes) {
  MemoryUse use;
  int64_t gradients = 0, largest_gradient = 0;
  const Fp8Estimate fp8(module, settings.mixed_precision);
  for (const at::Tensor& parameter : module.parameters()) {
    use.parameters += bytes_of(parameter);
    use.parameter_copies +=
        fp8.covers(parameter) ? fp8.copy_bytes(parameter.numel()) : autocast_copy(parameter, settings.mixed_precision);
    if (!parameter.requires_grad()) continue;
    use.optimizer_states += state_bytes(parameter);
    gradients += bytes_of(parameter);
    largest_gradient = std::max(largest_gradient, bytes_of(parameter));
  }
  for (const auto& [name, buffer] : nn::named_buffers(module)) use.buffers += bytes_of(buffer);
  const bool has_buckets = settings.num_processes > 1;
  const bool in_buckets = has_buckets && settings.model_options.ddp.gradient_as_bucket_view;
  // Gradients that are not in the buckets before the last backward.
  const bool accumulates = settings.gradient_accumulation_steps > 1;
  const bool are_apart = accumulates && (!in_buckets || !settings.sync_each_batch);
  if (has_buckets) use.exchanged_gradients = gradients;

  MemoryEstimate estimate;
  MemoryUse forward = use;
  forward.activations = settings.activation_bytes;
  if (are_apart) forward.gradients = gradients;
  estimate.observe(TrainingPhase::kForward, forward);
  // Autograd makes each gradient anew; then it is copied into its bucket, or added to that of the micro-batches before.
  MemoryUse backward = forward;
  const bool keeps_own = are_apart || !in_buckets;
  backward.gradients = (keeps_own ? gradients : 0) + (in_buckets || accumulates ? largest_gradient : 0);
  estimate.observe(TrainingPhase::kBackward, backward);
  MemoryUse step = use;
  step.gradients = in_buckets ? 0 : gradients;
  estimate.observe(TrainingPhase::kStep, step);
  return estimate;
}

}  // namespace accel::parallel
