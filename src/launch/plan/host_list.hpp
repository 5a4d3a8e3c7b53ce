// SPDX-License-Identifier: Apache-2.0
// Lists of hosts as hostfiles and Slurm write them.
#pragma once

#include <string>
#include <vector>

#include "launch/plan/host_options.hpp"

namespace accel::launch {

// Lines "HOST [slots=N]"; what follows # is a comment. `source` names the text in errors.
std::vector<ListedHost> parse_hostfile(const std::string& text, const std::string& source);

// "node[1-3,07],login" is node1, node2, node3, node07, login. At most 65536 names.
std::vector<std::string> expand_node_list(const std::string& list);

}  // namespace accel::launch
