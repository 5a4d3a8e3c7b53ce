// Files of named tensors, in the safetensors format.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mapped_file.hpp"
#include "checkpoint/atomic_file.hpp"
#include "checkpoint/safetensors_header.hpp"

namespace accel::checkpoint {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

struct SafetensorsContents {
  NamedTensors tensors;
  Metadata metadata;
};

// Replaces the file when all of it is on the disk. Tensors that are contiguous on the CPU are written from where they
// are; of the others one at a time is copied.
void save_safetensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata,
                      FileSystem& files = system_files());
void write_safetensors(OutputFile& output, const NamedTensors& tensors, const Metadata& metadata);

// Whether the file says of itself what was written: names, dtypes, shapes and metadata. The elements are not looked at.
bool has_header_of(const std::string& path, const NamedTensors& tensors, const Metadata& metadata);

// The tensors lie in the mapping, which they keep alive, or in memory of their own where the file does not align them.
SafetensorsContents load_safetensors(const std::string& path);
SafetensorsContents read_safetensors(const std::shared_ptr<const MappedFile>& file);

// Tensors that are one and the same (tied weights) are kept once, under their first name; the metadata then says
// {other name: first name}, as the reference's save_model writes it, besides what is given, which must not have the
// same names. restore_tied() gives the other names back.
SafetensorsContents drop_tied(const NamedTensors& tensors, const Metadata& metadata = {});
void restore_tied(SafetensorsContents& contents);

}  // namespace accel::checkpoint
