// Pinned host memory: memory of the host whose addresses are registered, so that copies from and to it need not wait.
#pragma once

#include <c10/core/Allocator.h>

namespace simulated_device {

c10::Allocator& pinned_allocator();
// Whether the address is inside of pinned memory.
bool is_pinned(const void* address);

}  // namespace simulated_device
