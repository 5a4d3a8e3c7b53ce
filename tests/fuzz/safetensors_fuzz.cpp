// SPDX-License-Identifier: Apache-2.0
// Any bytes as a safetensors file: an error that says what is wrong, or tensors that lie within the bytes and come back
// the same when their header is written again.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "checkpoint/formats/safetensors_header.hpp"
#include "fuzz_target.hpp"

namespace safetensors_fuzz {

using namespace accel::checkpoint;

namespace {

bool has_nul(const SafetensorsHeader& header) {
  const auto is_in = [](const std::string& text) { return text.find('\0') != std::string::npos; };
  return std::any_of(header.tensors.begin(), header.tensors.end(),
                     [&](const auto& entry) { return is_in(entry.name); }) ||
         std::any_of(header.metadata.begin(), header.metadata.end(),
                     [&](const auto& entry) { return is_in(entry.first) || is_in(entry.second); });
}

void check_round_trip(SafetensorsHeader header) {
  uint64_t bytes = 0;
  for (const TensorEntry& entry : header.tensors) bytes += entry.end - entry.begin;
  const std::string printed = print_safetensors_header(header.metadata, header.tensors);
  // Reading looks at the header and at the number of bytes that follow it, never at those bytes.
  const SafetensorsHeader again = parse_safetensors_header({printed.data(), printed.size() + bytes}, "again");
  check(again.metadata == header.metadata && again.tensors.size() == header.tensors.size());
  for (size_t i = 0; i < again.tensors.size(); i++) {
    const TensorEntry &a = again.tensors[i], &b = header.tensors[i];
    check(a.name == b.name && a.dtype == b.dtype && a.shape == b.shape && a.begin == b.begin && a.end == b.end);
  }
}

}  // namespace

FUZZ_TARGET(safetensors) {
  try {
    const SafetensorsHeader header = parse_safetensors_header({reinterpret_cast<const char*>(data), size}, "input");
    for (const TensorEntry& entry : header.tensors)
      check(header.data_begin <= size && entry.begin <= entry.end && entry.end <= size - header.data_begin);
    if (!has_nul(header)) check_round_trip(header);  // which is read, but never written
  } catch (const accel::Error& error) {
    const bool is_refused = error.status() == accel::Status::kCorrupt || error.status() == accel::Status::kUnsupported;
    check(is_refused && error.message().find("'input'") != std::string::npos);
  }
  return 0;
}

}  // namespace safetensors_fuzz
