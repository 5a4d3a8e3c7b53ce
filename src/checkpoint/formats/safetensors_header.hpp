// SPDX-License-Identifier: Apache-2.0
// Header of a safetensors file: 8 bytes with its length, then JSON with the dtype, shape and offsets of each tensor.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace accel::checkpoint {

using Metadata = std::vector<std::pair<std::string, std::string>>;

struct TensorEntry {
  std::string name;
  at::ScalarType dtype;
  std::vector<int64_t> shape;  // of LibTorch's elements
  uint64_t begin;              // bytes from the end of the header
  uint64_t end;

  bool operator==(const TensorEntry& other) const {
    return name == other.name && dtype == other.dtype && shape == other.shape && begin == other.begin &&
           end == other.end;
  }
};

struct SafetensorsHeader {
  Metadata metadata;
  std::vector<TensorEntry> tensors;
  uint64_t data_begin;  // bytes from the start of the file
};

// Checks everything: all returned ranges are inside the file. `source` names the file in errors, which are kCorrupt.
SafetensorsHeader parse_safetensors_header(std::string_view file, const std::string& source);

// Sorts the tensors as safetensors does (large alignments first, then by name), sets their offsets, and returns the
// header.
std::string print_safetensors_header(const Metadata& metadata, std::vector<TensorEntry>& tensors);

}  // namespace accel::checkpoint
