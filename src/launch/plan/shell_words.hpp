// SPDX-License-Identifier: Apache-2.0
// Words as a shell of POSIX has them.
#pragma once

#include <string>
#include <vector>

namespace accel::launch {

// Splits at blanks outside quotes. Status::kInvalidArgument for a quote that does not end.
std::vector<std::string> shell_words(const std::string& text);

// One word for a shell, whatever it has.
std::string shell_quoted(const std::string& word);

}  // namespace accel::launch
