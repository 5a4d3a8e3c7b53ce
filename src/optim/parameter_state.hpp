// What is kept of parameters: how it is made, and its form in state dicts, which torch.optim's classes read and write
// too.
#pragma once

#include "kernels/element_span.hpp"
#include "optim/update_rule.hpp"

namespace accel::optim {

// Whether a parameter's update is computed in float32 though the parameter is not.
bool computes_in_float32(const ParameterGroup& group, const at::Tensor& parameter);

// Of a slot that is like its parameter.
c10::ScalarType slot_dtype(const Slot& slot, const ParameterGroup& group, const at::Tensor& parameter);

at::Tensor new_step(const UpdateRule& rule, const at::Tensor& parameter, double value);
// The elements of a slot for the kernels; bytes round to nearest.
kernels::ElementSpan span_of(const SlotValue& value, Slot::Kind kind);
SlotValue new_slot(const UpdateRule& rule, size_t slot, const ParameterGroup& group, const at::Tensor& parameter);

// {"state": {"0": {...}}, "param_groups": [{...}]}. Bytes are written as float32, so that rules can be exchanged.
c10::IValue write_state_dict(const UpdateRule& rule, const std::vector<ParameterGroup>& groups,
                             const std::vector<ParameterState>& states);

struct LoadedState {
  std::vector<ParameterGroup> groups;
  std::vector<ParameterState> states;
};
// `groups` says which parameters there are, and has the values of what the state dict lacks.
LoadedState read_state_dict(const UpdateRule& rule, const std::vector<ParameterGroup>& groups,
                            const c10::IValue& state_dict);

}  // namespace accel::optim
