// SPDX-License-Identifier: Apache-2.0
// An option as it is written on the command line and in the help.
#pragma once

#include <string>

#include "config/option_table.hpp"

namespace accel::program {

std::string value_name(const OptionField& field);  // "N", "no|fp16", "[=no]" of a flag
std::string describe(const OptionField& field);    // its meaning, its variable and its default

// A row of the help, in lines of at most 118 letters.
std::string help_row(const std::string& left, const std::string& description);

}  // namespace accel::program
