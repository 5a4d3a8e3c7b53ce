// SPDX-License-Identifier: Apache-2.0
// Recorded behaviour of Accelerate: files of cases, each an input and what came out.
#pragma once

#include <ATen/core/ivalue.h>

#include <optional>
#include <string>
#include <vector>

namespace accel::parity {

struct Case {
  std::string name;
  c10::IValue input;
  c10::IValue expected;
};

// The cases of a file, "seedable_sampler", from the folder ACCEL_PARITY_DIR or else the one beside the tests. Throws
// when the file is missing or has no case. {dtype, shape, values} becomes a tensor, an object a map, and {tuple: [...]}
// a list, for the engine's values know no other sequence.
std::vector<Case> read_cases(const std::string& file);
std::string fixture_folder();

// A member of a map, which must be there.
c10::IValue member(const c10::IValue& map, const std::string& key);
// The same where null and missing are alike.
std::optional<c10::IValue> optional_member(const c10::IValue& map, const std::string& key);

std::vector<int64_t> integers(const c10::IValue& list);

// The type of the error that Accelerate gave instead of a result: "ValueError".
std::optional<std::string> error_type(const c10::IValue& expected);

}  // namespace accel::parity
