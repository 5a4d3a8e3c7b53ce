// SPDX-License-Identifier: Apache-2.0
// Single tensors of a model by their names.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "nn/module.hpp"

namespace accel::bigmodel {

// Moves a parameter or buffer, or gives it other values; undefined: its own. They get the dtype that the tensor has, or
// `dtype` if they are floating; integers keep theirs then.
// @accelerate utils.set_module_tensor_to_device
void set_module_tensor(nn::Module& model, const std::string& name, c10::Device device, const at::Tensor& value,
                       std::optional<at::ScalarType> dtype);

// Whether a name is one of the paths, or below one.
bool is_below_any(const std::string& name, const std::vector<std::string>& paths);

}  // namespace accel::bigmodel
