#include "accelerator/capture/host_values.hpp"

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

}  // namespace

HostValues::HostValues(const PreparedObjects& prepared) {
  for (const auto& optimizer : prepared.optimizers) {
    for (const optim::ParameterGroup& group : optimizer->groups()) {
      if (!group.device_rate) rates_.push_back(group.lr);
      settings_.push_back(group.weight_decay);
      settings_.insert(settings_.end(), group.values.begin(), group.values.end());
      numbers_.push_back(static_cast<uint64_t>(group.precision));
    }
    if (const auto* const own = own_optimizer(*optimizer)) {
      numbers_.push_back(own->number_of_repeatable_state().value_or(0));
      numbers_.push_back(static_cast<uint64_t>(own->state_bytes()));
    }
  }
  for (const ModelEntry& entry : prepared.models) numbers_.push_back(entry.model->is_training() ? 1 : 0);
}

void write_device_rates(const PreparedObjects& prepared) {
  for (const auto& optimizer : prepared.optimizers)
    if (auto* const own = own_optimizer(*optimizer); own != nullptr && own->rule().reads_device_rate())
      own->write_device_rates();
}

void require_no_answers(const PreparedObjects& prepared) {
  require(prepared.grad_scaler == nullptr, Status::kUnsupported,
          "a step with loss scaling cannot be captured: the host counts the updates that gradients in float16 skip; "
          "expected mixed_precision bf16 or no");
}

void require_repeatable(const PreparedObjects& prepared, const state::State& state) {
  require(!state.use_distributed() || prepared.models.empty(), Status::kUnsupported, "a step of ",
          state.num_processes(),
          " processes cannot be captured: the exchange of gradients and its hooks run on the host; expected one "
          "process, or a step without a capture");
  require(state.gradient_state()->sync_gradients(), Status::kInvalidState,
          "the captured step ended within an accumulation window; expected one that ends with an update");
  for (const auto& optimizer : prepared.optimizers) {
    const auto* const own = own_optimizer(*optimizer);
    const bool is_repeatable =
        own == nullptr ? !counts_on_host(*optimizer->inner()) : own->number_of_repeatable_state().has_value();
    require(is_repeatable, Status::kUnsupported, "the optimizer ",
            own == nullptr ? "of the program" : own->rule().name(),
            " counts its steps on the host, so a device cannot repeat its update; expected one with fused kernels, "
            "such as adamw, or one without a count, such as sgd; of torch, fused or capturable ones");
  }
}

}  // namespace accel::accelerator
