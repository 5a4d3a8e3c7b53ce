// SPDX-License-Identifier: Apache-2.0
// Any bytes as a CSV file, the first one choosing the options: rows that can be read, or errors that name the file.
// What is left out as malformed is what fails when it is read.
#include "base/error.hpp"
#include "bytes_file.hpp"
#include "data/datasets/csv_dataset.hpp"
#include "fuzz_target.hpp"

namespace csv_fuzz {

using namespace accel;

namespace {

void expect_named(const Error& error) {
  check(error.status() == Status::kCorrupt);
  check(error.message().find("/proc/self/fd/") != std::string::npos);
}

int64_t readable_rows(const data::CsvDataset& dataset) {
  int64_t readable = 0;
  for (int64_t i = 0; i < dataset.length(); ++i) {
    try {
      dataset.item(i);
      ++readable;
    } catch (const Error& error) {
      expect_named(error);
    }
  }
  return readable;
}

}  // namespace

FUZZ_TARGET(csv) {
  if (size == 0) return 0;
  const BytesFile file(data + 1, size - 1);
  data::CsvOptions options;
  options.has_header = (data[0] & 1) != 0;
  options.delimiter = (data[0] & 2) != 0 ? ',' : '\t';
  if ((data[0] & 4) != 0) options.missing = 0;
  try {
    const data::CsvDataset dataset(file.path(), std::nullopt, options);
    const int64_t readable = readable_rows(dataset);
    options.skip_malformed = true;
    const data::CsvDataset skipping(file.path(), std::nullopt, options);
    check(skipping.length() == readable && skipping.num_skipped() == dataset.length() - readable);
    check(readable_rows(skipping) == readable);
  } catch (const Error& error) {
    expect_named(error);
  }
  return 0;
}

}  // namespace csv_fuzz
