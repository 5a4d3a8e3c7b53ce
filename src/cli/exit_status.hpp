// SPDX-License-Identifier: Apache-2.0
// Exit statuses of the program `accel` and of those that it starts.
#pragma once

namespace accel::program {

enum ExitStatus : int {
  kSuccess = 0,
  kFailure = 1,
  kDifferent = 1,  // checkpoints that are compared differ
  kWrongUsage = 2,
  kFailed = 3,
  kCannotStart = 126,
  kProgramNotFound = 127,
};

}  // namespace accel::program
