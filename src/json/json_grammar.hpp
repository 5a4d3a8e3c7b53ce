// SPDX-License-Identifier: Apache-2.0
// Checks of JSON documents that cJSON does not make, and values that it would lose.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace accel {

// [Note: JSON through cJSON] cJSON keeps numbers as doubles of at most 63 characters and ends strings at a NUL, accepts
// control characters and leading zeros, and answers bad text and lack of memory with the same null. So documents are
// checked before, and cJSON reads a copy in which the place of each number within `numbers` stands for the number, and
// kNul for a NUL: a null is lack of memory then.
struct CheckedJson {
  std::string text;
  std::vector<std::string_view> numbers;  // parts of the document that was checked
};

// A byte that never occurs in UTF-8.
inline constexpr char kNul = '\xff';

// Strictly RFC 8259; otherwise kInvalidArgument, with the position and the reason.
CheckedJson check_json(std::string_view document, const std::string& source);

}  // namespace accel
