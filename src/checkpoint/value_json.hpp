// The JSON of a nested value; value_file.hpp says what it looks like.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>

#include "base/json.hpp"
#include "checkpoint/safetensors.hpp"

namespace accel::checkpoint {

// Tensors are appended to `tensors` under names that are unique there.
Json encode_value(const c10::IValue& value, NamedTensors& tensors);

// Takes the tensors from `tensors`. Errors are kCorrupt and begin with `source`.
c10::IValue decode_value(const Json& node, const NamedTensors& tensors, const std::string& source);

}  // namespace accel::checkpoint
