// Parameters whose gradients the application computes: their registration and their steps.
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "accelerator/accelerator.hpp"
#include "accelerator/ranks.hpp"
#include "base/error.hpp"
#include "checkpoint/run_on_all_ranks.hpp"
#include "config/generated/settings/parameters.hpp"

namespace accel::accelerator {

std::shared_ptr<PreparedParameters> Accelerator::register_parameters(const std::function<nn::NamedTensors()>& tensors,
                                                                     double bucket_cap_mb, const FsdpSettings& fsdp) {
  std::shared_ptr<const RegisteredMemory> memory;
  checkpoint::run_on_all_ranks(ranks_of(state_, *state_.gradient_group(), /*each_host=*/false), [&]() -> std::string {
    require(prepared_.grad_scaler == nullptr, Status::kUnsupported,
            "the state scales losses for fp16, which the application computes itself, and with it the gradients; "
            "expected mixed_precision 'no' or 'bf16', with parameters of any floating dtype");
    memory = std::make_shared<RegisteredMemory>(tensors(), state_.device());
    for (const ModelEntry& entry : prepared_.models)
      if (entry.memory != nullptr) memory->require_apart_from(*entry.memory);
    return {};
  });
  auto parameters = prepare_parameters(memory->module(), bucket_cap_mb, fsdp, memory->device());
  prepared_.models.back().memory = memory;
  memory->gather(*parameters->model());
  parameters->set_memory(std::move(memory));
  return parameters;
}

std::optional<double> Accelerator::step_parameters(PreparedParameters& parameters, const optim::Optimizer& optimizer,
                                                   const nn::NamedTensors& gradients,
                                                   const ParametersStepSettings& settings, bool wants_norm) {
  require(
      current_ == nullptr, Status::kInvalidState,
      "accel_parameters_step() counts the micro-batch, which accel_accumulate_begin() has done already; expected one "
      "of them");
  const auto own = std::find_if(prepared_.optimizers.begin(), prepared_.optimizers.end(),
                                [&optimizer](const auto& prepared) { return prepared.get() == &optimizer; });
  require(own != prepared_.optimizers.end(), Status::kInvalidArgument,
          "optimizer is not prepared by the state of the parameters; expected what accel_prepare_optimizer() gave");
  require(updates(optimizer, *parameters.model()->module()), Status::kInvalidState,
          "optimizer has none of the parameters; expected one of accel_parameters_module()");
  const bool complete =
      parameters.exchange_all(arrange_gradients(parameters.trained(), gradients, settings.allow_missing));
  if (!complete) return std::nullopt;
  std::optional<double> norm;
  if (settings.max_grad_norm.value || wants_norm)
    norm = clip_gradients_by_norm(parameters.model()->module(),
                                  settings.max_grad_norm.value.value_or(std::numeric_limits<double>::infinity()),
                                  settings.grad_norm_type)
               ->item<double>();
  (*own)->step();
  if (parameters.model()->parts() != nullptr) {
    for (const TrainedParameter& parameter : parameters.trained()) parameter.tensor.mutable_grad().reset();
    if (parameters.memory() != nullptr) parameters.memory()->gather(*parameters.model());
  }
  return norm;
}

}  // namespace accel::accelerator
