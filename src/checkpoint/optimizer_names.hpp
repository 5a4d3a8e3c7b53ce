// SPDX-License-Identifier: Apache-2.0
// States of optimizers by the names of their parameters, as Accelerate saves them under sharding; others are by the
// numbers of parameters.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>

#include "checkpoint/training_state.hpp"

namespace accel::checkpoint {

// The name of a tensor without the prefixes of modules that only wrap others, such as "_fsdp_wrapped_module.".
std::string unwrapped_name(std::string name);
// A map of tensors with such names; and from one the map with the names of `own`.
c10::IValue with_unwrapped_names(const c10::IValue& tensors);
c10::IValue with_names_of(const c10::IValue& own, const c10::IValue& tensors);

// Whether the groups of a state dict list names.
bool is_by_names(const c10::IValue& state);

// Returns the state with names as keys and in the groups: the first name of each parameter. kInvalidState for a
// parameter that has none.
c10::IValue named_optimizer_state(const c10::IValue& state, const std::vector<NamedGroup>& groups);

// {"state": {number: ...}, "param_groups": ...} in the order of `groups`, from one whose keys and groups are names.
// kInvalidState if the parameters are not the same, but for those that are frozen; `source` names the file.
c10::IValue numbered_optimizer_state(const c10::IValue& state, const std::vector<NamedGroup>& groups,
                                     const std::string& source);

}  // namespace accel::checkpoint
