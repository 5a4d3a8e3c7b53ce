// SPDX-License-Identifier: Apache-2.0
// Replica vote: which of the ranks that must have equal values have others, by the majority. All ranks compute it of
// the same gathered numbers, so all come to the same answer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/mesh.hpp"
#include "kernels/digest128.hpp"

namespace accel::accelerator {

using ReplicaGroups = std::vector<std::vector<int>>;  // of ranks, in ascending order

// The groups of ranks that must have equal parameters, where ranks along these axes of the mesh have other parts.
ReplicaGroups replica_groups(const comm::Mesh& mesh, int ranks, const std::string& axes);

struct Disagreement {
  std::vector<int> group;
  std::vector<int> minority;  // empty: no value is that of more than half of the group
};

// Empty: the ranks of each group agree. A group with a majority comes before one without.
std::optional<Disagreement> find_disagreement(const ReplicaGroups& groups,
                                              const std::vector<kernels::Digest128>& of_ranks);

// Each rank sends a report about itself after a disagreement.
struct ReplicaReport {
  bool is_repeatable = true;    // a second digest of all was equal to the first
  std::vector<uint64_t> items;  // the digest of each item, with its name
};
std::string print(const ReplicaReport& report);
ReplicaReport parse_replica_report(const std::string& bytes);

struct ReplicaVerdict {
  std::optional<int> rank;  // at fault; not set where the reports do not tell
  bool is_unrepeatable = false;
  size_t item = 0;           // the first that differs
  size_t num_differing = 0;  // items
};
ReplicaVerdict judge(const Disagreement& disagreement, const std::vector<ReplicaReport>& of_ranks);

}  // namespace accel::accelerator
