// Nested values of JSON that is parsed already. The conversion from text is in tensor/tree.hpp.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>

#include "json/json.hpp"

namespace accel::tree {

c10::IValue from_json(const Json& document, const std::string& source);

}  // namespace accel::tree
