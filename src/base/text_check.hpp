// SPDX-License-Identifier: Apache-2.0
// Checks that text can be stored in files and values without loss.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace accel {

// The position of the first byte that is not UTF-8 or is a NUL, which ends C strings; the size if there is none.
size_t first_bad_byte(std::string_view text);

// The text with U+FFFD for each such byte.
std::string repaired_text(std::string_view text);

}  // namespace accel
