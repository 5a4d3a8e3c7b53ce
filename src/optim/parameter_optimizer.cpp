// SPDX-License-Identifier: Apache-2.0
#include "optim/parameter_optimizer.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_zero.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <cmath>
#include <unordered_set>
#include <utility>

#include "base/error.hpp"
#include "kernels/update/tensor_lists.hpp"
#include "optim/parameter_state.hpp"
#include "optim/rules/rounding.hpp"
#include "optim/update_recording.hpp"
#include "precision/autocast_weight_cache.hpp"
#include "precision/overflow_flag.hpp"
#include "tensor/access.hpp"
#include "tensor/file_memory.hpp"

namespace accel::optim {
namespace {

void check_parameter(const at::Tensor& parameter, size_t index) {
  require(parameter.defined() && parameter.layout() == at::kStrided && parameter.is_floating_point(),
          Status::kInvalidArgument, "parameter ", index, " of the group is not a dense tensor of a floating dtype");
  require(parameter.is_leaf(), Status::kInvalidArgument, "parameter ", index,
          " of the group was computed from other tensors; expected a leaf");
  require(parameter.is_non_overlapping_and_dense(), Status::kInvalidArgument, "parameter ", index, " of shape ",
          parameter.sizes(), " has gaps or overlaps in memory; expected a dense one");
}

// The gradient in the layout that kernels need. Autograd uses the parameter's, but a gradient may also be set by the
// application.
at::Tensor matching_gradient(const at::Tensor& parameter, const at::Tensor& gradient, size_t index) {
  require(gradient.layout() == at::kStrided, Status::kUnsupported, "parameter ", index,
          " has a sparse gradient; expected a dense one: make the embedding "
          "with sparse=false");
  require(gradient.sizes() == parameter.sizes() && gradient.device() == parameter.device(), Status::kShapeMismatch,
          "parameter ", index, " of shape ", parameter.sizes(), " on ", parameter.device(), " has a gradient of shape ",
          gradient.sizes(), " on ", gradient.device());
  if (gradient.strides() == parameter.strides() && gradient.scalar_type() == parameter.scalar_type()) return gradient;
  at::Tensor copy = at::empty_like(parameter);
  copy.copy_(gradient);
  return copy;
}

// Calls an operator only if something changes.
void bring(at::Tensor& tensor, c10::Device device, c10::ScalarType dtype) {
  if (tensor.device() != device || tensor.scalar_type() != dtype) tensor = tensor.to(device, dtype);
}

std::vector<ParameterGradient> parameters_with_gradient(const ParameterGroup& group, size_t first_index) {
  size_t index = first_index;
  std::vector<ParameterGradient> pairs;
  pairs.reserve(group.parameters.size());
  for (const auto& parameter : group.parameters) {
    const at::Tensor& gradient = parameter.grad();
    if (gradient.defined() && parameter.requires_grad())
      pairs.push_back({index, parameter, matching_gradient(parameter, gradient, index)});
    ++index;
  }
  return pairs;
}

// A rule that updates in its own backward has no use for gradients of another one.
bool step_after_backward(const std::vector<ParameterGroup>& groups) {
  for (const auto& group : groups)
    for (const auto& parameter : group.parameters)
      require(!parameter.grad().defined(), Status::kInvalidState,
              "a parameter of LOMO has a gradient, which would not be used: LOMO updates in its backward; expected "
              "accel_lomo_backward() in place of accel_backward()");
  return true;
}

void count_step(c10::ArrayRef<Update> updates) {
  std::vector<at::Tensor> on_device;
  for (const Update& update : updates) {
    const at::Tensor& step = update.state->step;
    if (!step.defined()) continue;
    if (step.is_cpu()) {
      *step.mutable_data_ptr<float>() += 1;  // an operator call each would cost more than small updates
      if (UpdateRecording* const recording = UpdateRecording::current()) recording->count(step);
    } else {
      on_device.push_back(step);
    }
  }
  if (!on_device.empty()) at::_foreach_add_(on_device, 1);
}

// For rules that know float32 alone: `stored` are the half-precision parameters, of which the updates may have masters.
void update_in_float32(const OpenStep& step, const UpdateRule& rule, const ParameterGroup& group,
                       const std::vector<at::Tensor>& stored, std::vector<Update>& updates) {
  const bool has_masters = group.precision == UpdatePrecision::kMasterWeights;
  std::vector<at::Tensor> gradients, values;
  for (const Update& update : updates) {
    gradients.push_back(update.gradient);
    values.push_back(update.parameter);
  }
  gradients = kernels::cast(gradients, at::kFloat);
  if (!has_masters) values = kernels::cast(values, at::kFloat);
  for (size_t i = 0; i < updates.size(); ++i) {
    updates[i].gradient = gradients[i];
    updates[i].parameter = values[i];
  }
  step.update(rule, group, updates);
  if (has_masters) return at::_foreach_copy_(stored, values);
  if (!stored[0].is_cpu()) return kernels::round_stochastically(values, stored);
  for (size_t i = 0; i < updates.size(); ++i)
    round_stochastically(values[i], stored[i], noise_seed(updates[i].step(), updates[i].index));
}

}  // namespace

double Update::step() const { return *state->step.const_data_ptr<float>(); }

ParameterOptimizer::ParameterOptimizer(std::unique_ptr<const UpdateRule> rule, const GivenSettings& settings)
    : rule_(std::move(rule)) {
  defaults_.lr = rule_->default_lr();
  defaults_.weight_decay = rule_->default_weight_decay();
  for (const Setting& setting : rule_->settings()) defaults_.values.push_back(setting.initial());
  for (const auto& [name, value] : settings) {
    if (!value) continue;
    check_setting(name, rule_->settings(), *value);
    setting_of(defaults_, name) = *value;
  }
  rule_->check(defaults_);
}

ParameterGroup& ParameterOptimizer::group(size_t index) {
  require(index < groups_.size(), Status::kNotFound, "parameter group ", index, " is not there; the optimizer has ",
          groups_.size());
  return groups_[index];
}

void ParameterOptimizer::add_group(std::vector<at::Tensor> parameters, std::optional<double> lr,
                                   std::optional<double> weight_decay) {
  ParameterGroup group = defaults_;
  group.lr = lr.value_or(group.lr);
  group.weight_decay = weight_decay.value_or(group.weight_decay);
  check_setting("lr", {}, group.lr);
  check_setting("weight_decay", {}, group.weight_decay);
  std::unordered_set<const c10::TensorImpl*> known;
  for (const auto& parameter : progress_.parameters) known.insert(parameter.unsafeGetTensorImpl());
  for (size_t i = 0; i < parameters.size(); ++i) {
    check_parameter(parameters[i], i);
    rule_->check_parameter(parameters[i], i);
    require(known.insert(parameters[i].unsafeGetTensorImpl()).second, Status::kInvalidArgument, "parameter ", i,
            " of the group is in the optimizer already; expected each one once");
  }
  progress_.parameters.insert(progress_.parameters.end(), parameters.begin(), parameters.end());
  progress_.states.resize(progress_.parameters.size());
  group.parameters = std::move(parameters);
  groups_.push_back(std::move(group));
  progress_.state_number += 1;
}

bool ParameterOptimizer::step_by(const Closure& closure) {
  return rule_->updates_in_backward() ? step_after_backward(groups_) : Optimizer::step_by(closure);
}

bool ParameterOptimizer::step() {
  if (rule_->updates_in_backward()) return step_after_backward(groups_);
  return step_unless(nullptr);
}

bool ParameterOptimizer::step_unless(const std::shared_ptr<precision::OverflowFlag>& overflow) {
  const bool is_placed =
      std::any_of(groups_.begin(), groups_.end(), [](const auto& group) { return group.state_memory; });
  if (overflow != nullptr && (rule_->updates_in_backward() || rule_->is_program() || is_placed)) return false;
  if (overflow != nullptr && overflow->is_recorded() && counts_on_host()) return false;
  progress_.latest.settle(progress_.states);
  progress_.latest = OpenStep(overflow);
  for (const auto& group : groups_) {
    const auto modes = rule_->modes(group);
    require(!modes || group.values[modes->mode] != 0, Status::kInvalidState,
            "the optimizer is in evaluation, where its parameters are their average; expected "
            "accel_optimizer_train(optimizer, 1) before a step");
  }
  const at::NoGradGuard no_grad;
  for (ParameterGroup& group : groups_)
    if (group.device_rate) group.device_rate->write(group.lr);
  std::vector<std::vector<ParameterGradient>> groups;  // all are looked at before any is changed
  groups.reserve(groups_.size());
  size_t first_index = 0;
  for (const auto& group : groups_) {
    groups.push_back(parameters_with_gradient(group, first_index));
    first_index += group.parameters.size();
  }
  for (size_t group = 0; group < groups.size(); ++group) {
    auto& pairs = groups[group];
    for (size_t begin = 0; begin < pairs.size();) {
      const at::Tensor first = pairs[begin].parameter;
      const auto is_alike = [&](const ParameterGradient& pair) {
        return pair.parameter.device() == first.device() && pair.parameter.scalar_type() == first.scalar_type();
      };
      const auto end = std::stable_partition(pairs.begin() + static_cast<std::ptrdiff_t>(begin), pairs.end(), is_alike);
      const size_t count = static_cast<size_t>(end - pairs.begin()) - begin;
      update_in_windows(groups_[group], {pairs.data() + begin, count});
      begin += count;
    }
  }
  return true;
}

// States that are in files are read a window ahead, while the one before it is updated. On devices windows limit the
// lists that rules need for a step, and the values that are saved until it is known whether the step is skipped.
void ParameterOptimizer::update_in_windows(const ParameterGroup& group, c10::ArrayRef<ParameterGradient> pairs) {
  const auto element_size = static_cast<int64_t>(pairs[0].parameter.element_size());
  const std::optional<size_t> kept_bytes = progress_.latest.most_bytes(*rule_);
  const bool in_files = static_cast<bool>(group.state_memory);
  const bool limits_lists = !pairs[0].parameter.is_cpu() && !rule_->rounds();
  if (!in_files && !limits_lists && !kept_bytes) return update(group, pairs);
  // Parameters of a window: some milliseconds of work on the CPU, and four lists in float32 on a device.
  int64_t most = limits_lists ? 4 << 20 : (32 << 20) / element_size;
  if (kept_bytes) most = std::min(most, static_cast<int64_t>(*kept_bytes) / element_size);
  const auto end_of_window = [&pairs, most](size_t begin) {
    int64_t elements = 0;
    while (begin < pairs.size() && (elements == 0 || elements + pairs[begin].parameter.numel() <= most))
      elements += pairs[begin++].parameter.numel();
    return begin;
  };
  const auto read_ahead = [this, &pairs, in_files](size_t begin, size_t end) {
    if (!in_files) return;
    for (size_t i = begin; i < end; ++i) {
      tensor::read_ahead(pairs[i].parameter);
      tensor::read_ahead(pairs[i].gradient);
      const ParameterState& state = progress_.states[pairs[i].index];
      if (state.master.defined()) tensor::read_ahead(state.master);
      for (const StateValue& value : state.values)
        if (value.tensor.defined()) tensor::read_ahead(value.tensor);
    }
  };
  size_t begin = 0, end = end_of_window(0);
  read_ahead(begin, end);
  while (begin < end) {
    const size_t next = end_of_window(end);
    read_ahead(end, next);
    update(group, pairs.slice(begin, end - begin));
    begin = std::exchange(end, next);
  }
}

void ParameterOptimizer::update_one(size_t group, size_t parameter) {
  const at::NoGradGuard no_grad;
  size_t index = parameter;
  for (size_t i = 0; i < group; ++i) index += groups_[i].parameters.size();
  const at::Tensor& tensor = groups_[group].parameters[parameter];
  const ParameterGradient pair{index, tensor, matching_gradient(tensor, tensor.grad(), index)};
  update(groups_[group], pair);
}

void ParameterOptimizer::write_device_rates() {
  const at::NoGradGuard no_grad;
  for (ParameterGroup& group : groups_) {
    if (group.parameters.empty() || group.parameters[0].is_cpu()) continue;
    require(rule_->reads_device_rate(), Status::kUnsupported, "updates of the optimizer \"", rule_->name(),
            "\" read no rate on the device; expected sgd, adam or adamw");
    const c10::Device device = group.parameters[0].device();
    for (const at::Tensor& parameter : group.parameters)
      require(parameter.device() == device, Status::kUnsupported, "a parameter group is on ", device, " and ",
              parameter.device(), "; a step that is captured needs each group on one device");
    if (!group.device_rate || group.device_rate->value.device() != device)
      group.device_rate = DeviceRate{at::full({}, group.lr, at::TensorOptions(device).dtype(at::kFloat)), group.lr};
    group.device_rate->write(group.lr);
  }
}

int64_t ParameterOptimizer::expected_state_bytes(const at::Tensor& parameter) const {
  return new_state_bytes(*rule_, groups_.empty() ? defaults_ : groups_.front(), parameter);
}

bool ParameterOptimizer::prepare_state(const ParameterGroup& group, const ParameterGradient& pair) {
  ParameterState& state = progress_.states[pair.index];
  const at::Tensor& parameter = pair.parameter;
  const bool in_float32 = computes_in_float32(group, parameter);
  if ((rule_->counts_steps() || in_float32) && !state.step.defined()) state.step = new_step(*rule_, parameter, 0);
  if (state.step.defined() && rule_->keeps_step_on_device()) bring(state.step, parameter.device(), at::kFloat);
  if (in_float32 && group.precision == UpdatePrecision::kMasterWeights) {
    if (!state.master.defined())
      state.master = empty_like_parameter(group, parameter.detach(), at::kFloat).copy_(parameter);
    bring(state.master, parameter.device(), at::kFloat);
  } else {
    state.master.reset();
  }
  bool is_first = false;
  state.values.resize(rule_->state_entries().size());
  for (size_t entry = 0; entry < state.values.size(); ++entry) {
    if (!rule_->needs(entry, group, parameter)) continue;
    StateValue& value = state.values[entry];
    if (!value.tensor.defined()) {
      value = new_state_value(*rule_, entry, group, parameter);
      is_first = true;
    } else if (rule_->kind(entry, parameter) != StateEntry::Kind::kNumber) {  // the parameter may have moved
      const bool is_like = rule_->kind(entry, parameter) == StateEntry::Kind::kLikeParameter;
      const auto dtype =
          is_like ? state_dtype(rule_->state_entries()[entry], group, parameter) : value.tensor.scalar_type();
      bring(value.tensor, parameter.device(), dtype);
      if (value.scales.defined()) bring(value.scales, parameter.device(), at::kFloat);
    }
  }
  return is_first;
}

void ParameterOptimizer::update(const ParameterGroup& group, c10::ArrayRef<ParameterGradient> pairs) {
  std::vector<Update> updates;
  std::vector<precision::CastUpdate> casts;  // of the parameters for the next forward
  updates.reserve(pairs.size());
  const bool in_float32 = computes_in_float32(group, pairs[0].parameter);
  const bool stochastic_rounding = in_float32 && group.precision == UpdatePrecision::kStochasticRounding;
  const bool rule_rounds = rule_->rounds();
  for (const ParameterGradient& pair : pairs) {
    progress_.latest.note(pair.index, progress_.states[pair.index]);
    Update update{pair.index, pair.parameter, pair.gradient, &progress_.states[pair.index]};
    update.is_first = prepare_state(group, pair);
    if (UpdateRecording* const recording = UpdateRecording::current()) recording->note(*update.state);
    if (in_float32) {
      const at::Tensor& master = update.state->master;
      if (master.defined()) update.parameter = master;
      if (rule_rounds) {
        if (master.defined()) update.rounded = pair.parameter;
        update.stochastic_rounding = stochastic_rounding;
      }
    } else if (rule_rounds) {
      casts.emplace_back(pair.parameter);
      update.rounded = casts.back().values();
    }
    updates.push_back(std::move(update));
  }
  count_step(updates);
  if (in_float32 && !rule_rounds) {
    std::vector<at::Tensor> stored;
    for (const ParameterGradient& pair : pairs) stored.push_back(pair.parameter);
    update_in_float32(progress_.latest, *rule_, group, stored, updates);
  } else {
    progress_.latest.update(*rule_, group, updates);
  }
  for (size_t i = 0; i < pairs.size(); ++i) {
    const at::Tensor& parameter = pairs[i].parameter;
    tensor::count_write(parameter);
    if (i < casts.size()) casts[i].keep(parameter);
  }
}

void ParameterOptimizer::train(bool training) {
  progress_.latest.settle(progress_.states);
  const at::NoGradGuard no_grad;
  size_t index = 0;
  for (auto& group : groups_) {
    const auto modes = rule_->modes(group);
    const bool changes = modes && (group.values[modes->mode] != 0) != training;
    for (const auto& parameter : group.parameters) {
      const ParameterState& state = progress_.states[index++];
      if (!changes || state.values.empty() || !state.values[0].tensor.defined()) continue;
      const at::Tensor& value = state.master.defined() ? state.master : parameter;
      const auto dtype = at::isReducedFloatingType(value.scalar_type()) ? at::kFloat : value.scalar_type();
      const at::Tensor goal = state.values[0].tensor.to(value.device(), dtype);
      const at::Tensor moved = value.to(dtype).lerp(goal, training ? modes->to_training : modes->to_evaluation);
      if (state.master.defined()) state.master.copy_(moved);
      parameter.copy_(moved);
    }
    if (changes) group.values[modes->mode] = training ? 1 : 0;
  }
}

void ParameterOptimizer::zero_grad(bool set_to_none) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> filled;
  for (const auto& parameter : progress_.parameters) {
    at::Tensor& gradient = parameter.mutable_grad();
    if (!gradient.defined()) continue;
    if (set_to_none) {
      gradient.reset();
    } else {
      if (gradient.requires_grad()) gradient = gradient.detach();  // from the graph of a double backward
      filled.push_back(gradient);
    }
  }
  if (!filled.empty()) at::_foreach_zero_(filled);
}

