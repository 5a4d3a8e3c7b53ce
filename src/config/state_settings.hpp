// Settings of a state, resolved by config/precedence.hpp.
#pragma once

namespace accel {

struct StateSettings;

// Completes the settings of a call.
StateSettings resolve_state_settings(StateSettings given);
// Settings of a further state in the same job: those of the job must not differ.
StateSettings share_settings(const StateSettings& job, StateSettings given);

}  // namespace accel
