// SPDX-License-Identifier: Apache-2.0
#include "accelerator/replicas/replica_vote.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <map>
#include <utility>

#include "base/error.hpp"
#include "base/split_text.hpp"

namespace accel::accelerator {
namespace {

using kernels::Digest128;

// The ranks whose value is not that of more than half of the group. Empty: all have one value, or no value has a
// majority, which `all_agree` tells apart.
template <typename ValueOf>
std::vector<int> minority_of(const std::vector<int>& group, const ValueOf& value_of, bool& all_agree) {
  using Value = decltype(value_of(0));
  all_agree = true;
  Value candidate = value_of(group.front());
  size_t lead = 0;  // as Boyer and Moore count votes
  for (const int rank : group) {
    const Value value = value_of(rank);
    all_agree = all_agree && value == value_of(group.front());
    if (lead == 0) candidate = value;
    lead = value == candidate ? lead + 1 : lead - 1;
  }
  std::vector<int> others;
  std::copy_if(group.begin(), group.end(), std::back_inserter(others),
               [&](int rank) { return !(value_of(rank) == candidate); });
  if (others.size() * 2 >= group.size()) others.clear();
  return others;
}

}  // namespace

ReplicaGroups replica_groups(const comm::Mesh& mesh, int ranks, const std::string& axes) {
  std::vector<std::string> splitting;
  for (const std::string& axis : split_text(axes))
    if (mesh.size(axis) > 1) splitting.push_back(axis);
  std::map<std::vector<int64_t>, std::vector<int>> by_coordinates;
  for (int rank = 0; rank < ranks; rank++) {
    std::vector<int64_t> coordinates;
    for (const std::string& axis : splitting) coordinates.push_back(mesh.coordinate(axis, rank));
    by_coordinates[coordinates].push_back(rank);
  }
  ReplicaGroups groups;
  for (auto& [coordinates, members] : by_coordinates) groups.push_back(std::move(members));
  return groups;
}

std::optional<Disagreement> find_disagreement(const ReplicaGroups& groups, const std::vector<Digest128>& of_ranks) {
  std::optional<Disagreement> found;
  for (const std::vector<int>& group : groups) {
    bool all_agree = true;
    std::vector<int> minority = minority_of(
        group, [&](int rank) { return of_ranks[static_cast<size_t>(rank)]; }, all_agree);
    if (all_agree) continue;
    if (!found || (found->minority.empty() && !minority.empty())) found = Disagreement{group, std::move(minority)};
  }
  return found;
}

std::string print(const ReplicaReport& report) {
  std::string bytes(1 + report.items.size() * sizeof(uint64_t), report.is_repeatable ? '1' : '0');
  if (!report.items.empty()) std::memcpy(&bytes[1], report.items.data(), bytes.size() - 1);
  return bytes;
}

ReplicaReport parse_replica_report(const std::string& bytes) {
  require(bytes.size() % sizeof(uint64_t) == 1, Status::kCollectiveMismatch, "a rank sent ", bytes.size(),
          " bytes about its replica; expected one and a multiple of ", sizeof(uint64_t));
  ReplicaReport report{bytes.front() == '1', std::vector<uint64_t>(bytes.size() / sizeof(uint64_t))};
  if (!report.items.empty()) std::memcpy(report.items.data(), &bytes[1], bytes.size() - 1);
  return report;
}

ReplicaVerdict judge(const Disagreement& disagreement, const std::vector<ReplicaReport>& of_ranks) {
  const auto report_of = [&](int rank) -> const ReplicaReport& { return of_ranks[static_cast<size_t>(rank)]; };
  ReplicaVerdict verdict;
  if (!disagreement.minority.empty()) verdict.rank = disagreement.minority.front();
  size_t most = 0;
  for (const int rank : disagreement.group) {
    most = std::max(most, report_of(rank).items.size());
    if (report_of(rank).is_repeatable || verdict.is_unrepeatable) continue;
    verdict.is_unrepeatable = true;
    if (!verdict.rank) verdict.rank = rank;
  }
  if (verdict.is_unrepeatable) verdict.is_unrepeatable = !report_of(*verdict.rank).is_repeatable;
  for (size_t item = 0; item < most; item++) {
    bool all_agree = true;
    const std::vector<int> minority = minority_of(
        disagreement.group,
        [&](int rank) {
          const std::vector<uint64_t>& items = report_of(rank).items;
          return item < items.size() ? std::optional<uint64_t>(items[item]) : std::nullopt;
        },
        all_agree);
    if (all_agree) continue;
    if (verdict.num_differing++ > 0) continue;
    verdict.item = item;
    if (!verdict.rank && !minority.empty()) verdict.rank = minority.front();
  }
  return verdict;
}

}  // namespace accel::accelerator
