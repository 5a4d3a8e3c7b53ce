// A value in a file of its own: safetensors or torch's.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>

#include "checkpoint/formats/safetensors.hpp"

namespace accel::checkpoint {

// Replaces the file atomically. A map of tensors is written as safetensors if `safe_serialization`, with tied tensors
// once, under their first name; any other value as a file that torch.load(weights_only=True) reads. `metadata` needs
// safetensors.
void save_value(const std::string& path, const c10::IValue& value, bool safe_serialization, const Metadata& metadata,
                FileSystem& files = system_files());

// Reads both, recognised by their content. All names of tied tensors come back. Tensors share the mapping of the file.
c10::IValue load_value(const std::string& path);

}  // namespace accel::checkpoint
