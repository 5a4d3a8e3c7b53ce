// SPDX-License-Identifier: Apache-2.0
// The command `accel to-fsdp2`.
#pragma once

#include <string>
#include <vector>

#include "json/json.hpp"

namespace accel::program {

int run_to_fsdp2(const std::vector<std::string>& arguments);

// The configuration for FSDP 2; what is dropped and why goes to `notes`.
Json to_fsdp2(const Json& configuration, std::vector<std::string>& notes);

}  // namespace accel::program
