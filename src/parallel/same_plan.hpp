// SPDX-License-Identifier: Apache-2.0
// Same plan: ranks agree on how they split a model, before any of them waits for another one.
#pragma once

#include <string>
#include <vector>

#include "comm/communicator.hpp"

namespace accel::parallel {

// Collective. The lines are the settings and rules that decide which exchanges a rank makes, in words that follow
// "has". kCollectiveMismatch with those that differ. `kind` says of which ranks they are.
void check_same_plan(const std::vector<std::string>& lines, comm::Communicator& ranks, const char* kind);

}  // namespace accel::parallel
