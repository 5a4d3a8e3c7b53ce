// SPDX-License-Identifier: Apache-2.0
// Values of options as text: from environment variables and the command line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "config/option_table.hpp"

namespace accel {

// "an integer from 1 to 99", "one of no, fp16", "yes or no"
std::string expected_text(const OptionField& field);
// "no, fp16"
std::string choice_names(const OptionField& field, const char* separator);

// By its name in any case or by its number, as Accelerate reads them; null if there is none.
const OptionChoice* find_choice(const OptionField& field, const std::string& written);

// Throws otherwise: "NAME is 'VALUE'", the source unless it is empty, and what was expected.
void check_option_text(const OptionField& field, const std::string& value, std::string_view name,
                       std::string_view source);

// Parses checked text. Flags and choices are integers.
int64_t parse_integer_option(const OptionField& field, const std::string& value);
double parse_number_option(const std::string& value);

// "bf16" for a choice, "yes" for a flag, which are stored as numbers.
std::string integer_option_text(const OptionField& field, int64_t value);

}  // namespace accel
