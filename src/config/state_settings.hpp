// The settings of a state, resolved once: see config/precedence.hpp.
#pragma once

#include "config/generated/settings.hpp"

namespace accel {

// What the program gave, completed.
StateSettings resolve_state_settings(StateSettings given);
// Settings of a training in a job that is there already: what belongs to the job must not be given otherwise.
StateSettings share_settings(const StateSettings& job, StateSettings given);

}  // namespace accel
