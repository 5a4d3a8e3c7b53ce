// SPDX-License-Identifier: Apache-2.0
// Reader and writer of safetensors files.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/files/atomic_file.hpp"
#include "checkpoint/formats/safetensors_header.hpp"
#include "os/mapped_file.hpp"
#include "tensor/device/host_ring.hpp"

namespace accel::checkpoint {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

struct SafetensorsContents {
  NamedTensors tensors;
  Metadata metadata;
};

// kTypeMismatch for what files of tensors cannot hold: tensors that are sparse, quantized, or on the meta device.
void check_writable(const std::string& name, const at::Tensor& tensor);

// Copies the elements to a dense tensor on the CPU; returns the same tensor if it is one.
at::Tensor dense_on_cpu(const at::Tensor& tensor);
// The bytes of dense_on_cpu(), without a copy of the whole where the tensor is dense on an accelerator.
void visit_elements(const at::Tensor& tensor, const tensor::VisitBytes& visit);

// Replaces the file atomically. Contiguous tensors are written without a copy; others are copied one at a time.
void save_safetensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata,
                      FileSystem& files = system_files());
void write_safetensors(OutputFile& output, const NamedTensors& tensors, const Metadata& metadata);

// Whether the header of the file is as written: names, dtypes, shapes and metadata. Does not read the elements.
bool has_header_of(const std::string& path, const NamedTensors& tensors, const Metadata& metadata);

// The tensors share the mapping of the file, which they keep alive, or are copies if the file does not align them.
SafetensorsContents load_safetensors(const std::string& path);
SafetensorsContents read_safetensors(const std::shared_ptr<const MappedFile>& file);

// Tied weights are stored once, under their first name; the metadata then has {other name: first name}, as
// Accelerate's save_model writes it, and must not use these names otherwise, nor have the name of a tensor as the value
// of another key than "format". restore_tied() restores the other names.
SafetensorsContents drop_tied(const NamedTensors& tensors, const Metadata& metadata = {});
void restore_tied(SafetensorsContents& contents);

}  // namespace accel::checkpoint
