// SPDX-License-Identifier: Apache-2.0
// Pinned host memory: memory of the host whose addresses are registered, so that copies from and to it need not wait.
#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>

namespace simulated_device {

c10::Allocator& pinned_allocator();
// Whether the address is inside of pinned memory.
bool is_pinned(const void* address);

// In bytes.
struct PinnedUse {
  size_t now = 0;
  size_t peak = 0;  // since reset_peak_pinned()
};
PinnedUse pinned_use();
void reset_peak_pinned();

}  // namespace simulated_device
