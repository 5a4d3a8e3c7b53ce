// The hidden command `accel manual`, with which the build makes the manual pages.
#pragma once

#include <string>
#include <vector>

namespace accel::program {

int run_manual(const std::vector<std::string>& arguments);

}  // namespace accel::program
