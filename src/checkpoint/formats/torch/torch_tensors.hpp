// SPDX-License-Identifier: Apache-2.0
// Tensors and storages as torch pickles them.
#pragma once

#include <optional>
#include <string>

#include "checkpoint/formats/torch/pickle_node.hpp"

namespace accel::checkpoint {

// "torch.FloatStorage": the type of its elements; uint8 for storages without a type. Nothing for other names.
std::optional<at::ScalarType> storage_dtype(const std::string& name);

// The reverse without "torch."; null for dtypes whose storages have no type.
const char* storage_type_name(at::ScalarType dtype);

// Calls a function that makes a tensor from a storage, torch._utils._rebuild_tensor or one of its later versions. The
// tensor shares the storage; what lies outside of the storage is kCorrupt.
at::Tensor make_tensor(const std::string& name, const PickleItems& arguments);

}  // namespace accel::checkpoint
