// SPDX-License-Identifier: Apache-2.0
// Names in messages.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace accel {

// "'a', 'b' and 5 more".
inline std::string list_names(const std::vector<std::string>& names) {
  constexpr size_t kMostListed = 8;
  std::string list;
  for (size_t i = 0; i < std::min(names.size(), kMostListed); i++) list += (i == 0 ? "'" : ", '") + names[i] + "'";
  if (names.size() > kMostListed) list += text(" and ", names.size() - kMostListed, " more");
  return list;
}

}  // namespace accel
