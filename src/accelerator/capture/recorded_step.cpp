// SPDX-License-Identifier: Apache-2.0
#include "accelerator/capture/recorded_step.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>

#include <unordered_set>
#include <utility>

#include "base/error.hpp"
#include "optim/lomo.hpp"
#include "optim/update_recording.hpp"
#include "precision/scale_recording.hpp"
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

// Some optimizers of the library update during backward.
bool has_part(PreparedOptimizer& optimizer, int64_t former_updates) {
  return optimizer.update().outcome().num_updates() != former_updates || optim::is_lomo(*optimizer.inner());
}

}  // namespace

RecordedStep::RecordedStep(const state::State& state, const PreparedObjects& prepared, const StepFunction& step,
                           const c10::IValue& inputs, const c10::Stream& stream)
    : prepared_(prepared), graph_(state.device()) {
  require_recordable(prepared, state);
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
  begin_scaling(state);
  updates_ = std::make_unique<optim::UpdateRecording>(state.device(), parameters_.size());
  const HostValues before(prepared, prepared.optimizers);
  std::vector<int64_t> updates;  // of each optimizer
  for (const auto& optimizer : prepared.optimizers) updates.push_back(optimizer->update().outcome().num_updates());
  try {
    const optim::UpdateRecording::Scope recorded(*updates_);
    graph_.capture(stream, [&] { results_ = detached(step(inputs_)); });
    for (size_t i = 0; i < updates.size(); i++)
      if (has_part(*prepared.optimizers[i], updates[i])) updated_.push_back(prepared.optimizers[i]);
    require_repeatable(updated_, state);
    require(HostValues(prepared, prepared.optimizers) == before, Status::kUnsupported,
            "the step changes settings of an optimizer, makes state for it, or changes the mode of a model, which a "
            "device cannot repeat; expected schedulers to step after the captured step, and warm-up steps that reach "
            "every parameter");
    host_values_.emplace(prepared, updated_);
    end_scaling();
    updates_->end();
  } catch (...) {
    scaling_.reset();
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

RecordedStep::~RecordedStep() = default;

bool RecordedStep::takes(const c10::IValue& inputs) const {
  const auto given = leaves_of(inputs), recorded = leaves_of(inputs_);
  if (given.size() != recorded.size()) return false;
  for (size_t i = 0; i < given.size(); i++)
    if (!is_alike(given[i], recorded[i])) return false;
  return true;
}

bool RecordedStep::is_current() const {
  if (scaling_ != nullptr && !scaling_->is_current()) return false;
  for (const Parameter& parameter : parameters_) {
    const at::Tensor& tensor = parameter.tensor;
    if (tensor.const_data_ptr() != parameter.data) return false;
    if (parameter.is_accumulated_to && !tensor.grad().is_same(parameter.gradient)) return false;
  }
  return HostValues(prepared_, updated_) == *host_values_;
}

void RecordedStep::drop_former_rates() const {
  if (!HostValues(prepared_, updated_).has_rates_of(*host_values_)) make_device_rates(updated_);
}

// Nothing may wait for flags of former steps while the device records.
void RecordedStep::begin_scaling(const state::State& state) {
  if (prepared_.grad_scaler == nullptr) return;
  for (const auto& optimizer : prepared_.optimizers) optimizer->update().outcome().settle();
  scaling_ = std::make_unique<precision::ScaleRecording>(prepared_.grad_scaler, state.device());
}

void RecordedStep::end_scaling() {
  if (scaling_ == nullptr) return;
  scaling_->end();
  for (const auto& flag : scaling_->flags()) {
    flagged_.push_back(nullptr);
    for (const auto& optimizer : prepared_.optimizers)
      if (optimizer->update().outcome().overflow() == flag) flagged_.back() = optimizer;
  }
}

void RecordedStep::finish_scaling() {
  if (scaling_ == nullptr) return;
  const auto flags = scaling_->note_replay();
  for (size_t i = 0; i < flags.size(); i++)
    if (flagged_[i] != nullptr) flagged_[i]->update().outcome().set(flags[i]);
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
  updates_->advance();
  write_device_rates(updated_);
  graph_.replay();
  finish_parameters();
  finish_scaling();
  return tree::map_tensors(results_, [](const at::Tensor& result) { return result.clone(); });
}

}  // namespace accel::accelerator
