// SPDX-License-Identifier: Apache-2.0
// Any bytes as a file of compressed tensors: an error that says what is wrong, or tensors whose blocks lie one after
// the other within the bytes.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "checkpoint/formats/compressed_header.hpp"
#include "fuzz_target.hpp"

namespace compressed_header_fuzz {

using namespace accel::checkpoint;

FUZZ_TARGET(compressed_header) {
  // The frame around a header, which mutations seldom keep.
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const bool is_framed = is_compressed(text);
  std::string file(text);
  if (!is_framed) {
    file.insert(0, kCompressedMagic);
    for (size_t i = 0; i < 8; i++) file += static_cast<char>(size >> (8 * i) & 0xff);
    file += kCompressedMagic;
  }
  try {
    const CompressedHeader header = parse_compressed_header(file, "input");
    uint64_t position = kCompressedMagic.size();
    for (const CompressedEntry& entry : header.tensors) {
      check(entry.offset >= position && entry.offset <= file.size());
      uint64_t stored = 0;
      for (const uint64_t block : entry.block_sizes) stored += block;
      if (entry.block_sizes.empty()) stored = entry.bytes;
      check(stored <= file.size() - entry.offset);
      check(entry.block_sizes.empty() || entry.block_sizes.size() == entry.num_blocks());
      position = entry.offset + stored;
    }
  } catch (const accel::Error& error) {
    check(error.status() == accel::Status::kCorrupt && error.message().find("'input'") != std::string::npos);
  }
  return 0;
}

}  // namespace compressed_header_fuzz
