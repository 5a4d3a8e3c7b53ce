// SPDX-License-Identifier: Apache-2.0
#include "launch/ranks/failure_report.hpp"

#include <algorithm>
#include <cstdio>
#include <map>

#include "base/error.hpp"

namespace accel::launch {
namespace {

std::string seconds_text(std::chrono::steady_clock::duration duration) {
  char shown[32];
  std::snprintf(shown, sizeof shown, "%.2f s", std::chrono::duration<double>(duration).count());
  return shown;
}

std::string memory_size(int64_t bytes) {
  char shown[32];
  const bool is_large = bytes >= 1'000'000'000;
  std::snprintf(shown, sizeof shown, is_large ? "%.1f GB" : "%.0f MB",
                static_cast<double>(bytes) / (is_large ? 1e9 : 1e6));
  return shown;
}

std::string memory_text(const RankFailure& failure) {
  const ProcessEnd& end = failure.first.end;
  std::string shown = text("accel launch: it ran for ", seconds_text(end.when - failure.start));
  if (end.peak_memory > 0) shown += text(" and had up to ", memory_size(end.peak_memory), " of memory");
  if (!end.by_signal || end.number != SIGKILL || !failure.memory_kills) return shown + '\n';
  const int64_t kills = *failure.memory_kills;
  if (kills == 0) return shown + "; the kernel has killed no process for lack of memory meanwhile\n";
  return shown +
         text("; meanwhile memory ran out and the kernel killed ", kills, kills == 1 ? " process\n" : " processes\n");
}

// Empty: as it should.
std::string end_text(const RankFailure& failure, const ProcessEnd& end) {
  if (end.when < failure.told_to_end) return end.is_success() ? "" : "failed, too: " + describe(end);
  if (end.by_signal && end.number == SIGKILL) return "killed, still running long after SIGTERM";
  if (end.is_success() || (end.by_signal && end.number == SIGTERM)) return "";
  return "ended after SIGTERM: " + describe(end);
}

}  // namespace

std::string rank_ranges(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  std::string ranges;
  for (size_t first = 0, last = 0; first < ranks.size(); first = last + 1) {
    last = first;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    ranges += text(first == 0 ? "" : ", ", ranks[first]);
    if (last > first) ranges += text('-', ranks[last]);
  }
  return ranges;
}

std::string describe(const RankFailure& failure) {
  const int rank = failure.first.rank;
  std::string report = text("accel launch: rank ", rank, " failed: ", describe(failure.first.end), '\n');
  report += memory_text(failure);
  if (!failure.last_lines.empty()) report += text("the last lines of rank ", rank, ":\n");
  for (const std::string& line : failure.last_lines) report += text("  ", line, '\n');
  if (!failure.log_file.empty()) report += text("accel launch: all that it wrote is in ", failure.log_file, '\n');
  std::map<std::string, std::vector<int>> ranks_of_end;
  for (const EndedRank& other : failure.others)
    if (const std::string end = end_text(failure, other.end); !end.empty()) ranks_of_end[end].push_back(other.rank);
  for (const auto& [end, ranks] : ranks_of_end)
    report += text("accel launch: ", ranks.size() == 1 ? "rank " : "ranks ", rank_ranges(ranks), ": ", end, '\n');
  return report;
}

}  // namespace accel::launch
