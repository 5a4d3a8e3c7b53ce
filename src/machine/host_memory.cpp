// SPDX-License-Identifier: Apache-2.0
#include "machine/host_memory.hpp"

#include <algorithm>
#include <fstream>
#include <optional>

#include "base/error.hpp"
#include "os/read_line.hpp"

namespace accel {
namespace {

// The number behind a key, "MemAvailable:  1024 kB" or "inactive_file 4096".
std::optional<int64_t> number_of(const std::string& path, const std::string& wanted) {
  std::ifstream file(path);
  std::string key;
  int64_t number = 0;
  for (std::string rest; file >> key >> number; read_line(file, rest))
    if (key == wanted) return number;
  return std::nullopt;
}

// The only number of a file; nothing for "max", which is not a limit.
std::optional<int64_t> number_of(const std::string& path) {
  std::ifstream file(path);
  int64_t number = 0;
  return file >> number ? std::optional(number) : std::nullopt;
}

// The memory that the limit of a control group leaves. Pages of files that nobody uses are freed when memory is needed.
std::optional<int64_t> left_in_group(const std::string& folder) {
  const auto limit = number_of(folder + "/memory.max"), used = number_of(folder + "/memory.current");
  if (!limit || !used) return std::nullopt;
  return std::max<int64_t>(*limit - *used + number_of(folder + "/memory.stat", "inactive_file").value_or(0), 0);
}

// The path of the group of this process, "/user.slice/job"; "" for the root, and where there are no groups.
std::string group_path(const std::string& root) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; read_line(file, line);)
    if (line.rfind("0::/", 0) == 0) return line.substr(line.size() == 4 ? 4 : 3);
  return "";
}

}  // namespace

int64_t available_host_memory(const std::string& root) {
  const auto kilobytes = number_of(root + "/proc/meminfo", "MemAvailable:");
  require(kilobytes.has_value(), Status::kUnsupported, root,
          "/proc/meminfo does not tell MemAvailable; give max_memory");
  int64_t available = *kilobytes * 1024;
  for (std::string path = group_path(root);; path.resize(path.rfind('/'))) {
    available = std::min(available, left_in_group(root + "/sys/fs/cgroup" + path).value_or(available));
    if (path.empty()) return available;
  }
}

int64_t available_host_memory() { return available_host_memory(""); }

}  // namespace accel
