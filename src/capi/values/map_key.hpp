// SPDX-License-Identifier: Apache-2.0
// A key of a map, as it is looked up.
#pragma once

#include <cstdint>
#include <string_view>
#include <variant>

namespace accel::capi {

// A text belongs to the value that it was taken from.
using MapKey = std::variant<int64_t, std::string_view>;

}  // namespace accel::capi
