// SPDX-License-Identifier: Apache-2.0
#include "accelerator/parameters/step_parameters.hpp"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <limits>

#include "base/error.hpp"

namespace accel::accelerator {

std::optional<double> step_parameters(Accelerator& accelerator, PreparedParameters& parameters,
                                      const optim::Optimizer& optimizer, const nn::NamedTensors& gradients,
                                      const ParametersStepSettings& settings, bool wants_norm) {
  require(
      !accelerator.backward().in_micro_batch(), Status::kInvalidState,
      "accel_parameters_step() counts the micro-batch, which accel_accumulate_begin() has done already; expected one "
      "of them");
  const auto& optimizers = accelerator.prepared().optimizers;
  const auto own = std::find_if(optimizers.begin(), optimizers.end(),
                                [&optimizer](const auto& prepared) { return prepared.get() == &optimizer; });
  require(own != optimizers.end(), Status::kInvalidArgument,
          "optimizer is not prepared by the state of the parameters; expected what accel_prepare_optimizer() gave");
  require(updates(optimizer, *parameters.model()->module()), Status::kInvalidState,
          "optimizer has none of the parameters; expected one of accel_parameters_module()");
  const bool complete =
      parameters.exchange_all(arrange_gradients(parameters.trained(), gradients, settings.allow_missing));
  if (!complete) return std::nullopt;
  std::optional<double> norm;
  if (settings.max_grad_norm.value || wants_norm)
    norm = accelerator.clipping()
               .clip_gradients_by_norm(parameters.model()->module(),
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
