// SPDX-License-Identifier: Apache-2.0
// Layout of a file of compressed tensors (.ztensors):
//
//   "ACCELZT1", the tensors, a header as JSON, its length in 8 bytes, "ACCELZT1"
//
// Header: {"metadata": {name: text}, "tensors": [{"name", "dtype", "shape", "offset", "shuffle", "blocks"}, ...]}.
// A tensor is cut into blocks of 1 MiB; "blocks" are their sizes in the file. A block whose size is that of its data is
// stored as it is, others are compressed by Zstd. With "shuffle" n the bytes of elements of n bytes are sorted before:
// all first bytes, then all second ones, and so on; floats compress better so. Tensors without "blocks" are stored as
// they are, aligned to 64 bytes.
#pragma once

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/formats/safetensors_header.hpp"

namespace accel::checkpoint {

inline constexpr std::string_view kCompressedMagic = "ACCELZT1";
inline constexpr uint64_t kCompressedBlock = 1 << 20;
inline constexpr uint64_t kUncompressedAlignment = 64;

inline bool is_compressed(std::string_view file) { return file.substr(0, kCompressedMagic.size()) == kCompressedMagic; }

struct CompressedEntry {
  std::string name;
  at::ScalarType dtype = at::kByte;
  std::vector<int64_t> shape;
  uint64_t bytes = 0;                 // of its data
  uint64_t offset = 0;                // in the file
  uint64_t shuffle = 1;               // bytes of an element; 1: not shuffled
  std::vector<uint64_t> block_sizes;  // empty: stored as it is

  uint64_t num_blocks() const { return (bytes + kCompressedBlock - 1) / kCompressedBlock; }
  uint64_t block_bytes(uint64_t block) const { return std::min(kCompressedBlock, bytes - block * kCompressedBlock); }
};

struct CompressedHeader {
  Metadata metadata;
  std::vector<CompressedEntry> tensors;
};

// The size of what is shuffled; complex numbers are pairs of floats.
uint64_t shuffle_of(at::ScalarType dtype);

// Checks everything but the contents of the blocks: all ranges are inside of the file, in order, without holes.
// `source` names the file in errors, which are kCorrupt.
CompressedHeader parse_compressed_header(std::string_view file, const std::string& source);

// The header with its length and the magic number: what follows the tensors.
std::string print_compressed_header(const CompressedHeader& header);

}  // namespace accel::checkpoint
