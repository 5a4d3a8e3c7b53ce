// SPDX-License-Identifier: Apache-2.0
#include "optim/rules/elementwise_rule.hpp"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "kernels/update/elementwise.hpp"
#include "optim/parameter_state.hpp"
#include "optim/rules/rounding.hpp"
#include "optim/update_recording.hpp"

namespace accel::optim {
namespace {

// With values that leave the parameter and the gradient unchanged.
struct StepScalars {
  double values[kernels::kNumScalars] = {1, 0, 1};
};

}  // namespace

void ElementwiseRule::set_decay(const ParameterGroup& group, bool decoupled, bool maximize, Scalars scalars) {
  if (decoupled) {
    scalars[kernels::kKeep] = 1 - group.lr * group.weight_decay;
  } else {
    scalars[kernels::kDecay] = group.weight_decay;
  }
  scalars[kernels::kSign] = maximize ? -1 : 1;
}

kernels::UpdateArguments ElementwiseRule::make_arguments(const ParameterGroup& group, const Update& update) const {
  kernels::UpdateArguments arguments;
  arguments.count = update.parameter.numel();
  arguments.parameter = kernels::span_of(update.parameter);
  arguments.parameter.stochastic_rounding = update.stochastic_rounding;
  arguments.gradient = kernels::span_of(update.gradient);
  size_t next = 0;
  for (size_t entry = 0; entry < state_entries().size(); ++entry) {
    const StateEntry::Kind kind = this->kind(entry, update.parameter);
    if (kind != StateEntry::Kind::kNumber && update.state_tensor(entry).defined() &&
        needs(entry, group, update.parameter)) {
      kernels::ElementSpan& state = arguments.states[next++];
      state = span_of(update.state->values[entry], kind);
      state.stochastic_rounding = state.scales != nullptr;  // small changes of a moment add up
    }
  }
  if (update.rounded.defined()) arguments.rounded = kernels::span_of(update.rounded);
  set_scalars(group, update, arguments.scalars);
  if (update.state->step.defined()) arguments.seed = noise_seed(update.step(), update.index);
  return arguments;
}

kernels::ForeachUpdate ElementwiseRule::make_lists(const ParameterGroup& group, c10::ArrayRef<Update> updates) const {
  kernels::ForeachUpdate lists;
  lists.stochastic_rounding = updates[0].stochastic_rounding;
  for (const Update& update : updates) {
    lists.parameters.push_back(update.parameter);
    lists.gradients.push_back(update.gradient);
    size_t list = 0;
    for (size_t entry = 0; entry < state_entries().size(); ++entry)
      if (state_entries()[entry].kind != StateEntry::Kind::kNumber && needs(entry, group, update.parameter))
        lists.states[list++].push_back(update.state_tensor(entry));
    if (keeps_step_on_device()) lists.steps.push_back(update.state->step);
    if (!update.rounded.defined()) continue;
    lists.rounded.push_back(update.rounded);
    lists.rounded_parameters.push_back(update.parameter);
  }
  return lists;
}

void ElementwiseRule::update(const ParameterGroup& group, c10::ArrayRef<Update> updates) const {
  if (!updates[0].parameter.is_cpu()) return update_on_device(group, updates);
  std::vector<kernels::UpdateArguments> arguments;
  arguments.reserve(updates.size());
  for (const Update& update : updates) arguments.push_back(make_arguments(group, update));
  kernels::update(kernel(group), arguments);
}

void ElementwiseRule::update_on_device(const ParameterGroup& group, c10::ArrayRef<Update> updates) const {
  if (UpdateRecording::current() != nullptr) return record_on_device(group, updates);
  kernels::ForeachUpdate lists = make_lists(group, updates);
  for (const Update& update : updates) {
    StepScalars scalars;
    set_scalars(group, update, scalars.values);
    lists.add_scalars(scalars.values);
  }
  run_on_device(group, lists);
}

void ElementwiseRule::run_on_device(const ParameterGroup& group, const kernels::ForeachUpdate& lists) const {
  kernels::update(kernel(group), lists);
}

void ElementwiseRule::record_on_device(const ParameterGroup& group, c10::ArrayRef<Update> updates) const {
  const auto stored = updates[0].parameter.scalar_type();
  const auto dtype = updates[0].stochastic_rounding ? at::kFloat : stored;
  struct Alike {
    StepScalars scalars;
    std::vector<Update> updates;
  };
  std::vector<Alike> lists;
  for (const Update& update : updates) {
    StepScalars scalars;
    set_scalars(group, update, scalars.values);
    auto alike = std::find_if(lists.begin(), lists.end(), [&](const Alike& other) {
      return std::equal(std::begin(scalars.values), std::end(scalars.values), std::begin(other.scalars.values));
    });
    if (alike == lists.end()) alike = lists.insert(lists.end(), {scalars, {}});
    alike->updates.push_back(update);
  }
  for (const Alike& alike : lists) {
    kernels::ForeachUpdate update = make_lists(group, alike.updates);
    for (size_t i = 0; i < alike.updates.size(); ++i) update.add_scalars(alike.scalars.values);
    // The first ones are computed already, and counted by that.
    const at::Tensor numbers = UpdateRecording::current()->numbers(
        kernels::kNumScalars, dtype,
        [this, &group, updates = alike.updates, scalars = alike.scalars, is_first = true](double* to) mutable {
          if (!std::exchange(is_first, false))
            for (const Update& of_parameter : updates) {
              scalars = {};
              set_scalars(group, of_parameter, scalars.values);
            }
          std::copy(std::begin(scalars.values), std::end(scalars.values), to);
        });
    for (const int i : {kernels::kKeep, kernels::kRate, kernels::kScale, kernels::kShare1, kernels::kShare2})
      if (i != kernels::kKeep || group.weight_decay != 0) update.device_scalars[i] = numbers.select(0, i);
    run_on_device(group, update);
  }
}

}  // namespace accel::optim
