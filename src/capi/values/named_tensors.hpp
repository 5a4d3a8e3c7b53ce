// SPDX-License-Identifier: Apache-2.0
// Maps name -> tensor, and lists of names.
#pragma once

#include <ATen/core/Dict.h>
#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "accel.h"
#include "capi/values/value.hpp"
#include "tensor/tree.hpp"

namespace accel::capi {

// `name` is the parameter's, for the message.
inline std::vector<std::pair<std::string, at::Tensor>> read_named_tensors(const accel_value_t& map, const char* name) {
  const c10::IValue value = to_ivalue(map, name);
  require(value.isGenericDict(), Status::kTypeMismatch, name, " is a ", tree::kind_name(value),
          "; expected a map name -> tensor");
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const auto& entry : value.toGenericDict()) {
    require(entry.key().isString(), Status::kTypeMismatch, name, " has a key of kind ", tree::kind_name(entry.key()),
            "; expected names");
    require(entry.value().isTensor(), Status::kTypeMismatch, name, "['", entry.key().toStringRef(), "'] is a ",
            tree::kind_name(entry.value()), "; expected a tensor");
    tensors.emplace_back(entry.key().toStringRef(), entry.value().toTensor());
  }
  return tensors;
}

inline c10::IValue map_of(const std::vector<std::pair<std::string, at::Tensor>>& tensors) {
  auto map = tree::new_map();
  for (const auto& [name, tensor] : tensors) map.insert(name, tensor);
  return map;
}

inline c10::IValue list_of_names(const std::vector<std::string>& names) {
  return tree::new_list(std::vector<c10::IValue>(names.begin(), names.end()));
}

}  // namespace accel::capi
