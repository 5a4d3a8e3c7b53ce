// How a reduction is shared among the ranks: each reduces one slice of the tensor, in rank order, and gives the result
// to the ranks that want it.
#pragma once

#include <vector>

#include "comm/ucx/collective.hpp"

namespace accel::comm::ucx {

struct Slices {
  std::vector<Outgoing> inputs;   // slice p is reduced by rank p
  char* result = nullptr;         // of the slice that this rank reduces; may be its input; null where it is not wanted
  std::vector<Incoming> results;  // where the slices that others reduce go to; no bytes where this rank gets none
  int first_receiver = 0, last_receiver = -1;  // the ranks that get the result of this rank
};

}  // namespace accel::comm::ucx
