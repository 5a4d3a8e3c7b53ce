// SPDX-License-Identifier: Apache-2.0
// The memory of another process of this host, read in one copy.
#pragma once

#include <cstddef>
#include <cstdint>

namespace accel::comm::ucx {

// Copies `bytes` at `address` of a process. False, with the reason in errno, if it has ended, has no such memory, or
// may not be read by this one.
bool read_memory(int process, uint64_t address, void* to, size_t bytes);
// Whether the process of a descriptor has; below 0: not known.
bool has_ended(int process_descriptor);

}  // namespace accel::comm::ucx
