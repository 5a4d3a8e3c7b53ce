// SPDX-License-Identifier: Apache-2.0
// Whether the tensors of a file are those of a model.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>

namespace accel::checkpoint {

// Checks names and shapes; dtypes may differ, because loading converts. `current` is the state of the model, with
// chunks of tensors that are sharded. kNotFound, kShapeMismatch or kInvalidState with `path`, the name of the file.
void check_model(const c10::IValue& loaded, const c10::IValue& current, const std::string& path);

}  // namespace accel::checkpoint
