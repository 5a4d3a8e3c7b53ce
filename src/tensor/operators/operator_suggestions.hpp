// SPDX-License-Identifier: Apache-2.0
// Suggestions for the name of an operator that does not exist.
#pragma once

#include <string_view>

namespace accel::tensor {

// Throws kNotFound: with the overloads if the name exists, otherwise with the most similar names.
[[noreturn]] void refuse_operator_name(std::string_view name, std::string_view overload);

}  // namespace accel::tensor
