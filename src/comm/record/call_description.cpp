// SPDX-License-Identifier: Apache-2.0
#include "comm/record/call_description.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace accel::comm {

std::string list_ranks(const std::vector<int>& ranks) {
  std::string list = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); i++) list += text(i ? ", " : "", ranks[i]);
  return list;
}

std::string describe_calls(const std::map<std::string, std::vector<int>>& ranks_by_call) {
  std::vector<std::pair<std::string, std::vector<int>>> groups(ranks_by_call.begin(), ranks_by_call.end());
  // The smaller group first, which more likely has the bug; of equal ones the group without rank 0.
  std::sort(groups.begin(), groups.end(), [](const auto& a, const auto& b) {
    return a.second.size() != b.second.size() ? a.second.size() < b.second.size() : a.second[0] > b.second[0];
  });
  std::string line;
  for (const auto& [call, ranks] : groups) {
    const bool last = &ranks == &groups.back().second, one = ranks.size() == 1;
    line += text(line.empty() ? "" : ", ", list_ranks(ranks),
                 last ? (one ? " waits in " : " wait in ") : (one ? " is in " : " are in "), call);
  }
  return line;
}

}  // namespace accel::comm
