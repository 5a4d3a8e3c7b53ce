// Some ranks of a group that work together in one phase of a collective, and are counted as they stand here: those of a
// host, or one of each host.
#pragma once

#include <vector>

namespace accel::comm::ucx {

struct Team {
  std::vector<int> ranks;  // of the group
  int position = 0;        // of this rank among them

  int size() const { return static_cast<int>(ranks.size()); }
};

}  // namespace accel::comm::ucx
