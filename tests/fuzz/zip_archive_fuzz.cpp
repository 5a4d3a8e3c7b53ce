// SPDX-License-Identifier: Apache-2.0
// Any bytes as a zip archive: an error that says what is wrong, or entries that lie within the bytes and do not
// overlap.
#include <algorithm>
#include <cstdint>
#include <string_view>

#include "base/error.hpp"
#include "checkpoint/formats/torch/zip_reader.hpp"
#include "fuzz_target.hpp"

namespace zip_archive_fuzz {

FUZZ_TARGET(zip_archive) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    auto entries = accel::checkpoint::read_zip(bytes, "input");
    std::sort(entries.begin(), entries.end(),
              [](const auto& a, const auto& b) { return a.data.data() < b.data.data(); });
    const char* end = bytes.data();
    for (const auto& entry : entries) {
      check(entry.data.data() >= end && !entry.name.empty());
      end = entry.data.data() + entry.data.size();
      check(end <= bytes.data() + size);
    }
    for (const auto& entry : entries) check_zip_entry(entry, "input");
  } catch (const accel::Error& error) {
    check(error.status() == accel::Status::kCorrupt || error.status() == accel::Status::kUnsupported);
    check(error.message().find("'input'") != std::string::npos && error.message().find('\n') == std::string::npos);
  }
  return 0;
}

}  // namespace zip_archive_fuzz
