// What a caller may have meant by the name of an operator that is not there.
#pragma once

#include <string_view>

namespace accel::tensor {

// Throws kNotFound: with the overloads when the name is right, with the nearest names otherwise.
[[noreturn]] void refuse_operator_name(std::string_view name, std::string_view overload);

}  // namespace accel::tensor
