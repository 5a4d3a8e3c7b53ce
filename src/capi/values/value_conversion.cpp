// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <memory>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/text_check.hpp"
#include "capi/calls/handles.hpp"
#include "capi/values/owned_value.hpp"
#include "capi/values/value.hpp"
#include "capi/values/value_node.hpp"
#include "tensor/bytes.hpp"
#include "tensor/device/device.hpp"
#include "tensor/dtype.hpp"
#include "tensor/dtype_value.hpp"
#include "tensor/tree.hpp"

namespace accel::capi {
namespace {

// Checks text that the engine, an operator or a script made.
void require_text(const std::string& text, const char* what) {
  const size_t bad = first_bad_byte(text);
  if (bad != text.size())
    fail(Status::kTypeMismatch, what, text[bad] == '\0' ? " contains a NUL" : " is not UTF-8", "; expected text");
}

// Whether C can read all of it.
void check_readable(const c10::IValue& value, int depth) {
  require(depth <= tree::kDeepest, Status::kInvalidArgument, "a value is nested more than ", tree::kDeepest,
          " levels deep");
  if (value.isTensor() || value.isInt() || value.isDouble() || value.isBool() || value.isNone() || value.isDevice())
    return;
  if (value.isString()) return require_text(value.toStringRef(), "a string");
  if (tree::is_sequence(value)) {
    for (const c10::IValue& item : tree::sequence_items(value)) check_readable(item, depth + 1);
    return;
  }
  if (value.isGenericDict()) {
    for (const auto& member : value.toGenericDict()) {
      const c10::IValue& key = member.key();
      if (key.isString())
        require_text(key.toStringRef(), "a key of a map");
      else if (!key.isInt())
        fail(Status::kTypeMismatch, "a map has a key of kind ", tree::kind_name(key), "; expected strings or integers");
      check_readable(member.value(), depth + 1);
    }
    return;
  }
  if (tree::bytes_of(value) == nullptr && !tree::dtype_of(value))
    fail(Status::kTypeMismatch, "a value of kind ", tree::kind_name(value),
         " cannot leave the library; expected tensors, numbers, strings, bytes, devices, lists, tuples and maps");
}

}  // namespace

c10::IValue to_ivalue(const accel_value_t& value, const char* name) {
  check_value(value, name);
  switch (value.kind) {
    case ACCEL_VALUE_BOOL:
      return value.as.integer != 0;
    case ACCEL_VALUE_INT:
      return value.as.integer;
    case ACCEL_VALUE_DOUBLE:
      return value.as.number;
    case ACCEL_VALUE_STRING:
      return std::string(value.as.string);
    case ACCEL_VALUE_TENSOR:
      return value.as.tensor->tensor;
    case ACCEL_VALUE_DTYPE:
      return tree::dtype_value(tensor::dtype_from_number(value.as.dtype));
    case ACCEL_VALUE_DEVICE:
      return tensor::device_from_numbers({value.as.device.type, value.as.device.index});
    case ACCEL_VALUE_BYTES: {
      const accel_bytes_t& bytes = *value.as.bytes;
      return tree::bytes_value(std::string(static_cast<const char*>(bytes.data), bytes.size),
                               bytes.type == nullptr ? "" : bytes.type);
    }
    case ACCEL_VALUE_LIST:
    case ACCEL_VALUE_TUPLE:
    case ACCEL_VALUE_MAP:
      return value.as.node->container();
    default:
      return {};
  }
}

std::vector<c10::IValue> to_ivalues(const accel_value_t* values, size_t count, const char* name) {
  check_array(values, count, name);
  std::vector<c10::IValue> converted;
  converted.reserve(count);
  for (size_t i = 0; i < count; i++) converted.push_back(to_ivalue(values[i], name));
  return converted;
}

accel_value_t from_ivalue(const c10::IValue& value) {
  check_readable(value, 0);
  if (value.isString()) return string_value(value.toStringRef()).release();
  if (const tree::Bytes* const bytes = tree::bytes_of(value))
    return bytes_value(bytes->data, bytes->type.empty() ? nullptr : bytes->type.c_str()).release();
  return borrowed_value(value);
}

accel_tensor_t* new_tensor(at::Tensor tensor) { return std::make_unique<accel_tensor>(std::move(tensor)).release(); }

}  // namespace accel::capi
