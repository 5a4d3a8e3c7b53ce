#include "optim/elementwise_rule.hpp"

#include <ATen/core/Tensor.h>

#include "kernels/elementwise.hpp"
#include "optim/parameter_state.hpp"
#include "optim/rounding.hpp"

namespace accel::optim {

void ElementwiseRule::set_decay(const ParameterGroup& group, bool decoupled, bool maximize, Numbers numbers) {
  if (decoupled) {
    numbers[kernels::kKeep] = 1 - group.lr * group.weight_decay;
  } else {
    numbers[kernels::kDecay] = group.weight_decay;
  }
  numbers[kernels::kSign] = maximize ? -1 : 1;
}

kernels::UpdateJob ElementwiseRule::make_job(const ParameterGroup& group, const Update& update) const {
  kernels::UpdateJob job;
  job.count = update.parameter.numel();
  job.parameter = kernels::stream_of(update.parameter);
  job.parameter.by_chance = update.rounds_by_chance;
  job.gradient = kernels::stream_of(update.gradient);
  size_t stream = 0;
  for (size_t slot = 0; slot < slots().size(); ++slot) {
    const Slot::Kind kind = this->kind(slot, update.parameter);
    if (kind != Slot::Kind::kNumber && update.slot(slot).defined() && needs(slot, group, update.parameter)) {
      kernels::Stream& state = job.states[stream++];
      state = stream_of(update.state->slots[slot], kind);
      state.by_chance = state.scales != nullptr;  // small changes of a moment add up
    }
  }
  if (update.rounded.defined()) job.rounded = kernels::stream_of(update.rounded);
  set_numbers(group, update, job.numbers);
  if (update.state->step.defined()) job.seed = noise_seed(update.step(), update.index);
  return job;
}

kernels::ListUpdate ElementwiseRule::make_lists(const ParameterGroup& group, c10::ArrayRef<Update> updates) const {
  kernels::ListUpdate lists;
  for (const Update& update : updates) {
    lists.parameters.push_back(update.parameter);
    lists.gradients.push_back(update.gradient);
    size_t list = 0;
    for (size_t slot = 0; slot < slots().size(); ++slot)
      if (slots()[slot].kind != Slot::Kind::kNumber && needs(slot, group, update.parameter))
        lists.states[list++].push_back(update.slot(slot));
    double numbers[kernels::kNumNumbers] = {1, 0, 1};
    set_numbers(group, update, numbers);
    lists.add_numbers(numbers);
  }
  return lists;
}

void ElementwiseRule::update(const ParameterGroup& group, c10::ArrayRef<Update> updates) const {
  if (!updates[0].parameter.is_cpu()) return update_on_device(group, updates);
  std::vector<kernels::UpdateJob> jobs;
  jobs.reserve(updates.size());
  for (const Update& update : updates) jobs.push_back(make_job(group, update));
  kernels::update(formula(group), jobs);
}

void ElementwiseRule::update_on_device(const ParameterGroup& group, c10::ArrayRef<Update> updates) const {
  kernels::update(formula(group), make_lists(group, updates));
}

}  // namespace accel::optim
