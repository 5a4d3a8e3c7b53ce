#include "optim/parameter_optimizer.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <charconv>
#include <unordered_set>
#include <utility>

#include "base/error.hpp"
#include "tensor/tree.hpp"

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

// The gradient as kernels need it. Autograd keeps the parameter's layout, but a
// gradient may also come from the host.
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

bool same_kernel(const GradientEntry& a, const GradientEntry& b) {
  return a.parameter.device() == b.parameter.device() && a.parameter.scalar_type() == b.parameter.scalar_type();
}

}  // namespace

ParameterOptimizer::ParameterOptimizer(double lr, double weight_decay)
    : default_lr_(lr), default_weight_decay_(weight_decay) {
  require_not_negative(lr, "lr");
  require_not_negative(weight_decay, "weight_decay");
}

ParameterGroup& ParameterOptimizer::group(size_t index) {
  require(index < groups_.size(), Status::kNotFound, "parameter group ", index, " is not there; the optimizer has ",
          groups_.size());
  return groups_[index];
}

void ParameterOptimizer::add_group(std::vector<at::Tensor> parameters, std::optional<double> lr,
                                   std::optional<double> weight_decay) {
  ParameterGroup group;
  group.lr = lr.value_or(default_lr_);
  group.weight_decay = weight_decay.value_or(default_weight_decay_);
  require_not_negative(group.lr, "lr");
  require_not_negative(group.weight_decay, "weight_decay");
  require(!parameters.empty(), Status::kInvalidArgument,
          "a parameter group of 0 parameters was given; expected at least one");
  std::unordered_set<const c10::TensorImpl*> known;
  for (const auto& parameter : parameters_) known.insert(parameter.unsafeGetTensorImpl());
  for (size_t i = 0; i < parameters.size(); ++i) {
    check_parameter(parameters[i], i);
    require(known.insert(parameters[i].unsafeGetTensorImpl()).second, Status::kInvalidArgument, "parameter ", i,
            " of the group is in the optimizer already; expected each one once");
  }
  parameters_.insert(parameters_.end(), parameters.begin(), parameters.end());
  group.parameters = std::move(parameters);
  groups_.push_back(std::move(group));
  group_added();
}

std::vector<GradientEntry> ParameterOptimizer::entries_with_gradient(const ParameterGroup& group,
                                                                     size_t first_index) const {
  size_t index = first_index;
  std::vector<GradientEntry> entries;
  entries.reserve(group.parameters.size());
  for (const auto& parameter : group.parameters) {
    const at::Tensor& gradient = parameter.grad();
    if (gradient.defined()) entries.push_back({index, parameter, matching_gradient(parameter, gradient, index)});
    ++index;
  }
  return entries;
}

bool ParameterOptimizer::step() {
  const at::NoGradGuard no_grad;
  std::vector<std::vector<GradientEntry>> groups;  // all are looked at before any is changed
  groups.reserve(groups_.size());
  size_t first_index = 0;
  for (const auto& group : groups_) {
    groups.push_back(entries_with_gradient(group, first_index));
    first_index += group.parameters.size();
  }
  for (size_t group = 0; group < groups.size(); ++group) {
    auto& entries = groups[group];
    for (size_t begin = 0; begin < entries.size();) {
      const GradientEntry first = entries[begin];
      const auto end = std::stable_partition(entries.begin() + static_cast<std::ptrdiff_t>(begin), entries.end(),
                                             [&](const GradientEntry& entry) { return same_kernel(entry, first); });
      const size_t count = static_cast<size_t>(end - entries.begin()) - begin;
      update(group, {entries.data() + begin, count});
      // The fused kernels do not tell autograd that what it may have saved has changed.
      for (size_t i = begin; i < begin + count; ++i) entries[i].parameter.unsafeGetTensorImpl()->bump_version();
      begin += count;
    }
  }
  return true;
}

void ParameterOptimizer::zero_grad() {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> kept;
  for (const auto& parameter : parameters_) {
    at::Tensor& gradient = parameter.mutable_grad();
    if (!gradient.defined()) continue;
    if (keep_gradient_memory_ && gradient.layout() == at::kStrided && !gradient.requires_grad()) {
      kept.push_back(gradient);
    } else {
      gradient.reset();
    }
  }
  if (!kept.empty()) at::_foreach_zero_(kept);
}

