// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

namespace accel {

// The number of letters to insert, delete or replace.
size_t edit_distance(std::string_view from, std::string_view to);

}  // namespace accel
