// Value files: a nested value in a file, in one of three containers, which its name tells.
//
//   .safetensors   a map of tensors, such as a model; those that are one and the same are stored once
//   .ztensors      the same, compressed; other values are JSON in its metadata, with the tensors under their paths
//   all others     any value, as torch.save() writes it
#pragma once

#include <ATen/core/ivalue.h>

#include <memory>
#include <string>

#include "base/mapped_file.hpp"
#include "checkpoint/files/atomic_file.hpp"

namespace accel::checkpoint {

// The level is Zstd's; only of .ztensors.
void write_value(OutputFile& output, const c10::IValue& value, int compression_level = 0);

// Whether the file has that value. Does not compare the elements of tensors.
bool holds_value(const std::string& path, const c10::IValue& value);

// Lists are read as List[Any], maps as Dict; tensors share the mapping where they can. Errors are kCorrupt and name the
// file.
c10::IValue read_value(const std::shared_ptr<const MappedFile>& file);

}  // namespace accel::checkpoint