c10::IValue ParameterOptimizer::state_dict() const {
  Map states = tree::new_map();
  for (size_t index = 0; index < parameters_.size(); ++index)
    if (auto state = write_state(index)) states.insert(std::to_string(index), *state);
  auto groups = tree::new_list();
  int64_t next_index = 0;
  for (size_t i = 0; i < groups_.size(); ++i) {
    const ParameterGroup& group = groups_[i];
    Map settings = tree::new_map();
    settings.insert("lr", group.lr);
    settings.insert("weight_decay", group.weight_decay);
    write_settings(i, settings);
    if (group.initial_lr) settings.insert("initial_lr", *group.initial_lr);
    auto indices = tree::new_list();
    for (size_t k = 0; k < group.parameters.size(); ++k) indices.push_back(next_index++);
    settings.insert("params", indices);
    groups.push_back(settings);
  }
  Map result = tree::new_map();
  result.insert("state", states);
  result.insert("param_groups", groups);
  return result;
}

std::vector<Map> ParameterOptimizer::read_groups(const Map& state_dict) const {
  const c10::IValue* const value = find(state_dict, "param_groups");
  require(value != nullptr && value->isList(), Status::kInvalidArgument,
          "the state dict of an optimizer has no list \"param_groups\"");
  const auto list = value->toListRef();
  require(list.size() == groups_.size(), Status::kInvalidArgument, "the state dict has ", list.size(),
          " parameter groups; expected ", groups_.size(), " as the optimizer");
  std::vector<Map> settings;
  for (size_t i = 0; i < list.size(); ++i) {
    settings.push_back(as_map(list[i], text("parameter group ", i)));
    const c10::IValue* const indices = find(settings.back(), "params");
    const size_t count = indices != nullptr && indices->isList() ? indices->toListRef().size() : 0;
    require(count == groups_[i].parameters.size(), Status::kInvalidArgument, "parameter group ", i,
            " of the state dict has ", count, " parameters; expected ", groups_[i].parameters.size());
    require_not_negative(read_number(settings.back(), "lr", groups_[i].lr), "lr");
    require_not_negative(read_number(settings.back(), "weight_decay", groups_[i].weight_decay), "weight_decay");
    read_number(settings.back(), "initial_lr", 0);
  }
  return settings;
}

std::vector<std::optional<Map>> ParameterOptimizer::read_states(const Map& state_dict) const {
  const c10::IValue* const value = find(state_dict, "state");
  require(value != nullptr, Status::kInvalidArgument, "the state dict of an optimizer has no map \"state\"");
  std::vector<std::optional<Map>> states(parameters_.size());
  for (const auto& entry : as_map(*value, "\"state\" of an optimizer")) {
    const std::string& key = entry.key().toStringRef();
    size_t index = 0;
    const auto parsed = std::from_chars(key.data(), key.data() + key.size(), index);
    require(parsed.ec == std::errc() && parsed.ptr == key.data() + key.size() && index < states.size(),
            Status::kInvalidArgument, "the state dict has state of parameter \"", key, "\"; expected 0 to ",
            static_cast<int64_t>(states.size()) - 1);
    states[index] = as_map(entry.value(), "state of parameter " + key);
  }
  return states;
}

void ParameterOptimizer::load_state_dict(const c10::IValue& state_dict) {
  const Map map = as_map(state_dict, "the state dict of an optimizer");
  const std::vector<Map> settings = read_groups(map);
  auto loaded = read(settings, read_states(map));
  for (size_t i = 0; i < groups_.size(); ++i) {
    ParameterGroup& group = groups_[i];
    group.lr = read_number(settings[i], "lr", group.lr);
    group.weight_decay = read_number(settings[i], "weight_decay", group.weight_decay);
    group.initial_lr.reset();
    if (find(settings[i], "initial_lr") != nullptr) group.initial_lr = read_number(settings[i], "initial_lr", group.lr);
  }
  adopt(std::move(loaded));
}

}  // namespace accel::optim
