// SPDX-License-Identifier: Apache-2.0
// Any bytes as a GGUF file: an error that says what is wrong, or tensors that lie within the bytes and whose blocks can
// be read, and a tokenizer whose merges and roles are tokens, or an error of it.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "checkpoint/formats/gguf/gguf_blocks.hpp"
#include "checkpoint/formats/gguf/gguf_header.hpp"
#include "fuzz_target.hpp"
#include "text/gguf/gguf_tokenizer.hpp"

namespace gguf_fuzz {

using namespace accel::checkpoint;

namespace {

void describe(const accel::Json& metadata) {
  try {
    const auto described = accel::tokenizers::describe_gguf_tokenizer(metadata, "input");
    check(described.description.members() != nullptr);
    check(!accel::print_json(described.description).empty());
  } catch (const accel::Error& error) {
    const bool is_refused = error.status() == accel::Status::kCorrupt ||
                            error.status() == accel::Status::kUnsupported || error.status() == accel::Status::kNotFound;
    check(is_refused && error.message().find("'input'") != std::string::npos);
  }
}

}  // namespace

FUZZ_TARGET(gguf) {
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  GgufHeader header;
  try {
    header = parse_gguf_header(file, "input");
  } catch (const accel::Error& error) {
    const bool is_refused = error.status() == accel::Status::kCorrupt || error.status() == accel::Status::kUnsupported;
    check(is_refused && error.message().find("'input'") != std::string::npos);
    return 0;
  }
  describe(header.metadata);
  for (const GgufTensorEntry& entry : header.tensors) {
    check(entry.begin <= entry.end && entry.end <= size);
    if (!is_quantized(entry.type)) continue;
    const int64_t count = static_cast<int64_t>(entry.end - entry.begin) / block_of(entry.type).bytes;
    const int64_t columns = count * block_of(entry.type).numbers;
    const accel::kernels::WeightFormat format = weight_format(entry.type);
    std::vector<uint8_t> codes(accel::kernels::code_bytes(format, 1, columns));
    std::vector<float> scales(accel::kernels::groups_of_row(format, columns)), offsets(scales.size());
    split_blocks(entry.type, data + entry.begin, count, codes.data(), scales.data(), offsets.data());
  }
  return 0;
}

}  // namespace gguf_fuzz
