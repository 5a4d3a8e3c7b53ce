// SPDX-License-Identifier: Apache-2.0
// Key averages of a profile as a table for people.
#pragma once

#include <cstddef>
#include <string>

#include "json/json.hpp"

namespace accel::track {

// `averages` as accel_profile_key_averages() gives them, sorted by one of their numbers. row_limit 0: all. Columns that
// are zero everywhere are left out. kInvalidArgument for an unknown number, kTypeMismatch for other values.
std::string averages_table(const Json& averages, const std::string& sort_by, size_t row_limit);

}  // namespace accel::track
