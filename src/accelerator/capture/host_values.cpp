// SPDX-License-Identifier: Apache-2.0
#include "accelerator/capture/host_values.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/error.hpp"
#include "optim/parameter_optimizer.hpp"
#include "tensor/tree.hpp"

namespace accel::accelerator {
namespace {

optim::ParameterOptimizer* own_optimizer(const PreparedOptimizer& optimizer) {
  return dynamic_cast<optim::ParameterOptimizer*>(optimizer.inner().get());
}

// By the states of an optimizer of the program, as torch has them: {"state": {0: {"step": ...}}}.
bool counts_on_host(const optim::Optimizer& optimizer) {
  const c10::IValue saved = optimizer.state_dict();
  const c10::IValue* const states = tree::find_member(saved, "state");
  if (states == nullptr || !states->isGenericDict()) return false;
  for (const auto& entry : states->toGenericDict()) {
    const c10::IValue* const step = tree::find_member(entry.value(), "step");
    if (step != nullptr && (!step->isTensor() || step->toTensor().is_cpu())) return true;
  }
  return false;
}

// So that settings that are not set, which are NaN, equal each other.
uint64_t bits_of(double value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

}  // namespace

HostValues::HostValues(const PreparedObjects& prepared, const PreparedOptimizers& optimizers) {
  for (const auto& optimizer : optimizers) {
    const auto* const own = own_optimizer(*optimizer);
    const bool writes_rates = own != nullptr && own->rule().records_numbers() && !own->rule().reads_device_rate();
    for (const optim::ParameterGroup& group : optimizer->groups()) {
      if (!writes_rates && !group.device_rate) rates_.push_back(group.lr);
      numbers_.push_back(bits_of(group.weight_decay));
      for (const double value : group.values) numbers_.push_back(bits_of(value));
      numbers_.push_back(static_cast<uint64_t>(group.precision));
    }
    if (own != nullptr) {
      numbers_.push_back(own->number_of_repeatable_state().value_or(0));
      numbers_.push_back(static_cast<uint64_t>(own->state_bytes()));
    }
  }
  for (const ModelEntry& entry : prepared.models) numbers_.push_back(entry.model->is_training() ? 1 : 0);
}

void make_device_rates(const PreparedOptimizers& optimizers) {
  for (const auto& optimizer : optimizers)
    if (const auto* const own = own_optimizer(*optimizer); own != nullptr && own->rule().reads_device_rate())
      optimizer->write_device_rates();
}

void write_device_rates(const PreparedOptimizers& optimizers) {
  for (const auto& optimizer : optimizers) {
    const auto& groups = optimizer->groups();
    if (std::any_of(groups.begin(), groups.end(), [](const auto& group) { return group.device_rate.has_value(); }))
      optimizer->write_device_rates();
  }
}

void require_recordable(const PreparedObjects& prepared, const state::State& state) {
  if (!state.use_distributed()) return;
  for (const ModelEntry& entry : prepared.models) {
    const parallel::ParallelModelPtr model = entry.parallel();
    require(model->exchange() != nullptr && model->parts() == nullptr && model->pipeline() == nullptr,
            Status::kUnsupported, "a step of ", state.num_processes(), " processes cannot be captured with a ",
            model->kind(),
            ", whose ranks exchange more than gradients; expected data parallelism of whole models, or a "
            "step without a capture");
  }
}

void require_repeatable(const PreparedOptimizers& optimizers, const state::State& state) {
  require(state.gradient_state()->sync_gradients(), Status::kInvalidState,
          "the captured step ended within an accumulation window; expected one that ends with an update");
  for (const auto& optimizer : optimizers) {
    const auto* const own = own_optimizer(*optimizer);
    const bool is_repeatable =
        own == nullptr ? !counts_on_host(*optimizer->inner()) : own->number_of_repeatable_state().has_value();
    require(is_repeatable, Status::kUnsupported, "the optimizer ",
            own == nullptr ? "of the program" : own->rule().name(),
            " counts its steps on the host, so a device cannot repeat its update; expected another one of the library, "
            "such as adamw; of torch, fused or capturable ones");
  }
}

}  // namespace accel::accelerator
