// SPDX-License-Identifier: Apache-2.0
#include "accelerator/prepared_objects.hpp"

#include <algorithm>
#include <utility>

#include "accelerator/prepared_model.hpp"
#include "base/error.hpp"
#include "parallel/localsgd/local_sgd.hpp"

namespace accel::accelerator {

parallel::ParallelModelPtr ModelEntry::parallel() const {
  if (const auto alive = prepared.lock()) return alive->parallel();
  return of_application != nullptr ? of_application : parallel::single_process_model(model);
}

std::vector<parallel::ParallelModelPtr> PreparedObjects::parallel_models() const {
  std::vector<parallel::ParallelModelPtr> found;
  for (const ModelEntry& entry : models) found.push_back(entry.parallel());
  return found;
}

std::vector<nn::ModulePtr> PreparedObjects::modules() const {
  std::vector<nn::ModulePtr> found;
  for (const ModelEntry& entry : models) found.push_back(entry.model);
  return found;
}

const ModelEntry& PreparedObjects::entry_of(const nn::ModulePtr& module) const {
  const nn::ModulePtr model = unwrap_model(module);
  for (const ModelEntry& entry : models)
    if (entry.model == model) return entry;
  fail(Status::kInvalidArgument, "the model is not prepared by this state; expected one of accel_prepare_model()");
}

void PreparedObjects::require_own(const optim::Optimizer& optimizer) const {
  const bool is_own =
      std::any_of(optimizers.begin(), optimizers.end(), [&](const auto& own) { return own.get() == &optimizer; });
  require(is_own, Status::kInvalidArgument,
          "the optimizer is not prepared by this state; expected one of accel_prepare_optimizer()");
}

std::vector<std::shared_ptr<parallel::LocalSgd>> PreparedObjects::open_local_sgds() const {
  std::vector<std::shared_ptr<parallel::LocalSgd>> open;
  for (const auto& run : local_sgds)
    if (auto local_sgd = run.lock()) open.push_back(std::move(local_sgd));
  return open;
}

state::AccumulationWindows PreparedObjects::windows(const state::GradientState& gradient_state) const {
  state::AccumulationWindows windows = gradient_state.own();
  for (const ModelEntry& entry : models) windows.push_back(entry.accumulation);
  return windows;
}

bool PreparedObjects::are_split_by_programs() const {
  const std::string axes = placed->axes_of_models();
  return !axes.empty() && std::any_of(models.begin(), models.end(), [&](const ModelEntry& entry) {
    return !placed->describe_parts(*entry.model, axes);
  });
}

}  // namespace accel::accelerator
