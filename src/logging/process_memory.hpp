// SPDX-License-Identifier: Apache-2.0
// The memory of this process.
#pragma once

#include <cstdint>

namespace accel::track {

struct ProcessMemory {
  int64_t resident = 0, most_resident = 0;  // bytes
};

ProcessMemory process_memory();

}  // namespace accel::track
