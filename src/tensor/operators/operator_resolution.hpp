// SPDX-License-Identifier: Apache-2.0
// Overload resolution of operators: chooses the overload for given arguments, as a call in Python does.
#pragma once

#include <string_view>

#include "tensor/operators/operator.hpp"

namespace accel::tensor {

// `name` is "aten::add", or "add": LibTorch's, or else the engine's own. Among the overloads that accept the arguments,
// chooses the one with the fewest conversions, then one for tensors before one for numbers, then the plain one.
// Keyword-only parameters are not passed by position. The choice is cached by the kinds of the arguments. Throws
// kNotFound for an unknown name and kTypeMismatch, with the overloads, if none accepts the arguments.
const Operator& resolve_operator(std::string_view name, const Argument* arguments, size_t num_arguments,
                                 const NamedArgument* named, size_t num_named);

}  // namespace accel::tensor
