// The command `accel completions`.
#pragma once

#include <string>
#include <vector>

namespace accel::program {

int run_completions(const std::vector<std::string>& arguments);

}  // namespace accel::program
