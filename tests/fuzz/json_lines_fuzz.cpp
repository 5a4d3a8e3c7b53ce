// SPDX-License-Identifier: Apache-2.0
// Any bytes as JSON lines: values, or errors that name the file and the row.
#include "base/error.hpp"
#include "bytes_file.hpp"
#include "data/datasets/json_line_dataset.hpp"
#include "data/datasets/line_dataset.hpp"
#include "fuzz_target.hpp"

namespace json_lines_fuzz {

using namespace accel;

namespace {

template <typename Rows>
void read_all(const std::string& path) {
  const Rows rows(path, std::nullopt, false);
  const Rows skipping(path, std::nullopt, true);
  int64_t readable = 0;
  for (int64_t i = 0; i < rows.length(); ++i) {
    try {
      rows.item(i);
      ++readable;
    } catch (const Error& error) {
      check(error.status() == Status::kCorrupt);
      check(error.message().find(path + "', row " + std::to_string(i + 1)) != std::string::npos);
    }
  }
  check(skipping.length() == readable && skipping.num_skipped() == rows.length() - readable);
}

}  // namespace

FUZZ_TARGET(json_lines) {
  const BytesFile file(data, size);
  read_all<data::LineDataset>(file.path());
  read_all<data::JsonLineDataset>(file.path());
  return 0;
}

}  // namespace json_lines_fuzz