std::optional<uint64_t> ParameterOptimizer::number_of_repeatable_state() const {
  progress_.latest.settle(progress_.states);  // a step that was skipped has made no state
  if (counts_on_host() && !rule_->records_numbers()) return std::nullopt;
  return progress_.state_number;
}

bool ParameterOptimizer::counts_on_host() const {
  const auto is_counted = [](const ParameterState& state) { return state.step.defined(); };
  const bool is_counted_here =
      rule_->counts_steps() || std::any_of(progress_.states.begin(), progress_.states.end(), is_counted);
  return is_counted_here && !rule_->keeps_step_on_device();
}

c10::IValue ParameterOptimizer::state_dict() const {
  progress_.latest.settle(progress_.states);
  return write_state_dict(*rule_, groups_, progress_.states);
}

std::optional<bool> ParameterOptimizer::is_like_parameter(std::string_view entry) const {
  return optim::is_like_parameter(*rule_, entry);
}

int64_t ParameterOptimizer::state_bytes() const {
  size_t bytes = 0;
  const auto count = [&bytes](const at::Tensor& tensor) { bytes += tensor.defined() ? tensor.nbytes() : 0; };
  for (const ParameterState& state : progress_.states) {
    count(state.step);
    count(state.master);
    for (const StateValue& value : state.values) {
      count(value.tensor);
      count(value.scales);
    }
  }
  return static_cast<int64_t>(bytes);
}

void ParameterOptimizer::load_state_dict(const c10::IValue& state_dict) {
  progress_.latest.settle(progress_.states);
  LoadedState loaded = read_state_dict(*rule_, groups_, progress_.states, state_dict);
  progress_.state_number += 1;
  groups_ = std::move(loaded.groups);
  progress_.states = std::move(loaded.states);
}

}  // namespace accel::optim
