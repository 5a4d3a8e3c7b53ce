// SPDX-License-Identifier: Apache-2.0
// JSON of nested values, in the form that value_file.hpp describes.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>

#include "checkpoint/formats/safetensors.hpp"
#include "json/json.hpp"

namespace accel::checkpoint {

// Tensors are appended to `tensors` under names that are unique there.
Json encode_value(const c10::IValue& value, NamedTensors& tensors);

// Uses the tensors of `tensors`. Errors are kCorrupt and begin with `source`.
c10::IValue decode_value(const Json& node, const NamedTensors& tensors, const std::string& source);

}  // namespace accel::checkpoint
