// SPDX-License-Identifier: Apache-2.0
// Runs a collective by the algorithm that suits its size and the hosts of its ranks.
#pragma once

#include "comm/ucx/algorithms/block_collective.hpp"
#include "comm/ucx/algorithms/session.hpp"

namespace accel::comm::ucx {

// Returns when this rank's part is done. Throws CollectiveError; after kMismatch all ranks have thrown it and the next
// collective may follow.
void run(const Collective& collective, Session& session);

}  // namespace accel::comm::ucx
