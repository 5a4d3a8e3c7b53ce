// SPDX-License-Identifier: Apache-2.0
// The report of a failed rank for the user: which rank was first, when and how, its last lines, and which of the others
// did not end as they should.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "launch/ranks/process_end.hpp"

namespace accel::launch {

struct EndedRank {
  int rank = 0;  // of all
  ProcessEnd end;
};

struct RankFailure {
  EndedRank first;
  std::chrono::steady_clock::time_point start, told_to_end;  // of the job; when the launcher ended the others
  std::vector<std::string> last_lines;
  std::vector<EndedRank> others;
  std::optional<int64_t> memory_kills;  // since the start; nothing: the kernel does not say
  std::string log_file;                 // of the first; empty: none
};

std::string describe(const RankFailure& failure);

// "0, 2-5"
std::string rank_ranges(std::vector<int> ranks);

}  // namespace accel::launch
