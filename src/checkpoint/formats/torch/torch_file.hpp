// SPDX-License-Identifier: Apache-2.0
// Files of torch.save() and torch.load(): a value as a pickle, and the storages of its tensors.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "checkpoint/files/atomic_file.hpp"
#include "checkpoint/formats/torch/pickle_reader.hpp"
#include "os/mapped_file.hpp"

namespace accel::checkpoint {

inline constexpr size_t kTorchFileBytes = 512;  // of its beginning, that tell

// Whether the beginning of a file is one of torch's, also of a kind that is refused.
bool is_torch_file(std::string_view first_bytes);

// Reads a zip archive, or the layout before torch 1.6. The tensors share the mapping of the file, which they keep
// alive, and are writable; those that shared a storage when they were saved do so again. Devices are ignored: all
// tensors are on the CPU. Nothing of Python is executed: what values cannot hold is kUnsupported and named, damage is
// kCorrupt.
c10::IValue read_torch_file(const std::shared_ptr<const MappedFile>& file);
// Reads a file that also holds objects of its program's classes: those that are not `records` become None.
c10::IValue read_torch_file_of_objects(const std::shared_ptr<const MappedFile>& file,
                                       const RecordClasses* records = nullptr);
// One of several in a file, which `bytes` is a part of.
c10::IValue read_torch_file(const std::shared_ptr<const MappedFile>& file, std::string_view bytes);

// Writes what torch.load(weights_only=True) reads. Streams: tensors are written without a copy of the whole, contiguous
// or not, on any device. Tensors that share a storage share it in the file, of which only the part that they use is
// written.
void write_torch_file(OutputFile& output, const c10::IValue& value);
// Replaces the file atomically.
void save_torch_file(const std::string& path, const c10::IValue& value, FileSystem& files = system_files());

// Whether the file is as written: the pickle and the sizes of its storages. Does not compare the elements of tensors.
bool is_torch_file_of(const std::string& path, const c10::IValue& value);

}  // namespace accel::checkpoint
