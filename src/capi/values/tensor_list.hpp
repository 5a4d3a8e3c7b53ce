// SPDX-License-Identifier: Apache-2.0
// Arrays of tensor handles in the arguments of a call.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <string>
#include <vector>

#include "accel.h"
#include "capi/calls/guard.hpp"
#include "capi/calls/handles.hpp"

namespace accel::capi {

inline std::vector<at::Tensor> read_tensors(accel_tensor_t* const* tensors, size_t count, const char* name) {
  check_array(check_pointer(tensors, name), count, name);
  const std::string entry = std::string(name) + "[i]";
  std::vector<at::Tensor> list;
  for (size_t i = 0; i < count; ++i) list.push_back(check(tensors[i], entry.c_str()).tensor);
  return list;
}

}  // namespace accel::capi
