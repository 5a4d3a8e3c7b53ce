#pragma once

#include "checkpoint/training_state.hpp"
#include "comm/communicator.hpp"

namespace accel::accelerator {

// The ranks of a communicator, for checkpoints. It must outlive them.
checkpoint::Ranks ranks_of(comm::Communicator& communicator);

}  // namespace accel::accelerator
