// SPDX-License-Identifier: Apache-2.0
// State of parameters: its creation, and its form in state dicts, which is that of torch.optim.
#pragma once

#include <string_view>
#include <vector>

#include "kernels/update/element_span.hpp"
#include "optim/rules/update_rule.hpp"

namespace accel::optim {

// Whether a half-precision parameter is updated in float32.
bool computes_in_float32(const ParameterGroup& group, const at::Tensor& parameter);

// The host keeps float32 scalars of the state of a parameter on a device: these.
std::vector<at::Tensor> host_numbers(const ParameterState& state);

// The dtype of an entry of kind kLikeParameter.
c10::ScalarType state_dtype(const StateEntry& entry, const ParameterGroup& group, const at::Tensor& parameter);

// Memory for a state of the parameter, in the place that the group has for states.
at::Tensor empty_like_parameter(const ParameterGroup& group, const at::Tensor& parameter, c10::ScalarType dtype);
at::Tensor new_step(const UpdateRule& rule, const at::Tensor& parameter, double value);
// The elements of an entry for the kernels; 8-bit numbers round to nearest.
kernels::ElementSpan span_of(const StateValue& value, StateEntry::Kind kind);
StateValue new_state_value(const UpdateRule& rule, size_t entry, const ParameterGroup& group,
                           const at::Tensor& parameter);
// The size of the whole state that a parameter of this shape and dtype will have.
int64_t new_state_bytes(const UpdateRule& rule, const ParameterGroup& group, const at::Tensor& parameter);

// Whether the entry with this key in a state dict has one element for each of the parameter's.
bool is_like_parameter(const UpdateRule& rule, std::string_view key);

// {"state": {"0": {...}}, "param_groups": [{...}]}. 8-bit entries are written as float32, so that other rules can load
// them.
c10::IValue write_state_dict(const UpdateRule& rule, const std::vector<ParameterGroup>& groups,
                             const std::vector<ParameterState>& states);

struct LoadedState {
  std::vector<ParameterGroup> groups;
  std::vector<ParameterState> states;
};
// `groups` has the parameters, and the values of settings that the state dict lacks. In a tensor::LoadingScope the
// tensors of `current`, the state of each parameter, are filled where they fit, when all of the state dict is checked.
LoadedState read_state_dict(const UpdateRule& rule, const std::vector<ParameterGroup>& groups,
                            const std::vector<ParameterState>& current, const c10::IValue& state_dict);

}  // namespace accel::optim
