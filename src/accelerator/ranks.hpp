// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/training_state.hpp"
#include "comm/communicator.hpp"
#include "state/state.hpp"

namespace accel::accelerator {

// The ranks of a job, for checkpoints: with a folder for all, or one on each host. They talk through the communicator,
// which must outlive them.
checkpoint::Ranks ranks_of(const state::State& state, comm::Communicator& communicator, bool each_host);
inline checkpoint::Ranks ranks_of(const state::State& state, bool each_host) {
  return ranks_of(state, *state.communicator(), each_host);
}

}  // namespace accel::accelerator
