// SPDX-License-Identifier: Apache-2.0
// Nested values as JSON, and back.
#pragma once

#include <ATen/core/ivalue.h>

#include <functional>
#include <string>

#include "json/json.hpp"

namespace accel::tree {

// Tags of the lossless form: {"$double": "nan"} and so on. A map with one key that looks like a tag is in "$map".
namespace json_tag {
inline constexpr const char* kTensor = "$tensor";
inline constexpr const char* kDouble = "$double";
inline constexpr const char* kInt = "$int";
inline constexpr const char* kDevice = "$device";
inline constexpr const char* kDtype = "$dtype";
inline constexpr const char* kMap = "$map";
inline constexpr const char* kTuple = "$tuple";
inline constexpr const char* kBytes = "$bytes";  // [type, tensor]
inline constexpr const char* kItems = "$items";  // of a map that has other keys than strings: [[key, value], ...]
}  // namespace json_tag

// 2^53: larger integers are not exact for readers that store numbers as doubles.
inline constexpr int64_t kLargestExactInteger = int64_t{1} << 53;

// The form of values that JSON lacks.
struct JsonPolicy {
  enum class Form {
    kStrict,    // they are refused; a tuple is a list, a device or dtype its name
    kReadable,  // numbers that are not finite are words, integers as keys are texts
    kLossless,  // they get a tag, by which they are read back
  };
  Form form = Form::kStrict;
  // The JSON of a tensor at a path. Empty: lists of its numbers.
  std::function<Json(const at::Tensor& tensor, const std::string& path)> tensor;
};

// `path` is that of the value, for errors and tensors.
Json json_of(const c10::IValue& value, const JsonPolicy& policy = {}, const std::string& path = "");

c10::IValue from_json(const Json& document, const std::string& source);

}  // namespace accel::tree
