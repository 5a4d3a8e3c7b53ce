// SPDX-License-Identifier: Apache-2.0
// How many processes the kernel has killed because memory was missing, as far as it says so.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace accel::launch {

class MemoryKills {
 public:
  // Counts those before now. `root`: "" for the system's files.
  explicit MemoryKills(std::string root = "");

  // The kills since then in this control group (of either version) or, where it has none, on the host; nothing if the
  // kernel does not tell.
  std::optional<int64_t> since() const;

 private:
  std::optional<int64_t> count() const;

  std::string root_;
  std::optional<int64_t> before_;
};

}  // namespace accel::launch
