// SPDX-License-Identifier: Apache-2.0
// Any bytes as the manifest of a checkpoint, and as the list of files in it, which has no hash that mutations spoil: an
// error that says what is wrong, or files inside of the folder that come back the same.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "checkpoint/manifest.hpp"
#include "fuzz_target.hpp"

namespace manifest_fuzz {

using namespace accel::checkpoint;

namespace {

void check_files(const std::vector<FileRecord>& files) {
  for (const FileRecord& file : files)
    check(("/" + file.name + "/").find("/../") == std::string::npos && !file.name.empty() && file.name.front() != '/');
}

template <typename Body>
void expect_named(Body&& body) {
  try {
    body();
  } catch (const accel::Error& error) {
    check(error.status() == accel::Status::kCorrupt && error.message().find("'input'") != std::string::npos);
  }
}

}  // namespace

FUZZ_TARGET(manifest) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  expect_named([&] {
    const Manifest manifest = parse_manifest(text, "input");
    check_files(manifest.files);
    check(print_manifest(parse_manifest(print_manifest(manifest), "again")) == print_manifest(manifest));
  });
  expect_named([&] {
    const std::vector<FileRecord> files = parse_file_records(text, "input");
    check_files(files);
    check(print_file_records(parse_file_records(print_file_records(files), "again")) == print_file_records(files));
  });
  return 0;
}

}  // namespace manifest_fuzz
