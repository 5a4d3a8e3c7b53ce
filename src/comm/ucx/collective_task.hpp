// SPDX-License-Identifier: Apache-2.0
// The task of a collective: which blocks each kind sends and receives.
#pragma once

#include "comm/backend/collective_call.hpp"
#include "comm/ucx/progress/task.hpp"

namespace accel::comm::ucx {

// `rank` and `size` are those of the group. Throws kInvalid.
Task make_task(CollectiveCall&& call, int rank, int size);

}  // namespace accel::comm::ucx
