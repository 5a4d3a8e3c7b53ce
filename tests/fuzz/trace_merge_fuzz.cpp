// SPDX-License-Identifier: Apache-2.0
// Any bytes as the trace of a rank: kCorrupt with the file's name, or a merged trace that is JSON.
#include <filesystem>

#include "base/error.hpp"
#include "bytes_file.hpp"
#include "fuzz_target.hpp"
#include "json/json.hpp"
#include "os/regular_file.hpp"
#include "trace/trace_merge.hpp"

namespace trace_merge_fuzz {

using namespace accel;

namespace {

std::string merged_path() {
  return (std::filesystem::temp_directory_path() / ("accel-fuzz-trace-" + std::to_string(getpid()))).string();
}

}  // namespace

FUZZ_TARGET(trace_merge) {
  static const std::string merged = merged_path();
  const BytesFile file(data, size);
  try {
    track::merge_traces({file.path()}, merged);
  } catch (const Error& error) {
    check(error.status() == Status::kCorrupt);
    check(error.message().find(file.path()) != std::string::npos);
    check(!std::filesystem::exists(merged));
    return 0;
  }
  check(json_member(parse_json(RegularFile(merged).read(), "merged"), "traceEvents")->items() != nullptr);
  check(std::filesystem::remove(merged));
  return 0;
}

}  // namespace trace_merge_fuzz
