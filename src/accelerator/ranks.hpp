#pragma once

#include "checkpoint/training_state.hpp"
#include "state/state.hpp"

namespace accel::accelerator {

// The ranks of a job, for checkpoints: with a folder for all, or one on each host. The state must outlive them.
checkpoint::Ranks ranks_of(const state::State& state, bool each_host);

}  // namespace accel::accelerator
