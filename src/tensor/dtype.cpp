// SPDX-License-Identifier: Apache-2.0
#include "tensor/dtype.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace accel::tensor {
namespace {

template <typename Matches>
const Dtype* find_if(Matches matches) {
  const auto found = std::find_if(kDtypes.begin(), kDtypes.end(), matches);
  return found == kDtypes.end() ? nullptr : &*found;
}

}  // namespace

const Dtype* find_dtype(int32_t number) {
  return number >= 1 && number <= static_cast<int32_t>(kDtypes.size()) ? &kDtypes[number - 1] : nullptr;
}

const Dtype* find_dtype(c10::ScalarType type) {
  return find_if([&](const Dtype& dtype) { return dtype.type == type; });
}

const Dtype* find_dtype(std::string_view name) {
  return find_if([&](const Dtype& dtype) {
    return name == dtype.name || std::any_of(dtype.aliases.begin(), dtype.aliases.end(),
                                             [&](const char* alias) { return alias != nullptr && name == alias; });
  });
}

const Dtype* find_safetensors_dtype(std::string_view name) {
  return find_if([&](const Dtype& dtype) { return dtype.safetensors != nullptr && name == dtype.safetensors; });
}

c10::ScalarType dtype_from_number(int32_t number) {
  const Dtype* const dtype = find_dtype(number);
  require(dtype != nullptr, Status::kInvalidArgument, "dtype ", number,
          " is not known; expected a number from 1 (uint8) to ", kDtypes.size(), " (uint64)");
  return dtype->type;
}

int32_t dtype_number(c10::ScalarType type) {
  const Dtype* const dtype = find_dtype(type);
  require(dtype != nullptr, Status::kUnsupported, "dtype ", c10::toString(type),
          " has no number here; convert the tensor to a plain integer or floating dtype first");
  return dtype->number;
}

c10::ScalarType dtype_from_name(std::string_view name) {
  const Dtype* const dtype = find_dtype(name);
  require(dtype != nullptr, Status::kNotFound, "dtype '", name,
          "' is not known; expected float32, float16, bfloat16, float64, int64, int32, int16, int8, uint8, bool, "
          "complex64 or "
          "one of their relatives");
  return dtype->type;
}

double dtype_byte_size(std::string_view name) {
  if (name == "int2") return 0.25;
  if (name == "int4") return 0.5;
  if (name == "fp8") return 1;
  const c10::ScalarType type = dtype_from_name(name);
  return type == c10::ScalarType::Bool ? 0.125 : static_cast<double>(find_dtype(type)->size);
}

const char* dtype_name(c10::ScalarType type) {
  const Dtype* const dtype = find_dtype(type);
  return dtype != nullptr ? dtype->name : c10::toString(type);
}

}  // namespace accel::tensor
