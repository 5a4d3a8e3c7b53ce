// SPDX-License-Identifier: Apache-2.0
#include "optim/parameter_state.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <charconv>
#include <utility>

#include "base/error.hpp"
#include "kernels/update/elementwise.hpp"
#include "tensor/loading.hpp"
#include "tensor/tree.hpp"

namespace accel::optim {
namespace {

constexpr const char* kPrecisionKey = "update_precision";
constexpr OptionChoice kPrecisions[] = {{"as_stored", 0}, {"master_weights", 1}, {"stochastic_rounding", 2}};
constexpr OptionField kPrecisionField{
    kPrecisionKey, "",          OptionKind::kChoice,    4,    0, 0, {}, nullptr, "as_stored",
    nullptr,       kPrecisions, std::size(kPrecisions), false};
constexpr const char* kMasterKey = "master_param";

bool is_8bit(StateEntry::Kind kind) {
  return kind == StateEntry::Kind::kSigned8Bit || kind == StateEntry::Kind::kUnsigned8Bit;
}

std::vector<int64_t> shape_of(StateEntry::Kind kind, const at::Tensor& parameter) {
  if (kind == StateEntry::Kind::kNumber) return {};
  std::vector<int64_t> shape = parameter.sizes().vec();
  if (kind == StateEntry::Kind::kRows) shape[shape.size() - 1] = 1;
  if (kind == StateEntry::Kind::kColumns) shape[shape.size() - 2] = 1;
  return shape;
}

// Uninitialised memory for an entry.
at::Tensor empty_state_tensor(StateEntry::Kind kind, const StateEntry& entry, const ParameterGroup& group,
                              const at::Tensor& parameter) {
  const at::Tensor plain = parameter.detach();
  const auto dtype = state_dtype(entry, group, parameter);
  if (kind == StateEntry::Kind::kNumber) return at::empty({}, at::kFloat);
  if (kind == StateEntry::Kind::kLikeParameter) return empty_like_parameter(group, plain, dtype);
  if (is_8bit(kind)) return empty_like_parameter(group, plain, at::kByte);
  return at::empty(shape_of(kind, parameter), plain.options().dtype(dtype));
}

// The copies, to and from, that are made once all of a state dict is checked.
using Copies = tensor::LoadedCopies;

// Returns the memory that the optimizer has, if it can be filled, or new memory.
at::Tensor memory_for(const at::Tensor& current, StateEntry::Kind kind, const StateEntry& entry,
                      const ParameterGroup& group, const at::Tensor& parameter) {
  const bool fits = tensor::is_loading() && kind == StateEntry::Kind::kLikeParameter && current.defined() &&
                    current.sizes() == parameter.sizes() && current.strides() == parameter.strides() &&
                    current.device() == parameter.device() &&
                    current.scalar_type() == state_dtype(entry, group, parameter);
  return fits ? current : empty_state_tensor(kind, entry, group, parameter);
}

// A copy of the value in a state dict, in the form of the entry.
StateValue read_state_value(const UpdateRule& rule, size_t entry, const ParameterGroup& group,
                            const at::Tensor& parameter, const c10::IValue& given, size_t index,
                            const ParameterState& current, Copies& copies) {
  const char* const key = rule.state_entries()[entry].key.c_str();
  const StateEntry::Kind kind = rule.kind(entry, parameter);
  const auto shape = shape_of(kind, parameter);
  require(given.isTensor(), Status::kInvalidArgument, "state of parameter ", index, " has no tensor \"", key,
          "\"; expected one of shape ", c10::IntArrayRef(shape));
  const at::Tensor& source = given.toTensor();
  require(source.sizes() == shape, Status::kShapeMismatch, "\"", key, "\" of parameter ", index, " has shape ",
          source.sizes(), "; expected ", c10::IntArrayRef(shape));
  if (!is_8bit(kind)) {
    const at::Tensor known = entry < current.values.size() ? current.values[entry].tensor : at::Tensor();
    StateValue value{memory_for(known, kind, rule.state_entries()[entry], group, parameter), {}};
    copies.emplace_back(value.tensor, source);
    return value;
  }
  StateValue value = new_state_value(rule, entry, group, parameter);
  at::Tensor numbers = at::empty_like(parameter.detach(), at::TensorOptions(at::kCPU).dtype(at::kFloat));
  numbers.copy_(source);
  const StateValue on_host{value.tensor.cpu(), value.scales.cpu()};  // the same memory where that is there
  kernels::copy(kernels::span_of(numbers), span_of(on_host, kind), numbers.numel());
  if (!value.tensor.is_cpu()) {
    value.tensor.copy_(on_host.tensor);
    value.scales.copy_(on_host.scales);
  }
  return value;
}

// Older files have the step as a number.
at::Tensor read_step(const UpdateRule& rule, const Map& state, size_t index, const at::Tensor& parameter) {
  const c10::IValue* const value = find(state, "step");
  const bool is_tensor = value != nullptr && value->isTensor() && value->toTensor().numel() == 1;
  require(is_tensor || (value != nullptr && (value->isInt() || value->isDouble())), Status::kInvalidArgument,
          "state of parameter ", index, " has no \"step\"; expected a number");
  return new_step(rule, parameter, is_tensor ? tensor::loaded_number(value->toTensor()) : value->toScalar().toDouble());
}

std::optional<Map> write_state(const UpdateRule& rule, const ParameterState& state, const at::Tensor& parameter) {
  Map map = tree::new_map();
  if (state.step.defined()) map.insert("step", state.step);
  for (size_t entry = 0; entry < state.values.size(); ++entry) {
    const StateValue& value = state.values[entry];
    if (!value.tensor.defined()) continue;
    const StateEntry::Kind kind = rule.kind(entry, parameter);
    at::Tensor tensor = value.tensor;
    if (is_8bit(kind)) {
      const StateValue on_host{value.tensor.cpu(), value.scales.cpu()};
      tensor = at::empty_like(on_host.tensor, at::kFloat);
      kernels::copy(span_of(on_host, kind), kernels::span_of(tensor), tensor.numel());
      tensor = tensor.to(value.tensor.device());
    }
    map.insert(rule.state_entries()[entry].key, tensor);
  }
  if (state.master.defined()) map.insert(kMasterKey, state.master);
  if (map.empty()) return std::nullopt;
  return map;
}

ParameterState read_state(const UpdateRule& rule, const ParameterGroup& group, const at::Tensor& parameter,
                          const Map& map, size_t index, const ParameterState& current, Copies& copies) {
  ParameterState state;
  if (map.empty()) return state;
  if (rule.counts_steps() || find(map, "step") != nullptr) state.step = read_step(rule, map, index, parameter);
  state.values.resize(rule.state_entries().size());
  for (size_t entry = 0; entry < state.values.size(); ++entry) {
    const c10::IValue* const given = find(map, rule.state_entries()[entry].key.c_str());
    const bool is_given = given != nullptr && !given->isNone();
    if (is_given || (rule.needs(entry, group, parameter) && !rule.state_entries()[entry].is_optional))
      state.values[entry] =
          read_state_value(rule, entry, group, parameter, is_given ? *given : c10::IValue(), index, current, copies);
  }
  const c10::IValue* const master = find(map, kMasterKey);
  if (master != nullptr && group.precision == UpdatePrecision::kMasterWeights) {
    require(master->isTensor() && master->toTensor().sizes() == parameter.sizes(), Status::kShapeMismatch, "\"",
            kMasterKey, "\" of parameter ", index, " is not a tensor of shape ", parameter.sizes());
    state.master = empty_like_parameter(group, parameter.detach(), at::kFloat);
    copies.emplace_back(state.master, master->toTensor());
  }
  return state;
}

ParameterGroup read_group(const UpdateRule& rule, const ParameterGroup& group, const Map& map, size_t index) {
  const c10::IValue* const indices = find(map, "params");
  const size_t count = indices != nullptr && tree::is_sequence(*indices) ? tree::sequence_items(*indices).size() : 0;
  require(count == group.parameters.size(), Status::kInvalidArgument, "parameter group ", index,
          " of the state dict has ", count, " parameters; expected ", group.parameters.size());
  ParameterGroup read = group;
  read.lr = read_number(map, "lr", group.lr);
  read.weight_decay = read_number(map, "weight_decay", group.weight_decay);
  check_setting("lr", {}, read.lr);
  check_setting("weight_decay", {}, read.weight_decay);
  read.values = read_settings(rule.settings(), map, group.values);
  constexpr Setting kPrecision = {kPrecisionKey, nullptr, &kPrecisionField};
  read.precision = static_cast<UpdatePrecision>(
      static_cast<int>(read_settings(kPrecision, map, {static_cast<double>(group.precision)})[0]));
  read.initial_lr.reset();
  if (find(map, "initial_lr") != nullptr) read.initial_lr = read_number(map, "initial_lr", read.lr);
  rule.check(read);
  return read;
}

// The group of each parameter.
std::vector<size_t> groups_of_parameters(const std::vector<ParameterGroup>& groups) {
  std::vector<size_t> places;
  for (size_t i = 0; i < groups.size(); ++i) places.insert(places.end(), groups[i].parameters.size(), i);
  return places;
}

}  // namespace

at::Tensor empty_like_parameter(const ParameterGroup& group, const at::Tensor& parameter, c10::ScalarType dtype) {
  return group.state_memory ? group.state_memory(parameter, dtype) : at::empty_like(parameter, dtype);
}

std::vector<at::Tensor> host_numbers(const ParameterState& state) {
  std::vector<at::Tensor> numbers;
  if (state.step.defined() && state.step.is_cpu()) numbers.push_back(state.step);
  for (const StateValue& value : state.values)
    if (value.tensor.defined() && value.tensor.is_cpu()) numbers.push_back(value.tensor);
  return numbers;
}

bool computes_in_float32(const ParameterGroup& group, const at::Tensor& parameter) {
  return group.precision != UpdatePrecision::kAsStored && at::isReducedFloatingType(parameter.scalar_type());
}

c10::ScalarType state_dtype(const StateEntry& entry, const ParameterGroup& group, const at::Tensor& parameter) {
  if (entry.is_float32 && at::isReducedFloatingType(parameter.scalar_type())) return at::kFloat;
  return computes_in_float32(group, parameter) ? at::kFloat : parameter.scalar_type();
}

at::Tensor new_step(const UpdateRule& rule, const at::Tensor& parameter, double value) {
  const auto device = rule.keeps_step_on_device() ? parameter.device() : at::Device(at::kCPU);
  return at::full({}, value, at::TensorOptions().dtype(at::kFloat).device(device));
}

kernels::ElementSpan span_of(const StateValue& value, StateEntry::Kind kind) {
  if (!is_8bit(kind)) return kernels::span_of(value.tensor);
  kernels::ElementSpan span;
  span.data = value.tensor.mutable_data_ptr();
  span.scales = value.scales.mutable_data_ptr<float>();
  span.format = kind == StateEntry::Kind::kSigned8Bit ? kernels::Format::kSigned8Bit : kernels::Format::kUnsigned8Bit;
  return span;
}

StateValue new_state_value(const UpdateRule& rule, size_t entry, const ParameterGroup& group,
                           const at::Tensor& parameter) {
  const StateEntry::Kind kind = rule.kind(entry, parameter);
  StateValue value{empty_state_tensor(kind, rule.state_entries()[entry], group, parameter), {}};
  if (is_8bit(kind)) {
    value.tensor.zero_();
    value.scales = at::zeros({kernels::num_blocks(parameter.numel())}, parameter.detach().options().dtype(at::kFloat));
  } else if (rule.state_entries()[entry].is_copy) {
    value.tensor.copy_(parameter);
  } else {
    value.tensor.fill_(rule.initial(entry, group));
  }
  return value;
}

int64_t new_state_bytes(const UpdateRule& rule, const ParameterGroup& group, const at::Tensor& parameter) {
  const at::NoGradGuard no_grad;
  const at::Tensor shape = at::empty_like(parameter.detach(), at::kMeta);
  const bool in_float32 = computes_in_float32(group, shape);
  size_t bytes = rule.counts_steps() || in_float32 ? sizeof(float) : 0;
  if (in_float32 && group.precision == UpdatePrecision::kMasterWeights)
    bytes += static_cast<size_t>(shape.numel()) * sizeof(float);
  for (size_t entry = 0; entry < rule.state_entries().size(); ++entry) {
    if (!rule.needs(entry, group, shape)) continue;
    const StateEntry::Kind kind = rule.kind(entry, shape);
    bytes += empty_state_tensor(kind, rule.state_entries()[entry], group, shape).nbytes();
    if (is_8bit(kind)) bytes += static_cast<size_t>(kernels::num_blocks(shape.numel())) * sizeof(float);
  }
  return static_cast<int64_t>(bytes);
}

bool is_like_parameter(const UpdateRule& rule, std::string_view key) {
  if (key == kMasterKey) return true;
  for (const StateEntry& entry : rule.state_entries())
    if (entry.key == key) return is_8bit(entry.kind) || entry.kind == StateEntry::Kind::kLikeParameter;
  return false;  // such as the step
}

c10::IValue write_state_dict(const UpdateRule& rule, const std::vector<ParameterGroup>& groups,
                             const std::vector<ParameterState>& states) {
  std::vector<std::pair<c10::IValue, c10::IValue>> written;  // with integer keys, as torch has
  auto written_groups = tree::new_list();
  size_t index = 0;
  for (const ParameterGroup& group : groups) {
    Map map = tree::new_map();
    map.insert("lr", group.lr);
    map.insert("weight_decay", group.weight_decay);
    write_settings(rule.settings(), group.values, map);
    for (const auto& constant : rule.constants())
      map.insert(constant.key, constant.value == UpdateRule::Constant::Value::kNone
                                   ? c10::IValue()
                                   : c10::IValue(constant.value == UpdateRule::Constant::Value::kTrue));
    if (group.precision != UpdatePrecision::kAsStored)
      map.insert(kPrecisionKey, std::string(kPrecisions[static_cast<size_t>(group.precision)].name));
    if (group.initial_lr) map.insert("initial_lr", *group.initial_lr);
    for (const auto& [key, value] : group.scheduled) map.insert(key, value);
    auto indices = tree::new_list();
    for (const at::Tensor& parameter : group.parameters) {
      if (const auto state = write_state(rule, states[index], parameter))
        written.emplace_back(static_cast<int64_t>(index), *state);
      indices.push_back(static_cast<int64_t>(index++));
    }
    map.insert("params", indices);
    written_groups.push_back(map);
  }
  Map result = tree::new_map();
  result.insert("state", tree::new_map(std::move(written)));
  result.insert("param_groups", written_groups);
  return result;
}

LoadedState read_state_dict(const UpdateRule& rule, const std::vector<ParameterGroup>& groups,
                            const std::vector<ParameterState>& current, const c10::IValue& state_dict) {
  const at::NoGradGuard no_grad;
  const Map map = as_map(state_dict, "the state dict of an optimizer");
  const c10::IValue* const list = find(map, "param_groups");
  require(list != nullptr && tree::is_sequence(*list), Status::kInvalidArgument,
          "the state dict of an optimizer has no list \"param_groups\"");
  require(tree::sequence_items(*list).size() == groups.size(), Status::kInvalidArgument, "the state dict has ",
          tree::sequence_items(*list).size(), " parameter groups; expected ", groups.size(), " as the optimizer");
  LoadedState loaded;
  for (size_t i = 0; i < groups.size(); ++i)
    loaded.groups.push_back(
        read_group(rule, groups[i], as_map(tree::sequence_items(*list)[i], text("parameter group ", i)), i));

  const c10::IValue* const states = find(map, "state");
  require(states != nullptr, Status::kInvalidArgument, "the state dict of an optimizer has no map \"state\"");
  const std::vector<size_t> places = groups_of_parameters(loaded.groups);
  std::vector<at::Tensor> parameters;
  for (const ParameterGroup& group : loaded.groups)
    parameters.insert(parameters.end(), group.parameters.begin(), group.parameters.end());
  loaded.states.resize(parameters.size());
  Copies copies;
  require(states->isGenericDict(), Status::kInvalidArgument, "\"state\" of an optimizer is a ",
          tree::kind_name(*states), "; expected a map");
  for (const auto& entry : states->toGenericDict()) {
    const std::string key =
        entry.key().isInt() ? text(entry.key().toInt()) : entry.key().toStringRef();  // torch's are integers
    size_t index = 0;
    const auto parsed = std::from_chars(key.data(), key.data() + key.size(), index);
    require(parsed.ec == std::errc() && parsed.ptr == key.data() + key.size() && index < parameters.size(),
            Status::kInvalidArgument, "the state dict has state of parameter \"", key, "\"; expected 0 to ",
            static_cast<int64_t>(parameters.size()) - 1);
    loaded.states[index] =
        read_state(rule, loaded.groups[places[index]], parameters[index],
                   as_map(entry.value(), "state of parameter " + key), index, current[index], copies);
  }
  tensor::copy_loaded(copies);
  return loaded;
}

}  // namespace accel::optim
