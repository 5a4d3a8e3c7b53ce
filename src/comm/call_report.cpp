#include "comm/call_report.hpp"

#include <algorithm>
#include <map>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "base/error.hpp"

namespace accel::comm {
namespace {

std::string list_ranks(const std::vector<int>& ranks) {
  std::string list = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); i++) list += text(i ? ", " : "", ranks[i]);
  return list;
}

std::string describe(const std::map<std::string, std::vector<int>>& ranks_by_call) {
  std::vector<std::pair<std::string, std::vector<int>>> groups(ranks_by_call.begin(), ranks_by_call.end());
  // The few are more likely the ones that went astray; of equal groups the one without rank 0.
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

}  // namespace

std::string report_calls(c10d::Store& store, int rank, int size, uint64_t sequence, const std::string& call,
                         std::chrono::milliseconds timeout) {
  std::vector<std::string> keys;
  for (int other = 0; other < size; other++) keys.push_back(text("accel/calls/", sequence, "/", other));
  std::map<std::string, std::vector<int>> ranks_by_call;
  try {
    store.set(keys[rank], call);
    store.wait(keys, timeout);
    for (int other = 0; other < size; other++) ranks_by_call[store.get_to_str(keys[other])].push_back(other);
  } catch (const std::exception&) {
    return {};  // the transport's own message has to do
  }
  return ranks_by_call.size() == 1 ? std::string() : describe(ranks_by_call);
}

}  // namespace accel::comm
