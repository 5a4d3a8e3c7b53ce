// SPDX-License-Identifier: Apache-2.0
// Options structs in memory of the caller, for languages without struct layouts.
#pragma once

#include <cstddef>
#include <string>

#include "config/option_table.hpp"

namespace accel {

// Writes a struct of at most `size` bytes in which every field is unset.
void unset_options(const OptionTable& table, void* options, size_t size);

// Writes a struct of at most `size` bytes: the fields of the JSON object, all others unset. Texts, and structs that a
// field points to, are stored until the process ends, one copy of each content.
void options_from_json(const OptionTable& table, const std::string& json, void* options, size_t size);

}  // namespace accel
