// SPDX-License-Identifier: Apache-2.0
#include "accelerator/parameters/gathered_parameters.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <utility>

#include "base/error.hpp"

namespace accel::accelerator {

GatheredParameters::GatheredParameters(std::shared_ptr<Accelerator> accelerator, std::vector<at::Tensor> parameters,
                                       std::optional<int> modifier)
    : accelerator_(std::move(accelerator)), parameters_(std::move(parameters)), modifier_(modifier) {
  const int ranks = accelerator_->state().groups().gradient_group()->size();
  require(!modifier_ || (*modifier_ >= 0 && *modifier_ < ranks), Status::kInvalidArgument, "modifier_rank is ",
          modifier_.value_or(-1), "; expected 0 to ", ranks - 1, ", or -1 for none");
  std::vector<parallel::ParallelModelPtr> done;
  try {
    for (const auto& model : models()) {
      model->parts()->gather_parameters(parameters_);
      done.push_back(model);
    }
  } catch (...) {
    for (const auto& model : done) model->parts()->release_parameters(parameters_, std::nullopt);
    throw;
  }
  gathered_ = true;
}

std::vector<parallel::ParallelModelPtr> GatheredParameters::models() const {
  std::vector<parallel::ParallelModelPtr> models;
  for (auto& model : accelerator_->prepared().placed->models())
    if (model->parts() != nullptr) models.push_back(std::move(model));
  return models;
}

GatheredParameters::~GatheredParameters() {
  if (!gathered_) return;
  for (const auto& model : models()) model->parts()->release_parameters(parameters_, std::nullopt);
}

void GatheredParameters::finish() {
  gathered_ = false;
  const parallel::PlacedParameters& placed = *accelerator_->prepared().placed;
  for (const auto& model : models()) model->parts()->release_parameters(parameters_, modifier_);
  if (!modifier_) return;
  const at::NoGradGuard no_grad;
  for (const at::Tensor& parameter : parameters_) {
    if (placed.find(parameter) == nullptr)
      accelerator_->state().groups().gradient_group()->broadcast(parameter.detach(), *modifier_);
  }
}

}  // namespace accel::accelerator
