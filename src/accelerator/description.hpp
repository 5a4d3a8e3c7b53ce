// SPDX-License-Identifier: Apache-2.0
// Description of the active mechanisms, to answer questions such as "is mixed precision on?".
#pragma once

#include <string>

#include "accelerator/accelerator.hpp"

namespace accel::accelerator {

// One per line.
std::string describe(const Accelerator& accelerator);

}  // namespace accel::accelerator
