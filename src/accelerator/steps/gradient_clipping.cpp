// SPDX-License-Identifier: Apache-2.0
#include "accelerator/steps/gradient_clipping.hpp"

#include <ATen/core/Tensor.h>

#include <unordered_set>

#include "accelerator/prepared_model.hpp"
#include "accelerator/prepared_optimizer.hpp"
#include "base/error.hpp"
#include "parallel/uneven_inputs.hpp"

namespace accel::accelerator {

void require_known_norm(const nn::Module& module, const parallel::PlacedParameters& placed, const comm::Mesh& mesh) {
  require(placed.describe_parts(module, placed.axes_of_models()), Status::kUnsupported,
          "the ranks have different parts of the model (", mesh.describe(),
          "), so that a rank does not know the norm of all gradients; expected clipping by value, "
          "or a norm that the program computes over the groups of the mesh");
}

bool GradientClipping::unscale_gradients(optim::Optimizer* optimizer) const {
  if (!state_.gradient_state()->sync_gradients()) return false;
  bool found = optimizer == nullptr;
  for (const auto& prepared : prepared_.optimizers) {
    if (optimizer != nullptr && prepared.get() != optimizer) continue;
    found = true;
    prepared->update().unscale();
  }
  require(found, Status::kInvalidArgument,
          "optimizer is not prepared by this state; expected what accel_prepare_optimizer() gave");
  return true;
}

void GradientClipping::unscale_gradients_of(const nn::Module& model) const {
  if (prepared_.grad_scaler == nullptr) return;
  std::unordered_set<const c10::TensorImpl*> scaled;
  for (const at::Tensor& parameter : model.parameters())
    if (parameter.grad().defined()) scaled.insert(parameter.unsafeGetTensorImpl());
  std::vector<PreparedOptimizer*> owners;
  for (const auto& optimizer : prepared_.optimizers) {
    size_t covered = 0;
    for (const at::Tensor& parameter : optimizer->parameters())
      covered += scaled.erase(parameter.unsafeGetTensorImpl());
    if (covered > 0) owners.push_back(optimizer.get());
  }
  require(
      scaled.empty(), Status::kInvalidState, scaled.size(),
      " parameters of the module have scaled gradients and belong to no prepared optimizer; prepare their optimizer "
      "before clipping");
  for (PreparedOptimizer* optimizer : owners) optimizer->update().unscale();
}

GradientClipping::Clipped GradientClipping::begin(const nn::ModulePtr& model) const {
  unscale_gradients_of(*model);
  Clipped clipping{nullptr, parallel_model_of(model)->module()->parameters()};
  for (const auto& owner : prepared_.placed->models_of(clipping.parameters)) {
    if (!owner->has_uneven_inputs()) continue;
    const size_t all = owner->module()->parameters().size();
    require(clipping.parameters.size() == all, Status::kUnsupported, clipping.parameters.size(),
            " parameters of a sharded model are clipped while ranks may be without inputs, which would clip all ", all,
            "; expected the whole model");
    clipping.model = owner;
  }
  return clipping;
}

std::optional<at::Tensor> GradientClipping::clip_gradients_by_norm(const nn::ModulePtr& model, double max_norm,
                                                                   double norm_type) const {
  require_known_norm(*parallel_model_of(model)->module(), *prepared_.placed, *state_.groups().mesh());
  if (!state_.gradient_state()->sync_gradients()) return std::nullopt;
  const Clipped clipping = begin(model);
  if (clipping.model != nullptr)
    clipping.model->uneven_inputs()->announce_clip_by_norm(*clipping.model, max_norm, norm_type);
  return prepared_.placed->clip_gradients_by_norm(clipping.parameters, max_norm, norm_type);
}

bool GradientClipping::clip_gradients_by_value(const nn::ModulePtr& model, double clip_value) const {
  if (!state_.gradient_state()->sync_gradients()) return false;
  const Clipped clipping = begin(model);
  if (clipping.model != nullptr) clipping.model->uneven_inputs()->announce_clip_by_value(*clipping.model, clip_value);
  prepared_.placed->clip_gradients_by_value(clipping.parameters, clip_value);
  return true;
}

}  // namespace accel::accelerator
