// SPDX-License-Identifier: Apache-2.0
// Captures the stdout of another program, for questions that may go wrong.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/deadline.hpp"

namespace accel::launch {

// Nothing if the program is not there, fails, says more than a megabyte, or has not ended at the deadline, when it is
// killed. Its stderr is not shown.
std::optional<std::string> command_output(const std::vector<std::string>& command, const Deadline& deadline);

}  // namespace accel::launch
