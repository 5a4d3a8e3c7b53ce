// SPDX-License-Identifier: Apache-2.0
// How far the clocks of the ranks' hosts are apart.
#pragma once

#include <cstdint>

#include "comm/communicator.hpp"

namespace accel::profile {

struct ClockOffset {
  int64_t offset = 0;      // nanoseconds: what is added to this rank's clock for that of rank 0
  int64_t round_trip = 0;  // of the message that it was measured with: the error is at most half of it
};

// Collective.
ClockOffset measure_clock_offset(comm::Communicator& communicator);

}  // namespace accel::profile
