// SPDX-License-Identifier: Apache-2.0
// Joins the Chrome traces of ranks.
#pragma once

#include <string>
#include <vector>

namespace accel::track {

// "profile_0.json", ... in a folder, by rank. kNotFound if there is none.
std::vector<std::string> traces_in(const std::string& folder);

// Files, or one folder. Each rank becomes a process whose number is the rank, on rank 0's clock, and arrows lead from
// each collective to its parts on the other ranks. kCorrupt, kNotFound, kIo.
void merge_traces(const std::vector<std::string>& paths, const std::string& merged);

}  // namespace accel::track
