// SPDX-License-Identifier: Apache-2.0
// Reader and writer of files of compressed tensors, whose layout is in compressed_header.hpp.
#pragma once

#include <memory>
#include <string>

#include "checkpoint/files/atomic_file.hpp"
#include "checkpoint/formats/safetensors.hpp"
#include "os/mapped_file.hpp"

namespace accel::checkpoint {

// `level` is Zstd's, from 1 to 22. Tensors that hardly become smaller are stored as they are. Needs the memory of a few
// blocks.
void write_compressed_tensors(OutputFile& output, const NamedTensors& tensors, const Metadata& metadata, int level);

// Whether the file has these tensors, by its header.
bool has_compressed_header_of(const std::string& path, const NamedTensors& tensors, const Metadata& metadata);

// Tensors that are stored as they are share the mapping. Errors are kCorrupt and name the file.
SafetensorsContents read_compressed_tensors(const std::shared_ptr<const MappedFile>& file);

}  // namespace accel::checkpoint
