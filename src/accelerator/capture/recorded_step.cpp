#include "accelerator/capture/recorded_step.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>

#include <unordered_set>
#include <utility>

#include "base/error.hpp"
#include "tensor/access.hpp"
#include "tensor/tree.hpp"

namespace accel::accelerator {
namespace {

// Each once.
std::vector<at::Tensor> all_parameters(const PreparedObjects& prepared) {
  std::vector<at::Tensor> all;
  std::unordered_set<const c10::TensorImpl*> known;
  const auto add = [&](const std::vector<at::Tensor>& tensors) {
    for (const at::Tensor& tensor : tensors)
      if (known.insert(tensor.unsafeGetTensorImpl()).second) all.push_back(tensor);
  };
  for (const auto& optimizer : prepared.optimizers) add(optimizer->parameters());
  for (const auto& module : prepared.modules()) add(module->parameters());
  return all;
}

std::vector<c10::IValue> leaves_of(const c10::IValue& tree) {
  std::vector<c10::IValue> leaves;
  tree::for_each_leaf(tree, [&](const c10::IValue& leaf) { leaves.push_back(leaf); });
  return leaves;
}

bool is_alike(const c10::IValue& given, const c10::IValue& recorded) {
  if (!given.isTensor() || !recorded.isTensor()) return !given.isTensor() && tree::equal(given, recorded);
  const at::Tensor& one = given.toTensor();
  const at::Tensor& other = recorded.toTensor();
  return one.sizes() == other.sizes() && one.scalar_type() == other.scalar_type();
}

c10::IValue detached(const c10::IValue& results) {
  return tree::map_tensors(results, [](const at::Tensor& result) { return result.detach(); });
}

}  // namespace

RecordedStep::RecordedStep(const state::State& state, const PreparedObjects& prepared, const StepFunction& step,
                           const c10::IValue& inputs, const c10::Stream& stream)
    : prepared_(prepared), graph_(state.device()) {
  require_no_answers(prepared);
  // A copy of its own, also of what is on the device: the program's tensors may be freed.
  inputs_ = tree::map_tensors(inputs, [&](const at::Tensor& input) {
    const at::NoGradGuard no_grad;
    at::Tensor own = at::empty_like(input, input.options().device(state.device()));
    own.copy_(input);
    return own;
  });
  std::vector<int64_t> versions;  // of the gradients
  for (const at::Tensor& parameter : all_parameters(prepared)) {
    parameters_.push_back({parameter, nullptr, {}, false, false, parameter.requires_grad()});
    held_.push_back(parameter.grad());
    versions.push_back(parameter.grad().defined() ? parameter.grad()._version() : 0);
    tensor::count_write(parameter);  // casts that were made before are not the recording's
  }
  const HostValues before(prepared);
  try {
    graph_.capture(stream, [&] { results_ = detached(step(inputs_)); });
    require_repeatable(prepared, state);
    host_values_.emplace(prepared);
    require(*host_values_ == before, Status::kUnsupported,
            "the step changes settings of an optimizer, makes state for it, or changes the mode of a model, which a "
            "device cannot repeat; expected schedulers to step after the captured step, and warm-up steps that reach "
            "every parameter");
  } catch (...) {
    forget_values();
    throw;
  }
  for (size_t i = 0; i < parameters_.size(); i++) {
    Parameter& parameter = parameters_[i];
    parameter.gradient = parameter.tensor.grad();
    const bool is_held = held_[i].is_same(parameter.gradient);
    const bool is_changed = is_held && held_[i].defined() && held_[i]._version() != versions[i];
    parameter.is_accumulated_to = is_changed;
    parameter.is_left_alone = is_held && !is_changed;
  }
  finish_parameters();
}

bool RecordedStep::takes(const c10::IValue& inputs) const {
  const auto given = leaves_of(inputs), recorded = leaves_of(inputs_);
  if (given.size() != recorded.size()) return false;
  for (size_t i = 0; i < given.size(); i++)
    if (!is_alike(given[i], recorded[i])) return false;
  return true;
}

bool RecordedStep::is_current() const {
  for (const Parameter& parameter : parameters_) {
    const at::Tensor& tensor = parameter.tensor;
    if (tensor.const_data_ptr() != parameter.data) return false;
    if (parameter.is_accumulated_to && !tensor.grad().is_same(parameter.gradient)) return false;
  }
  return HostValues(prepared_) == *host_values_;
}

// Nothing has been computed: neither gradients of the step nor casts of weights that were made in it have values.
void RecordedStep::forget_values() {
  for (size_t i = 0; i < parameters_.size(); i++) {
    parameters_[i].tensor.mutable_grad() = held_[i];
    tensor::count_write(parameters_[i].tensor);
  }
}

// The weights change without an operator that would say so, which caches of casts and autograd ask their versions for.
void RecordedStep::finish_parameters() {
  for (Parameter& parameter : parameters_) {
    if (parameter.is_trained || parameter.data == nullptr) tensor::count_write(parameter.tensor);
    parameter.data = parameter.tensor.const_data_ptr();
    if (!parameter.is_left_alone && !parameter.tensor.grad().is_same(parameter.gradient))
      parameter.tensor.mutable_grad() = parameter.gradient;
  }
}

c10::IValue RecordedStep::replay(const c10::IValue& inputs) {
  const at::NoGradGuard no_grad;
  const auto given = leaves_of(inputs), own = leaves_of(inputs_);
  for (size_t i = 0; i < own.size(); i++)
    if (own[i].isTensor()) own[i].toTensor().copy_(given[i].toTensor(), /*non_blocking=*/true);
  graph_.replay();
  finish_parameters();
  return tree::map_tensors(results_, [](const at::Tensor& result) { return result.clone(); });
}

}  // namespace accel::accelerator
