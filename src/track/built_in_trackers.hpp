// SPDX-License-Identifier: Apache-2.0
// The trackers that this library has, by name.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "json/json.hpp"
#include "track/record_sink.hpp"

namespace accel::track {

struct BuiltIn {
  const char* name;
  bool requires_logging_directory;
  std::vector<const char*> options;
  // Null: its service or library is missing, of which the log has a warning.
  std::unique_ptr<RecordSink> (*make)(const Run& run, const Json& options);
  // Whether it waits for others than the disk, and so has a thread of its own.
  bool (*is_remote)(const Json& options);
};

std::vector<BuiltIn> built_in_trackers();
std::vector<std::string> built_in_names();
// Whether Accelerate has a tracker of this name that is a package of Python, which only Python's programs can use.
bool is_package_of_python(const std::string& name);

}  // namespace accel::track
