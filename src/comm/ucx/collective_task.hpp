// The task of a collective: which blocks each kind sends and receives.
#pragma once

#include "comm/backend/chunked_calls.hpp"
#include "comm/backend/collective_call.hpp"
#include "comm/ucx/progress/task.hpp"

namespace accel::comm::ucx {

// `rank` and `size` are those of the group. `whole` is what the call is a chunk of, or null. Throws kInvalid.
Task make_task(CollectiveCall&& call, const WholeCall* whole, int rank, int size);

}  // namespace accel::comm::ucx
