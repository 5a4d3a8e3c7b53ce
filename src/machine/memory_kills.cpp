// SPDX-License-Identifier: Apache-2.0
#include "machine/memory_kills.hpp"

#include <fstream>
#include <string_view>
#include <utility>

#include "base/environment.hpp"
#include "base/split_text.hpp"
#include "os/read_line.hpp"

namespace accel::launch {
namespace {

// The number behind "oom_kill " in a file of lines; nothing: no such file or line.
std::optional<int64_t> kills_in(const std::string& file) {
  constexpr std::string_view kKey = "oom_kill ";
  std::ifstream stream(file);
  for (std::string line; stream && read_line(stream, line);)
    if (line.compare(0, kKey.size(), kKey) == 0) return parse_integer(line.substr(kKey.size()));
  return std::nullopt;
}

}  // namespace

MemoryKills::MemoryKills(std::string root) : root_(std::move(root)), before_(count()) {}

std::optional<int64_t> MemoryKills::since() const {
  const std::optional<int64_t> now = count();
  if (!now || !before_) return std::nullopt;
  return *now - *before_;
}

// "0::/job" is version 2, "9:memory:/job" version 1. In a container the group may be the root of what is mounted.
std::optional<int64_t> MemoryKills::count() const {
  std::ifstream groups(root_ + "/proc/self/cgroup");
  for (std::string line; groups && read_line(groups, line);) {
    const std::vector<std::string> parts = split_text(line, ':');
    if (parts.size() < 2) continue;
    const std::string path = parts.size() > 2 ? parts[2] : "";
    for (const std::string& group : {path, std::string()}) {
      if (parts[0] == "0")
        if (const auto kills = kills_in(root_ + "/sys/fs/cgroup" + group + "/memory.events")) return kills;
      if (parts[1] == "memory")
        if (const auto kills = kills_in(root_ + "/sys/fs/cgroup/memory" + group + "/memory.oom_control")) return kills;
    }
  }
  return kills_in(root_ + "/proc/vmstat");
}

}  // namespace accel::launch
