// SPDX-License-Identifier: Apache-2.0
// The checks that `accel test` runs on each rank: parts of the library, each with a known result.
#pragma once

#include <string>
#include <vector>

namespace accel::program {

// Arguments: a folder for checkpoints, seconds after which the rank ends itself, and "json" or "text". Rank 0 says what
// works; the exit status is 1 if something does not. The first failure of a rank ends it, since the others wait for it.
int run_self_test(const std::vector<std::string>& arguments);

}  // namespace accel::program
