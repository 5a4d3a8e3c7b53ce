// SPDX-License-Identifier: Apache-2.0
// Header of a GGUF file (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md): its metadata, and the names,
// shapes and types of its tensors.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "json/json.hpp"

namespace accel::checkpoint {

// The numbers are those of the format.
enum class GgufType : uint32_t {
  kFloat32 = 0,
  kFloat16 = 1,
  kQ40 = 2,
  kQ41 = 3,
  kQ50 = 6,
  kQ51 = 7,
  kQ80 = 8,
  kQ4K = 12,
  kQ5K = 13,
  kQ6K = 14,
  kBFloat16 = 30,
};

// Neighbouring numbers of a row are stored as one block.
struct GgufBlock {
  GgufType type;
  const char* name;
  int64_t numbers;
  int64_t bytes;
};
const GgufBlock& block_of(GgufType type);

struct GgufTensorEntry {
  std::string name;
  GgufType type;
  std::vector<int64_t> shape;  // of LibTorch: the last one is that of neighbouring numbers
  uint64_t begin;              // bytes from the start of the file
  uint64_t end;
};

struct GgufHeader {
  Json metadata;  // {"general.architecture": "llama", ...}
  std::vector<GgufTensorEntry> tensors;
};

// Checks everything: all returned ranges are inside the file. `source` names the file in errors, which are kCorrupt,
// or kUnsupported for types of tensors other than these and for files of big-endian machines.
GgufHeader parse_gguf_header(std::string_view file, const std::string& source);

}  // namespace accel::checkpoint
