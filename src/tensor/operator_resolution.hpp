// Which of an operator's overloads some arguments are for, as a call in Python would choose.
#pragma once

#include <string_view>

#include "tensor/operator.hpp"

namespace accel::tensor {

// `name` is "aten::add", or "add": LibTorch's, else the engine's own. Among the overloads that take the arguments it is
// the one that converts fewest of them; then one of tensors before one of numbers, and the plain one before others.
// What only the keyword may set is not taken by position. The choice is remembered by the kinds of the arguments.
// Throws kNotFound for an unknown name and kTypeMismatch, with the overloads, when none takes the arguments.
const Operator& resolve_operator(std::string_view name, const Argument* arguments, size_t num_arguments,
                                 const NamedArgument* named, size_t num_named);

}  // namespace accel::tensor
