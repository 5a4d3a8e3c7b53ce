// SPDX-License-Identifier: Apache-2.0
// Settings of a state, resolved by config/precedence.hpp.
#pragma once

#include <cstdint>

namespace accel {

enum class ContextMethod : int32_t;
struct StateSettings;

// Completes the settings of a call.
StateSettings resolve_state_settings(StateSettings given);
// How the ranks share sequences by which of two names their number was given: the variable or the name of Ulysses, or
// that of context parallelism.
ContextMethod default_context_method(const StateSettings& resolved);
// Settings of a further state in the same job: those of the job must not differ.
StateSettings share_settings(const StateSettings& job, StateSettings given);

}  // namespace accel
