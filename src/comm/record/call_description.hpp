// SPDX-License-Identifier: Apache-2.0
// Text that describes ranks and their calls, for errors. Compiled into the engine and into plugins, which use none of
// its symbols.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace accel::comm {

// "rank 1", "ranks 0, 2, 3"
std::string list_ranks(const std::vector<int>& ranks);

// "rank 1 is in save_state #12, ranks 0, 2, 3 wait in reduce #12": ranks grouped by their call.
std::string describe_calls(const std::map<std::string, std::vector<int>>& ranks_by_call);

}  // namespace accel::comm
