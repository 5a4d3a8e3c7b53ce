// Same plan: ranks that share layers agree on how they split them, before any of them waits for another one.
#pragma once

#include <string>
#include <vector>

#include "comm/communicator.hpp"

namespace accel::parallel {

// Collective. The lines are the settings and rules that decide which exchanges a rank makes, in words that follow
// "has". kCollectiveMismatch with those that differ.
void check_same_plan(const std::vector<std::string>& lines, comm::Communicator& ranks);

}  // namespace accel::parallel
