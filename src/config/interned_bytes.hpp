// SPDX-License-Identifier: Apache-2.0
// Storage for texts and structs that options structs point to.
#pragma once

#include <string>

namespace accel {

// Kept until the process ends, one copy of each content. The total is bounded by the different values that applications
// and configuration files use.
const char* interned_bytes(std::string bytes);

}  // namespace accel
