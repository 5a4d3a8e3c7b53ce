// SPDX-License-Identifier: Apache-2.0
// Texts as values: STRING, or BYTES of UTF-8 where they contain a NUL.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "tensor/bytes.hpp"
#include "tensor/tree.hpp"

namespace accel::capi {

// Views the value, which must live on. Nothing else is text: `name` says in errors which value it was.
inline std::string_view text_of_value(const c10::IValue& value, const std::string& name) {
  if (value.isString()) return value.toStringRef();
  const tree::Bytes* const bytes = tree::bytes_of(value);
  require(bytes != nullptr, Status::kTypeMismatch, name, " is a ", tree::kind_name(value),
          "; expected STRING or BYTES");
  return bytes->data;
}

inline c10::IValue value_of_text(std::string text) {
  return text.find('\0') == std::string::npos ? c10::IValue(std::move(text)) : tree::bytes_value(std::move(text), "");
}

}  // namespace accel::capi
