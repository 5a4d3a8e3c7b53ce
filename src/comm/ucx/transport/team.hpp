// SPDX-License-Identifier: Apache-2.0
// Team: the ranks of a group that work together in one phase of a collective, such as those of a host, or one of each
// host. Within it they are numbered by their position.
#pragma once

#include <vector>

namespace accel::comm::ucx {

struct Team {
  std::vector<int> ranks;  // of the group
  int position = 0;        // of this rank among them

  int size() const { return static_cast<int>(ranks.size()); }
};

}  // namespace accel::comm::ucx
