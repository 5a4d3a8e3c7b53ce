// SPDX-License-Identifier: Apache-2.0
// Value files: a nested value in a file, in one of three containers. The name of a file of a checkpoint tells which.
//
//   .safetensors   a map of tensors, such as a model; those that are one and the same are stored once
//   .ztensors      the same, compressed; other values are JSON in its metadata, with the tensors under their paths
//   all others     any value, as torch.save() writes it
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

#include <memory>
#include <optional>
#include <string>

#include "checkpoint/files/atomic_file.hpp"
#include "checkpoint/formats/safetensors.hpp"
#include "os/mapped_file.hpp"

namespace accel::checkpoint {

// The level is Zstd's; only of .ztensors.
void write_value(OutputFile& output, const c10::IValue& value, int compression_level = 0);

// Whether the file has that value. Does not compare the elements of tensors.
bool holds_value(const std::string& path, const c10::IValue& value);

// Reads any container, which is recognised by its first bytes. Lists are read as List[Any], maps as Dict; tensors share
// the mapping where they can, and tied ones have all their names. Errors are kCorrupt and name the file.
c10::IValue read_value(const std::shared_ptr<const MappedFile>& file);

// A value in a file of its own, under any name: replaces it atomically. With `safe_serialization` the value must be a
// map of tensors, which is written as safetensors with these metadata.
void save_value(const std::string& path, const c10::IValue& value, bool safe_serialization,
                const Metadata& metadata = {}, FileSystem& files = system_files());
// On the CPU, or with its tensors on a device: see map_location().
c10::IValue load_value(const std::string& path, std::optional<c10::Device> device = std::nullopt);

}  // namespace accel::checkpoint
